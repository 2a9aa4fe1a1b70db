package workers

import (
	"sync"
	"sync/atomic"
)

// What the core shares with its workers, who run beside it: nothing else of it needs atomics or locks.

// turn is one job's place in the order of starts. Workers run side by side, so each makes its last check after the one
// before it has made its own; and a job before which another came back comes back too, for otherwise it would overtake.
type turn struct {
	priority int
	seq      uint64
	decided  sync.WaitGroup

	// Once decided.
	passed bool
	back   *turn // of those up to this one that came back, the first in order; nil: none

	own, total spent // what the start took of the bucket's envelope, and of that of all buckets together
}

func (t *turn) before(u *turn) bool {
	return t.priority > u.priority || t.priority == u.priority && t.seq < u.seq
}

// spent is a clock's tat before and after a start.
type spent struct{ before, after instant }

// refund gives the envelope back what a start took that did not happen, unless something else was taken since.
func (s spent) refund(c *clock) {
	if c.tat == s.after {
		c.tat = s.before
	}
}

// undecided counts the jobs that were given to a worker and have neither passed their last check nor come back.
type undecided struct{ jobs atomic.Int32 }

func (u *undecided) any() bool { return u.jobs.Load() > 0 }

// giveTurn puts a run that a worker is given at the end of its bucket's order.
func (r *run) giveTurn() {
	b := r.bucket
	r.turn, r.previous = &turn{priority: r.Priority, seq: r.Seq}, b.last
	r.turn.decided.Add(1)
	b.last = r.turn
	b.undecided.jobs.Add(1)
	b.part.undecided.jobs.Add(1)
}

// cameBack is called when the valve has heard that a job of the bucket did not pass.
func (b *bucket) cameBack() {
	b.undecided.jobs.Add(-1)
	b.part.undecided.jobs.Add(-1)
}

// decide makes the last check before a start, whoever runs the job, once all earlier starts of its bucket are decided. gate
// tells the instant before which jobs may start and then reads the clock, so that a freeze in between is noticed. begin, if
// there is one, begins the start before any later one of the bucket is decided.
func (r *run) decide(gate func() (fence, now instant), begin func()) (now instant, passed bool) {
	if r.previous != nil {
		r.previous.decided.Wait()
	}
	t := r.turn
	if r.previous != nil {
		t.back = r.previous.back
	}
	overtakes := t.back != nil && t.back.before(t)
	fence, now := gate()
	t.passed = !overtakes && now < fence && (r.latest == 0 || now <= r.latest)
	switch {
	case !t.passed && !overtakes:
		t.back = t
	case t.passed && begin != nil:
		begin()
	}
	t.decided.Done()
	r.previous = nil
	if t.passed {
		r.bucket.undecided.jobs.Add(-1)
		r.part.undecided.jobs.Add(-1)
	}
	return now, t.passed
}
