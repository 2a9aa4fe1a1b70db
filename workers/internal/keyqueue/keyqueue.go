// Package keyqueue keeps the waiting jobs of one key: those that may start, in their order, and
// those that are not due. Where its user wants it, jobs far from their turn are deep: small
// records, without headers and body. It knows no policy, no partition and no clock.
//
//   - keyqueue.go: a queue and its jobs; rank.go: their order;
//   - lane.go: what waits before a job;
//   - store.go: the deep jobs of many queues.
package keyqueue

import (
	"iter"
	"math"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/deep"
	"github.com/penstock-mq/penstock/workers/internal/heap"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Job is what a queue knows of a job of type J.
type Job[J any] struct {
	job.Arrived
	Of     J
	Came   int64        // see Queue.Arrive
	Behind uint16       // it goes after all jobs with less
	Front  int64        // it goes before all jobs with less; Alone: not a stored job
	At     pace.Instant // when a delayed one is due

	place int64 // among others of its Front
	mark  int64 // its lane's arrived slots when it came
	// in ready or later; 0: in neither
	index   int32
	raised  bool // formerly deep
	delayed bool
}

// Alone is the Front of a job in no lane: the next call.
const Alone = math.MaxInt64

type ordered[J any] struct{ *Job[J] }

func (j ordered[J]) Before(k ordered[J]) bool { return j.rank().Before(k.rank()) }
func (j ordered[J]) Moved(i int)              { j.index = int32(i) + 1 }

type delayed[J any] struct{ *Job[J] }

func (j delayed[J]) Before(k delayed[J]) bool {
	return j.At < k.At || j.At == k.At && j.Seq < k.Seq
}
func (j delayed[J]) Moved(i int) { j.index = int32(i) + 1 }

// Queue is the queue of one key.
type Queue[J any] struct {
	Key       queue.Key
	near      *near[J] // nil: empty
	deep      int32
	deepLater int32
	waiting   int64
	lanes     []lane
	store     *Store[J]
}

// near is what is held of a queue.
type near[J any] struct {
	ready  heap.Heap[ordered[J]]
	later  heap.Heap[delayed[J]]
	raised int              // ready jobs that were deep
	named  map[string]int64 // units of named costs that wait, beyond the slots
}

func New[J any](key queue.Key, store *Store[J]) Queue[J] {
	return Queue[J]{Key: key, store: store}
}

func (q *Queue[J]) own() *near[J] {
	if q.near == nil {
		q.near = &near[J]{}
	}
	return q.near
}

func (q *Queue[J]) ready() heap.Heap[ordered[J]] {
	if q.near == nil {
		return nil
	}
	return q.near.ready
}

func (q *Queue[J]) later() heap.Heap[delayed[J]] {
	if q.near == nil {
		return nil
	}
	return q.near.later
}

// Len counts the jobs that may start, Near those of them that are held, Deep those that are deep.
func (q *Queue[J]) Len() int  { return len(q.ready()) + int(q.deep) }
func (q *Queue[J]) Near() int { return len(q.ready()) }
func (q *Queue[J]) Deep() int { return int(q.deep) }

// Later counts the jobs that are not due.
func (q *Queue[J]) Later() int { return len(q.later()) + int(q.deepLater) }

// AllDeep counts the deep jobs, due or not.
func (q *Queue[J]) AllDeep() int { return int(q.deep + q.deepLater) }

// Waiting returns the slots of the jobs that may start, Named the units of named costs beyond that.
func (q *Queue[J]) Waiting() int64 { return q.waiting }

func (q *Queue[J]) Named() map[string]int64 {
	if q.near == nil {
		return nil
	}
	return q.near.named
}

// Head returns the next job if that is held.
func (q *Queue[J]) Head() (of J) {
	if all := q.ready(); len(all) > 0 {
		return all[0].Of
	}
	return of
}

// Nth returns a held job that may start, in the approximate order of a heap.
func (q *Queue[J]) Nth(i int) J { return q.near.ready[i].Of }

// Each iterates over the held jobs that may start, in the same order.
func (q *Queue[J]) Each() iter.Seq[J] {
	return func(yield func(J) bool) {
		for _, j := range q.ready() {
			if !yield(j.Of) {
				return
			}
		}
	}
}

// NearLater counts the held jobs that are not due, of which NthLater returns one, the first first.
func (q *Queue[J]) NearLater() int { return len(q.later()) }

func (q *Queue[J]) NthLater(i int) J { return q.near.later[i].Of }

// Push adds a job that may start, and reports whether it is the next one.
func (q *Queue[J]) Push(j *Job[J]) (next bool) {
	j.place = q.placeOf(j.Priority, j.Came)
	q.own().ready.Push(ordered[J]{j})
	q.count(j, 1)
	return j.index == 1
}

// Delay adds a job that is due later.
func (q *Queue[J]) Delay(j *Job[J]) {
	j.delayed = true
	q.own().later.Push(delayed[J]{j})
}

// Remove removes a job from wherever it is held.
func (q *Queue[J]) Remove(j *Job[J]) {
	switch {
	case j.index == 0:
	case j.delayed:
		q.near.later.Remove(int(j.index) - 1)
		j.delayed = false
	default:
		q.near.ready.Remove(int(j.index) - 1)
		q.count(j, -1)
		if j.raised {
			j.raised = false
			q.near.raised--
		}
	}
}

// Fix restores the order after At or Behind of a job has changed.
func (q *Queue[J]) Fix(j *Job[J]) {
	switch {
	case j.index == 0:
	case j.delayed:
		q.near.later.Fix(int(j.index) - 1)
	default:
		q.near.ready.Fix(int(j.index) - 1)
	}
}

func (q *Queue[J]) count(j *Job[J], sign int64) {
	if j.Front < Alone {
		q.lane(j.Priority).waiting += sign * j.Cost
	}
	q.countCost(j.Cost, j.Costs, sign)
}

// countCost counts a job that waits for a slot; sign −1 removes it.
func (q *Queue[J]) countCost(cost int64, named map[string]int64, sign int64) {
	q.waiting += sign * cost
	for name, n := range named {
		of := q.own()
		if of.named == nil {
			of.named = map[string]int64{}
		}
		if of.named[name] += sign * (n - cost); of.named[name] == 0 {
			delete(of.named, name)
		}
	}
}

// HeadStored returns when the next job was stored.
func (q *Queue[J]) HeadStored() (stored time.Time, waits bool) {
	if all := q.ready(); len(all) > 0 {
		return all[0].Stored, true
	}
	d, _, waits := q.firstDeep()
	return time.Unix(0, d.Stored), waits
}

// First returns the rank of the next job.
func (q *Queue[J]) First() Rank {
	if all := q.ready(); len(all) > 0 {
		return all[0].rank()
	}
	_, first, _ := q.firstDeep()
	return first
}

// Reorder is for all queues of a store whose step has changed.
func (q *Queue[J]) Reorder() {
	for i := range q.lanes {
		q.lanes[i].trail = nil
	}
	if q.near == nil {
		return
	}
	for _, j := range q.near.ready {
		j.place = q.placeOf(j.Priority, j.Came)
	}
	q.near.ready.Retain(func(ordered[J]) bool { return true })
}

// SlotsBefore counts the slots before a waiting job: a lower bound once later jobs of its priority
// have started.
func (q *Queue[J]) SlotsBefore(j *Job[J]) (slots int64) {
	if j.Front > 0 {
		return 0
	}
	for i := range q.lanes {
		l := &q.lanes[i]
		if l.priority == j.Priority {
			slots += max(0, l.waiting-j.Cost-(l.arrived-j.mark))
		} else {
			slots += q.slotsOf(l, j.Priority, j.Came)
		}
	}
	return slots
}

// SlotsFor counts the slots before a job that arrives now.
func (q *Queue[J]) SlotsFor(priority int, now int64) (slots int64) {
	now = max(now, q.store.arrivals.last)
	for i := range q.lanes {
		slots += q.slotsOf(&q.lanes[i], priority, now)
	}
	return slots
}

func (q *Queue[J]) slotsOf(l *lane, priority int, came int64) int64 {
	switch latest := came + int64(l.priority-priority)*q.store.step; {
	case q.store.step > 0 && latest < q.store.arrivals.last:
		return l.until(latest)
	case q.store.step > 0, l.priority >= priority:
		return l.waiting
	}
	return 0
}

// Position counts the stored jobs and slots before a waiting job, estimated in a long queue.
func (q *Queue[J]) Position(j *Job[J]) (jobs int, slots int64) {
	const mostCounted = 4096
	if q.deep > 0 || len(q.ready()) > mostCounted {
		slots = q.SlotsBefore(j)
		return q.JobsIn(slots), slots
	}
	for _, other := range q.ready() {
		if other.Front < Alone && other.Before(ordered[J]{j}) {
			jobs++
			slots += other.Cost
		}
	}
	return jobs, slots
}

// JobsIn estimates the jobs that have some slots.
func (q *Queue[J]) JobsIn(slots int64) int { return int(slots * int64(q.Len()) / q.waiting) }

func (q *Queue[J]) firstDeep() (first deep.Job, of Rank, some bool) {
	for i := range q.lanes {
		l := &q.lanes[i]
		if l.line == 0 {
			continue
		}
		if d, has := q.store.deep.First(l.line); has {
			r := Rank{Place: q.placeOf(l.priority, q.store.arrivals.came(d.Seq, d.Stored)),
				Seq: d.Seq}
			if !some || r.Before(of) {
				first, of, some = d, r, true
			}
		}
	}
	return first, of, some
}
