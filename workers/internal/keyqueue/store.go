package keyqueue

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/deep"
)

// Store has the deep jobs of many queues, whose jobs share a sequence.
type Store[J any] struct {
	deep     *deep.Store[line[J]]
	arrivals arrivals
	step     int64
}

type line[J any] struct {
	*Queue[J]
	priority int
}

// Deep is a deep job.
type Deep[J any] struct {
	deep.Job
	Queue    *Queue[J]
	Priority int
	Costs    map[string]int64
}

// NewStore returns an empty one, for queues with a step of priority; 0: strict priority.
func NewStore[J any](step time.Duration) *Store[J] {
	return &Store[J]{deep: deep.New[line[J]](), step: int64(step)}
}

// Restep sets the step, and reports whether it is another one. Reorder its queues then.
func (s *Store[J]) Restep(step time.Duration) (another bool) {
	another = s.step != int64(step)
	s.step = int64(step)
	return another
}

// Len counts the deep jobs.
func (s *Store[J]) Len() int { return s.deep.Len() }

// Takes reports whether a job can be deep: it came after all others that are.
func (s *Store[J]) Takes(j *Job[J]) bool {
	return s.deep.Takes(j.Seq) && s.deep.TakesCosts(j.Costs)
}

// Find returns a deep job.
func (s *Store[J]) Find(seq uint64) (d Deep[J], some bool) {
	j, of, some := s.deep.Find(seq)
	if some {
		d = Deep[J]{j, of.Queue, of.priority, s.deep.Costs(seq)}
	}
	return d, some
}

// Held returns what a held job has of a deep one.
func (d *Deep[J]) Held(j *Job[J]) {
	j.Came, j.mark = d.Queue.store.arrivals.came(d.Seq, d.Stored), d.Mark
}

// Lift removes a deep job.
func (s *Store[J]) Lift(d Deep[J]) {
	s.deep.Take(d.Seq)
	if d.Due != 0 {
		d.Queue.deepLater--
	} else {
		d.Queue.countDeep(d.Priority, -1, d.Cost, d.Costs)
	}
}

// See records a delivery in a generation, and reports whether the job, stored at this time, is
// deep. Unseen returns, in order, the jobs up to a sequence that a generation did not deliver.
func (s *Store[J]) See(seq uint64, stored int64, generation uint8) bool {
	return s.deep.See(seq, stored, generation)
}

func (s *Store[J]) Unseen(generation uint8, last uint64) []uint64 {
	return s.deep.Unseen(generation, last)
}

// Soonest returns the job that becomes due or expires first, and when, in Unix ns.
func (s *Store[J]) Soonest() (d deep.Job, at int64, some bool) { return s.deep.Soonest() }

// Ripen makes a delayed job one that may start, and returns its queue.
func (s *Store[J]) Ripen(seq uint64) *Queue[J] {
	_, of, _ := s.deep.Find(seq)
	l := of.lane(of.priority)
	if l.line == 0 {
		l.line = s.deep.Open(of)
	}
	s.deep.Ripen(seq, l.line)
	d, _ := s.Find(seq)
	of.deepLater--
	of.countDeep(of.priority, 1, d.Cost, d.Costs)
	return of.Queue
}

// Clear removes all deep jobs of some queues, which are all that have any.
func (s *Store[J]) Clear(queues ...*Queue[J]) {
	for _, q := range queues {
		q.deepLater = 0
		for _, l := range q.lanes {
			for d := range s.deep.Line(l.line) {
				q.countDeep(l.priority, -1, d.Cost, s.deep.Costs(d.Seq))
			}
		}
	}
	s.deep.Clear()
}

// Restart forgets when jobs arrived: the stream is another.
func (s *Store[J]) Restart() { s.arrivals = arrivals{} }

// Sink adds a job that is held nowhere as a deep one; due, in Unix ns, is 0 if it may start.
func (q *Queue[J]) Sink(j *Job[J], d deep.Job) {
	l := q.lane(j.Priority)
	into := &l.line
	if d.Due != 0 {
		into = &l.later
	}
	if *into == 0 {
		*into = q.store.deep.Open(line[J]{q, j.Priority})
	}
	d.Seq, d.Stored, d.Mark, d.Cost = j.Seq, j.Stored.UnixNano(), j.mark, j.Cost
	d.Size = int32(min(j.Size, math.MaxInt32))
	q.store.deep.Add(*into, d, j.Costs)
	if d.Due != 0 {
		q.deepLater++
	} else {
		q.countDeep(j.Priority, 1, j.Cost, j.Costs)
	}
}

func (q *Queue[J]) countDeep(priority, sign int, cost int64, named map[string]int64) {
	q.deep += int32(sign)
	q.lane(priority).waiting += int64(sign) * cost
	q.countCost(cost, named, int64(sign))
}

// Raises counts a lifted job, which is pushed next, as one that was deep.
func (q *Queue[J]) Raises(j *Job[J]) {
	j.raised = true
	q.own().raised++
}

// Wants returns a deep job that is to be raised, where some jobs are to be held ahead: the first,
// while it precedes the first or the last held one (law 4).
func (q *Queue[J]) Wants(ahead int) (d deep.Job, some bool) {
	if q.deep == 0 {
		return d, false
	}
	d, first, _ := q.firstDeep()
	all := q.ready()
	n := len(all)
	next := n == 0 || first.Before(all[0].rank())
	soon := q.own().raised < ahead && (n < ahead || first.Before(all[n-1].rank()))
	return d, next || soon
}

// SomeDeep returns, in order, about most deep jobs up to a sequence.
func (q *Queue[J]) SomeDeep(last uint64, most int) (seqs []uint64) {
	for _, l := range q.lanes {
		for _, line := range []deep.Line{l.line, l.later} {
			for d := range q.store.deep.Line(line) {
				if len(seqs) == most {
					break
				}
				if d.Seq <= last {
					seqs = append(seqs, d.Seq)
				}
			}
		}
	}
	slices.Sort(seqs)
	return seqs
}

// DeepLaterAt returns when the first deep job that is not due is, or expires, in Unix ns.
func (q *Queue[J]) DeepLaterAt() (at int64, some bool) {
	for _, l := range q.lanes {
		if d, has := q.store.deep.First(l.later); has {
			at, some = min(cmp.Or(at, d.Due), d.Due, d.Expires), true
		}
	}
	return at, some
}

// Close ends an empty queue.
func (q *Queue[J]) Close() {
	for i := range q.lanes {
		l := &q.lanes[i]
		q.store.deep.Close(l.line)
		q.store.deep.Close(l.later)
		l.line, l.later = 0, 0
	}
}
