// Package claimant keeps whatever claims a start from a valve, by the states of
// docs/workers-protocol.md: callers that wait in a bucket for a permit, and workers of other
// processes that ask for a job. [Set.Take] is the only way from one state to another. It obeys one
// table, from which the drawing on that page is made.
package claimant

import (
	"iter"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/heap"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

type State uint8

const (
	Unknown  State = iota
	Waiting        // for an offer. A worker waits in its queue group, where no valve knows it.
	Offered        // its turn is near
	Claiming       // it may begin until its claim runs out
	Granted        // the final check of its start is not known
	Running        // until its lease runs out
	Ended
	states
)

type Event uint8

const (
	Ask      Event = iota // a claim before the turn is near
	Claim                 // a claim of a turn that is near
	Offer                 // its turn is near
	Silence               // the time of its state is over
	Start                 // its claim gets a start
	Pass                  // the final check
	Return                // the final check fails
	Progress              // it continues
	Answered              // it continues, and its answer has begun
	Settle                // it has ended, or waits no more
	Leave                 // the valve's owner leaves
	events
)

// table has the state after an event. Unknown: the event has no effect.
var table = [states][events]State{
	Unknown: {Ask: Waiting, Claim: Claiming, Progress: Running, Answered: Running, Settle: Ended},
	Waiting: {Ask: Waiting, Offer: Offered, Silence: Ended, Settle: Ended, Leave: Ended},
	Offered: {Ask: Waiting, Claim: Claiming, Silence: Ended, Settle: Ended, Leave: Ended},
	Claiming: {Ask: Waiting, Claim: Claiming, Silence: Waiting, Start: Granted, Settle: Ended,
		Leave: Ended},
	// Reports take effect once the final check is known.
	Granted: {Pass: Running, Return: Waiting, Progress: Granted, Answered: Granted,
		Settle: Granted, Leave: Ended},
	Running: {Progress: Running, Answered: Running, Silence: Ended, Settle: Ended, Leave: Ended},
}

// Claimant is a caller, for which a job of type J stands in its bucket, or a worker.
type Claimant[J any] struct {
	ID     string
	Of     J
	Worker string             // a worker's reply subject; empty: a caller
	Except map[queue.Key]bool // buckets whose jobs a worker does not take
	// a caller's place in its queue: by priority, then by sequence
	Priority int
	Seq      uint64
	Came     pace.Instant
	Takes    quota.Cost

	N       int             // number of its last claim
	Reply   func(job.Turn)  // to that claim
	Ends    pace.Instant    // of its wait
	Report  *job.Claim      // that came before the final check was known
	Leased  bool            // it reports its end
	Answers bool            // its answer has begun
	Ending  *record.Outcome // once its request, sent without an answer, no longer arrives

	state State
	until pace.Instant // of the state
	queue *Queue[J]
	place int // in the queue
	timer int
}

// New returns a claimant that the set does not know. Its queue may be nil if it already runs.
func New[J any](of J, q *Queue[J]) *Claimant[J] {
	return &Claimant[J]{Of: of, queue: q, place: -1, timer: -1}
}

func (k *Claimant[J]) State() State { return k.state }

// Until returns when the set notices its silence.
func (k *Claimant[J]) Until() pace.Instant { return k.until }

// Before implements [heap.Item], for its queue.
func (k *Claimant[J]) Before(other *Claimant[J]) bool {
	if k.state != other.state {
		return k.state > other.state
	}
	return k.Precedes(other)
}

// Moved implements [heap.Item].
func (k *Claimant[J]) Moved(i int) { k.place = i }

// Precedes reports whether it has the better place.
func (k *Claimant[J]) Precedes(other *Claimant[J]) bool {
	if k.Priority != other.Priority {
		return k.Priority > other.Priority
	}
	return k.Seq < other.Seq
}

func (s State) queued() bool { return s == Waiting || s.near() }
func (s State) near() bool   { return s == Offered || s == Claiming }
func (s State) works() bool  { return s == Granted || s == Running }

// Set has the claimants of a valve.
type Set[J any] struct {
	Offers  int // to the workers' queue group, without an answer
	Working int // workers with jobs
	times   heap.Heap[timed[J]]
}

// Take moves a claimant, whose next state lasts until an instant, and reports whether the event
// had an effect.
func (s *Set[J]) Take(k *Claimant[J], e Event, until pace.Instant) bool {
	was, is := k.state, table[k.state][e]
	switch {
	case is == Unknown:
		return false
	case is == Waiting && k.Worker != "":
		is = Ended
	}
	if was.queued() && is != was {
		k.queue.remove(k)
	}
	k.state, k.until = is, until
	if is.queued() && is != was {
		k.queue.push(k)
	}
	switch {
	case k.Worker == "" || was.works() == is.works():
	case is.works():
		s.Working++
	default:
		s.Working--
	}
	switch timed, timing := (timed[J]{k}), is.queued() || is == Running; {
	case timing && k.timer < 0:
		s.times.Push(timed)
	case timing:
		s.times.Fix(k.timer)
	case k.timer >= 0:
		s.times.Remove(k.timer)
	}
	return true
}

// Silent returns a claimant whose state has lasted for its time, or nil.
func (s *Set[J]) Silent(now pace.Instant) *Claimant[J] {
	if len(s.times) == 0 || s.times[0].until > now {
		return nil
	}
	return s.times[0].Claimant
}

// Wake returns when Silent next has a claimant.
func (s *Set[J]) Wake() pace.Instant {
	if len(s.times) == 0 {
		return pace.Never
	}
	return s.times[0].until
}

// Queue has claimants in the order of their starts: those that claim it, those to which it was
// offered, the others. Its zero value is empty.
type Queue[J any] struct {
	Slots         int64 // their costs
	near, waiting heap.Heap[*Claimant[J]]
}

func (q *Queue[J]) of(k *Claimant[J]) *heap.Heap[*Claimant[J]] {
	if k.state.near() {
		return &q.near
	}
	return &q.waiting
}

func (q *Queue[J]) push(k *Claimant[J]) {
	q.Slots += k.Takes.Job
	q.of(k).Push(k)
}

func (q *Queue[J]) remove(k *Claimant[J]) {
	q.Slots -= k.Takes.Job
	q.of(k).Remove(k.place)
}

// Len counts them all, Near those that claim or were offered their turn.
func (q *Queue[J]) Len() int  { return len(q.near) + len(q.waiting) }
func (q *Queue[J]) Near() int { return len(q.near) }

// First returns the claimant that starts next, or nil.
func (q *Queue[J]) First() *Claimant[J] {
	if len(q.near) > 0 {
		return q.near[0]
	}
	return q.Next()
}

// Next returns the claimant to which a turn is offered next, or nil.
func (q *Queue[J]) Next() *Claimant[J] {
	if len(q.waiting) == 0 {
		return nil
	}
	return q.waiting[0]
}

// All returns them in no particular order, except that First is the first.
func (q *Queue[J]) All() iter.Seq[*Claimant[J]] {
	return func(yield func(*Claimant[J]) bool) {
		for _, h := range [...]heap.Heap[*Claimant[J]]{q.near, q.waiting} {
			for _, k := range h {
				if !yield(k) {
					return
				}
			}
		}
	}
}

type timed[J any] struct{ *Claimant[J] }

func (k timed[J]) Before(other timed[J]) bool {
	return k.until < other.until || k.until == other.until && k.Seq < other.Seq
}
func (k timed[J]) Moved(i int) { k.timer = i }
