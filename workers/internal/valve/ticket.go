package valve

import (
	"sync"
	"sync/atomic"

	"github.com/penstock-mq/penstock/workers/internal/keyqueue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// All state that the core shares with its concurrent workers is in this file.

// Ticket is a place in the order of starts. Final checks are made in that order, and a job that
// would overtake a returned one is returned too (law 4).
type Ticket struct {
	rank     keyqueue.Rank
	cost     int64
	own      *pace.Clock
	total    *pace.Clock  // may be nil
	latest   pace.Instant // of the final check
	previous *Ticket      // nil once decided
	bucket   *undecided   // of the bucket
	part     *undecided   // of the partition
	decided  sync.WaitGroup

	// Once decided.
	why  Return
	back *Ticket // first in order of the returned jobs so far
}

// undecided counts jobs before their final check or their return.
type undecided struct{ jobs atomic.Int32 }

func (u *undecided) any() bool { return u.jobs.Load() > 0 }

func (b *bucket) ticket(j *heldJob, fence pace.Instant) *Ticket {
	r := b.queue.Rank(&j.Job)
	r.Behind = 0
	t := &Ticket{rank: r, cost: j.Cost, own: &b.clock, latest: fence - 1,
		previous: b.last, bucket: &b.own().undecided, part: &b.Part.undecided}
	t.decided.Add(1)
	t.bucket.jobs.Add(1)
	t.part.jobs.Add(1)
	b.last = t
	return t
}

func (b *bucket) cameBack() {
	b.undecided.jobs.Add(-1)
	b.Part.undecided.jobs.Add(-1)
}

// takeSlots takes slots if the clocks allow it now. The bucket's goes first: only the valve can
// move it meanwhile, so no slot of all buckets is lost.
func (t *Ticket) takeSlots(now pace.Instant) bool {
	return t.own.May(now) && (t.total == nil || t.total.Start(now, t.cost)) &&
		t.own.Start(now, t.cost)
}

type Return string

const (
	ReturnRate  Return = "rate"  // too many began together
	ReturnLease Return = "lease" // it ended, or changed since the decision
	ReturnOrder Return = "order" // an earlier job was returned
)

// Returned is for the checking goroutine only.
func (t *Ticket) Returned() Return { return t.why }

// Decide makes the final check of a start, after those of all earlier starts of its bucket. It runs
// where the job runs, because fence and rate bound starts, not decisions. gate returns the fence
// and then the clock, which detects a freeze in between. begin, if not nil, starts the job before
// any later one is decided.
func (t *Ticket) Decide(gate func() (fence, now pace.Instant),
	begin func()) (now pace.Instant, passed bool) {
	if t.previous != nil {
		t.previous.decided.Wait()
		t.back = t.previous.back
	}
	overtakes := t.back != nil && t.back.rank.Before(t.rank)
	fence, now := gate()
	switch {
	case overtakes:
		t.why = ReturnOrder
	case now >= fence || now > t.latest:
		t.why = ReturnLease
	case !t.takeSlots(now):
		t.why = ReturnRate
	}
	passed = t.why == ""
	switch {
	case !passed && !overtakes:
		t.back = t
	case passed && begin != nil:
		begin()
	}
	t.previous = nil
	t.decided.Done()
	if passed {
		t.bucket.jobs.Add(-1)
		t.part.jobs.Add(-1)
	}
	return now, passed
}
