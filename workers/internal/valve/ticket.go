package valve

import (
	"sync"
	"sync/atomic"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// This file holds all state that the core shares with its workers, which run concurrently.
// Nothing else in the core needs atomics or locks, or passes pointers to the shell. A value
// would not do here, because a job's final check depends on the result of the previous
// worker's.

// Ticket is a job's place in the order of starts. Workers run concurrently, so each makes its
// final check after the previous one; and a job after which a returned job comes first is
// returned too, since it would otherwise overtake.
//
// Law 4 requires it: without tickets, the second of two jobs could pass while the first one's
// goroutine waits for the processor.
type Ticket struct {
	rank     rank // without the times it found the target down
	cost     int64
	own      *pace.Clock  // the bucket's
	total    *pace.Clock  // over all buckets; nil: none
	latest   pace.Instant // deadline of the final check
	previous *Ticket      // nil once decided
	bucket   *undecided   // of the bucket …
	part     *undecided   // … and of the partition
	decided  sync.WaitGroup

	// Once decided.
	passed bool
	why    Return  // if it did not pass
	back   *Ticket // first in order of the returned jobs up to this one; nil: none
}

// undecided counts jobs given to a worker that have neither passed their final check nor
// returned.
type undecided struct{ jobs atomic.Int32 }

func (u *undecided) any() bool { return u.jobs.Load() > 0 }

// ticket appends a job that goes to a worker to its bucket's order.
//
// It also counts the job in its partition, as a handover must wait until none is undecided.
func (b *bucket) ticket(j *heldJob, fence pace.Instant) *Ticket {
	r := j.rank()
	r.tried = 0
	t := &Ticket{rank: r, cost: j.Cost, own: &b.clock, latest: fence - 1,
		previous: b.last, bucket: &b.own().undecided, part: &b.Part.undecided}
	t.decided.Add(1)
	t.bucket.jobs.Add(1)
	t.part.jobs.Add(1)
	b.last = t
	return t
}

// cameBack handles the return of a job to the valve. The job stays undecided from its check
// until now, because nothing may start before it has its place again.
func (b *bucket) cameBack() {
	b.undecided.jobs.Add(-1)
	b.Part.undecided.jobs.Add(-1)
}

// Passed waits for the final check, and reports its result.
func (t *Ticket) Passed() bool {
	t.decided.Wait()
	return t.passed
}

// takeSlots takes the job's slots at now, if the clocks allow it. It asks the bucket's own
// clock first: only the valve can move that meanwhile, because the bucket's starts come one by
// one. So no slot of all buckets together is lost to a job that may not start.
func (t *Ticket) takeSlots(now pace.Instant) bool {
	return t.own.May(now) && (t.total == nil || t.total.Start(now, t.cost)) &&
		t.own.Start(now, t.cost)
}

// Return is why a start was returned.
type Return string

const (
	ReturnRate  Return = "rate"  // too many would have begun together: its slot is later
	ReturnLease Return = "lease" // the lease ended, or it changed since the decision
	ReturnOrder Return = "order" // an earlier job of its bucket was returned
)

// Returned returns why the job did not pass the final check; empty: it passed. Only the
// goroutine that made the check may call it.
func (t *Ticket) Returned() Return { return t.why }

// Decide makes the final check of a start, after all earlier starts of its bucket are decided.
// gate returns the fence and then the clock, in this order, so that a freeze in between is
// noticed. begin, if not nil, starts the job before any later one of the bucket is decided.
//
// The check is made where the job runs, immediately before, because the fence and the rate
// bound starts and not decisions; in between, a goroutine may wait for the processor, or the
// machine may sleep. So the start takes its slots here, from the bucket's clock and the clock
// over all buckets. Lease and clocks are judged by the same, latest reading of the time.
func (t *Ticket) Decide(gate func() (fence, now pace.Instant),
	begin func()) (now pace.Instant, passed bool) {
	if t.previous != nil {
		t.previous.decided.Wait()
		t.back = t.previous.back
	}
	overtakes := t.back != nil && t.back.rank.before(t.rank)
	fence, now := gate()
	switch {
	case overtakes:
		t.why = ReturnOrder
	case now >= fence || now > t.latest:
		t.why = ReturnLease
	case !t.takeSlots(now):
		t.why = ReturnRate
	}
	t.passed = t.why == ""
	switch {
	case !t.passed && !overtakes:
		t.back = t
	case t.passed && begin != nil:
		begin()
	}
	t.previous = nil
	t.decided.Done()
	if t.passed {
		t.bucket.jobs.Add(-1)
		t.part.jobs.Add(-1)
	}
	return now, t.passed
}
