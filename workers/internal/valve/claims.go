package valve

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// claims is how a valve finds workers in other processes: it offers, which says only that a job is
// due; a worker with room claims; and then the job is picked whose turn it is at that moment. It
// offers a little ahead and keeps the claims until a job is due, so that a worker elsewhere starts
// as punctually as a local one.
//
// A job that was sent with the offer would be bound to a worker before its turn: the last check
// could not be made in order, and a worker that does not answer would hold it up.
type claims struct {
	offering int // offers that have no answer yet
	// the last offer found no worker with room, and no local one has been free since
	declined bool
	nobody   bool         // it found no worker at all
	running  int          // jobs that run elsewhere
	nextAt   pace.Instant // no offer before it
	wakeAt   pace.Instant // when to look whether offers are wanted
	held     []Claim

	// Buckets that a worker with room left refused, because it runs too much of them: until the
	// next claim, offers are for those behind them.
	crowded map[job.Key]bool
}

// Claim is a worker elsewhere that waits for a job.
type Claim struct {
	Worker string       // the subject that it listens to
	Turn   NextTurn     // that it was offered
	Until  pace.Instant // after which it is told no
}

const (
	// ClaimWindow is how long a claim counts: for the valve from its offer, for the worker from its
	// claim, each on its own clock. The worker begins later, so it still waits when the valve does
	// not count on it any more. A worker that waits does nothing else, hence no longer.
	ClaimWindow = 50 * time.Millisecond
	// mostOffers is how many offers and claims of one policy are open at once.
	mostOffers = 8
	// busyPause is the wait after an answer that a worker had no room, nobodyPause after there was
	// none: rooms come and go with each job, processes do not.
	busyPause   = 20 * time.Millisecond
	nobodyPause = 250 * time.Millisecond
	// ahead is how long before a job is due a worker is looked for.
	ahead = 20 * time.Millisecond
	// HoldFor is how long after its offer a claim is kept: shorter than the worker waits, for the
	// job must still reach it.
	HoldFor = ClaimWindow - 10*time.Millisecond
)

// OfferResult is how an offer ended.
type OfferResult uint8

const (
	OfferClaimed OfferResult = iota // the claim was passed on, whatever became of it
	OfferBusy                       // or no answer in time
	OfferNobody
)

// NextTurn says whose turn it is, and how many jobs that bucket runs.
type NextTurn struct {
	Key     job.Key
	Running int
	Alone   bool // nobody else's: those before it are crowded
}

// Next is whose turn it is now or soon.
//
// An offer names a bucket only so that workers can refuse one that runs too much; the job is picked
// when the claim is there.
func (v *Valve) Next() NextTurn {
	switch {
	case len(v.due) > 0:
		b := v.uncrowded(0)
		if b == nil {
			clear(v.claims.crowded)
			b = v.due[0].bucket
		}
		return NextTurn{b.key, b.running, b != v.due[0].bucket}
	case len(v.sched) > 0:
		return NextTurn{Key: v.sched[0].key, Running: v.sched[0].running}
	}
	return NextTurn{}
}

// uncrowded is the first of the buckets that are due, from one on in their heap, that no worker has
// refused; nil: there is none.
//
// It goes down the heap only below buckets that are crowded, of which there are few.
func (v *Valve) uncrowded(i int) *bucket {
	switch {
	case i >= len(v.due):
		return nil
	case !v.claims.crowded[v.due[i].key]:
		return v.due[i].bucket
	}
	a, b := v.uncrowded(2*i+1), v.uncrowded(2*i+2)
	if a == nil || b != nil && (dueBucket{b}).Before(dueBucket{a}) {
		return b
	}
	return a
}

// Refused takes that a worker with room refused a bucket.
func (v *Valve) Refused(key job.Key) {
	if v.claims.crowded == nil {
		v.claims.crowded = map[job.Key]bool{}
	}
	v.claims.crowded[key] = true
}

// Claimed takes that a worker elsewhere waits. Advance gives it the job whose turn it is, or
// refuses.
func (v *Valve) Claimed(c Claim) { v.claims.held = append(v.claims.held, c) }

// fits reports whether a worker that claimed for one bucket may be given to another, whose turn it
// is now. Workers refuse a bucket that runs very much, as one does whose target hangs, and it must
// not get them under another's name: one job more than the worker was asked for may be the one that
// it would have refused, for of two workers the second is for those that run none.
func (t NextTurn) fits(b *bucket) bool {
	return t.Key == b.key || !t.Alone && b.running <= t.Running
}

// offer asks for workers elsewhere when buckets are due, or will be soon, and no local worker may
// take them.
//
// Claims that are held count as well: each of them is a worker that waits.
func (v *Valve) offer(now pace.Instant) {
	c := &v.claims
	if v.Free() > 0 {
		c.declined = false
	}
	if c.wakeAt = c.nextAt; now < c.nextAt {
		return
	}
	var wanted int
	wanted, c.wakeAt = v.wanted(now)
	for range min(wanted, mostOffers) - c.offering - len(c.held) {
		c.offering++
		v.out.Offers = append(v.out.Offers, v.Policy.Name)
	}
}

// wanted is how many workers elsewhere could be used now or soon, and when more of them will be.
//
// While the breaker is open one worker is enough for the probe; under a total outflow only as many
// as its clock lets start in time, however many buckets are due.
func (v *Valve) wanted(now pace.Instant) (n int, next pace.Instant) {
	next = pace.Never
	if v.Free() > 0 && len(v.due) == 0 {
		return 0, next
	}
	soon := now.Add(ahead)
	if v.breaker.open {
		switch {
		case len(v.due) == 0:
			return 0, next
		case v.breaker.due() > soon:
			return 0, v.breaker.due().Add(-ahead)
		}
		return 1, next
	}
	if v.takesTurns() && len(v.due) > 0 {
		at := now
		if !v.admits(now) {
			at = v.gateAt
		}
		if at > soon {
			return 0, at.Add(-ahead)
		}
		return 1 + int(soon.Since(at)/max(v.turnEvery(), 1)), next
	}
	n = len(v.due)
	for _, b := range v.sched[:min(len(v.sched), mostLooks)] {
		switch {
		case len(b.ready) == 0:
		case b.nextAt > soon:
			next = min(next, b.nextAt.Add(-ahead))
		case b.pace == nil:
			n++
		default:
			n += 1 + min(b.queued()-1, int(soon.Since(b.nextAt)/b.pace.Interval))
		}
	}
	return n, next
}

// Offered takes the end of an offer.
func (v *Valve) Offered(result OfferResult, now pace.Instant) {
	v.claims.offering--
	if result == OfferClaimed {
		clear(v.claims.crowded)
	}
	v.claims.declined, v.claims.nobody = result != OfferClaimed, result == OfferNobody
	switch result {
	case OfferBusy:
		v.claims.nextAt = now.Add(busyPause)
	case OfferNobody:
		v.claims.nextAt = now.Add(nobodyPause)
	}
	v.claims.wakeAt = now
}

// serve gives jobs that are due to workers elsewhere that wait for one.
func (v *Valve) serve(now pace.Instant) {
	c := &v.claims
	for len(v.due) > 0 && len(c.held) > 0 && v.admits(now) {
		b, i := v.match()
		if b == nil {
			return
		}
		v.startBy(b, i, now)
	}
}

// match returns who gets a job from which claim: the bucket whose turn it is, if a claim fits it;
// otherwise one that a worker claimed for, so that no worker waits beside jobs that are due.
func (v *Valve) match() (b *bucket, claim int) {
	held := v.claims.held
	fitting := func(b *bucket) int {
		return slices.IndexFunc(held, func(c Claim) bool { return c.Turn.fits(b) })
	}
	b = v.nextDue(func(b *bucket) bool { return fitting(b) >= 0 })
	if i := fitting(b); i >= 0 {
		return b, i
	}
	for i, c := range held {
		for _, p := range v.parts {
			if b := p.buckets[c.Turn.Key]; b != nil && b.spot == spotDue {
				return b, i
			}
		}
	}
	return nil, 0
}

// refuseLate tells workers elsewhere that have waited too long, or all of them, that there is no
// job for them.
//
// A worker that is told no is free at once, and one that is not told waits until its own window
// ends. All of them are told when this drainer may start nothing: others may.
func (v *Valve) refuseLate(now pace.Instant, all bool) {
	c := &v.claims
	n := 0
	for n < len(c.held) && (all || c.held[n].Until <= now) {
		v.out.Refusals = append(v.out.Refusals, c.held[n].Worker)
		n++
	}
	c.held = slices.Delete(c.held, 0, n)
}

// wake is when the next offer may be made, or a claim expires.
func (c *claims) wake() pace.Instant {
	at := c.wakeAt
	if len(c.held) > 0 {
		at = min(at, c.held[0].Until)
	}
	return at
}
