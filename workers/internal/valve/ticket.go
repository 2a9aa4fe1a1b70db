package valve

import (
	"sync"
	"sync/atomic"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// What the core shares with its workers, who run beside it: nothing else of it needs atomics or
// locks, and nothing else that crosses to the shell is a pointer. Here a value would not do: the
// last check of a job depends on what the worker of the job before has just found.

// Ticket is one job's place in the order of starts. Workers run side by side, so each makes its
// last check after the one before it has made its own; and a job before which another came back
// comes back too, for otherwise it would overtake.
//
// Law 4 needs it: without tickets, of two jobs given to two workers the second could pass while the
// first one's goroutine waits for the processor.
type Ticket struct {
	rank     rank // but for how often it found the target down
	cost     int64
	own      *pace.Clock  // of the bucket
	total    *pace.Clock  // of all buckets together; nil: there is none
	latest   pace.Instant // the last check passes until then
	previous *Ticket      // nil once decided
	bucket   *undecided   // of the job's bucket …
	part     *undecided   // … and of its partition
	decided  sync.WaitGroup

	// Once decided.
	passed bool
	why    Return  // it did not
	back   *Ticket // of those up to this one that came back, the first in order; nil: none
}

// undecided counts the jobs that were given to a worker and have neither passed their last check
// nor come back.
type undecided struct{ jobs atomic.Int32 }

func (u *undecided) any() bool { return u.jobs.Load() > 0 }

// ticket puts a job that a worker is given at the end of its bucket's order.
//
// It is counted at its partition as well, for a handover must wait until none is on its way.
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

// cameBack is called when the valve has heard that a job of the bucket did not pass. It counts as
// undecided until then, and not only until its check: the job is on its way back, and nothing may
// start before it has its place again.
func (b *bucket) cameBack() {
	b.undecided.jobs.Add(-1)
	b.Part.undecided.jobs.Add(-1)
}

// Passed waits for the last check, and reports whether it passed.
func (t *Ticket) Passed() bool {
	t.decided.Wait()
	return t.passed
}

// takeSlots reports whether the clocks let the job start at now, and takes its slots if they do.
// The bucket's own clock is asked first: only the valve can move it meanwhile, for the bucket's
// starts come one by one, and all buckets together lose no slot to one that may not start.
func (t *Ticket) takeSlots(now pace.Instant) bool {
	return t.own.May(now) && (t.total == nil || t.total.Start(now, t.cost)) &&
		t.own.Start(now, t.cost)
}

// Return says why a start came back that a worker was given.
type Return string

const (
	ReturnRate  Return = "rate"  // too many would have begun together: its slot was not there yet
	ReturnLease Return = "lease" // the lease was over, or another one than when it was decided
	ReturnOrder Return = "order" // one that goes before it in its bucket came back
)

// Returned says why the job did not pass the last check; empty: it did. Only who made that check
// may ask.
func (t *Ticket) Returned() Return { return t.why }

// Decide makes the last check before a start, whoever runs the job, once all earlier starts of its
// bucket are decided. gate tells the instant before which jobs may start and then reads the clock,
// so that a freeze in between is noticed. begin, if there is one, begins the start before any later
// one of the bucket is decided.
//
// It is made where the job runs, right before it does, for the fence and the rate are about starts
// and not about decisions: between the two a goroutine may not get the processor, or the machine
// may sleep. So here the start takes its slots, of the bucket's clock and of that of all buckets
// together, and both lease and clocks are asked by the one reading of the time that was taken last.
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
