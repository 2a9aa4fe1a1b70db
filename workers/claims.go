package workers

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// claims is how a valve finds workers in other processes: it offers, which says only that a job is due; a worker with room
// claims; and then the job is picked whose turn it is at that moment. It offers a little ahead and keeps the claims until
// a job is due, so that a worker elsewhere starts as punctually as a local one.
type claims struct {
	offering int     // offers that have no answer yet
	declined bool    // the last offer found no worker with room, and no local one has been free since
	nobody   bool    // it found no worker at all
	running  int     // jobs that run elsewhere
	nextAt   instant // no offer before it
	wakeAt   instant // when to look whether offers are wanted
	held     []claimed

	// Buckets that a worker with room left refused, because it runs too much of them: until the next claim, offers are for
	// those behind them.
	crowded map[queue.Key]bool
}

// claimed is a worker elsewhere that waits for a job.
type claimed struct {
	worker string   // the subject that it listens to
	turn   nextTurn // that it was offered
	until  instant  // after which it is told no
}

const (
	// mostOffers is how many offers and claims of one policy are open at once.
	mostOffers = 8
	// busyPause is the wait after an answer that a worker had no room, nobodyPause after there was none.
	busyPause   = 20 * time.Millisecond
	nobodyPause = 250 * time.Millisecond
	// ahead is how long before a job is due a worker is looked for.
	ahead = 20 * time.Millisecond
	// holdFor is how long after its offer a claim is kept: shorter than the worker waits, for the job must still reach it.
	holdFor = claimWindow - 10*time.Millisecond
	// mostLooks is how many buckets are looked at to see how many jobs are due soon.
	mostLooks = 32
)

// offerResult is how an offer ended.
type offerResult uint8

const (
	offerClaimed offerResult = iota // the claim was passed on, whatever became of it
	offerBusy                       // or no answer in time
	offerNobody
)

// nextTurn says whose turn it is, and how many jobs that bucket runs.
type nextTurn struct {
	key     queue.Key
	running int
	alone   bool // nobody else's: those before it are crowded
}

// next is whose turn it is now or soon.
func (v *valve) next() nextTurn {
	switch {
	case len(v.due) > 0:
		b := v.uncrowded(0)
		if b == nil {
			clear(v.claims.crowded)
			b = v.due[0].bucket
		}
		return nextTurn{b.key, b.running, b != v.due[0].bucket}
	case len(v.sched) > 0:
		return nextTurn{key: v.sched[0].key, running: v.sched[0].running}
	}
	return nextTurn{}
}

// uncrowded is the first of the buckets that are due, from one on in their heap, that no worker has refused; nil: there is none.
func (v *valve) uncrowded(i int) *bucket {
	switch {
	case i >= len(v.due):
		return nil
	case !v.claims.crowded[v.due[i].key]:
		return v.due[i].bucket
	}
	a, b := v.uncrowded(2*i+1), v.uncrowded(2*i+2)
	if a == nil || b != nil && (dueBucket{b}).before(dueBucket{a}) {
		return b
	}
	return a
}

// refused takes that a worker with room refused a bucket.
func (c *claims) refused(key queue.Key) {
	if c.crowded == nil {
		c.crowded = map[queue.Key]bool{}
	}
	c.crowded[key] = true
}

// fits reports whether a worker that claimed for one bucket may be given to another, whose turn it is now. Workers refuse
// a bucket that runs very much, as one does whose target hangs, and it must not get them under another's name.
func (t nextTurn) fits(b *bucket) bool {
	return t.key == b.key || !t.alone && b.running <= t.running+1
}

// offer asks for workers elsewhere when buckets are due, or will be soon, and no local worker may take them.
func (v *valve) offer(now instant) {
	c := &v.claims
	if v.free() > 0 {
		c.declined = false
	}
	if c.wakeAt = c.nextAt; now < c.nextAt {
		return
	}
	var wanted int
	wanted, c.wakeAt = v.wanted(now)
	for range min(wanted, mostOffers) - c.offering - len(c.held) {
		c.offering++
		v.out.offers = append(v.out.offers, v.policy.Name)
	}
}

// wanted is how many workers elsewhere could be used now or soon, and when more of them will be.
func (v *valve) wanted(now instant) (n int, next instant) {
	next = never
	if v.free() > 0 && len(v.due) == 0 {
		return 0, next
	}
	soon := now.add(ahead)
	if v.breaker.open {
		switch {
		case len(v.due) == 0:
			return 0, next
		case v.breaker.due() > soon:
			return 0, v.breaker.due().add(-ahead)
		}
		return 1, next
	}
	if v.total != nil && len(v.due) > 0 {
		at := now
		if !v.admits(now) {
			at = v.gateAt
		}
		if at > soon {
			return 0, at.add(-ahead)
		}
		return 1 + int(soon.since(at)/v.total.interval), next
	}
	n = len(v.due)
	for _, b := range v.sched[:min(len(v.sched), mostLooks)] {
		switch {
		case len(b.ready) == 0:
		case b.nextAt > soon:
			next = min(next, b.nextAt.add(-ahead))
		case b.pace == nil:
			n++
		default:
			n += 1 + min(len(b.ready)-1, int(soon.since(b.nextAt)/b.pace.interval))
		}
	}
	return n, next
}

// offered takes the end of an offer.
func (v *valve) offered(result offerResult, now instant) {
	v.claims.offering--
	if result == offerClaimed {
		clear(v.claims.crowded)
	}
	v.claims.declined, v.claims.nobody = result != offerClaimed, result == offerNobody
	switch result {
	case offerBusy:
		v.claims.nextAt = now.add(busyPause)
	case offerNobody:
		v.claims.nextAt = now.add(nobodyPause)
	}
	v.claims.wakeAt = now
}

// serve gives jobs that are due to workers elsewhere that wait for one.
func (v *valve) serve(now instant) {
	c := &v.claims
	for len(v.due) > 0 && len(c.held) > 0 && v.admits(now) {
		b, i := v.match()
		if b == nil {
			return
		}
		worker := c.held[i].worker
		c.held = slices.Delete(c.held, i, i+1)
		v.out.lent = append(v.out.lent, lent{v.start(b, now, true), worker})
	}
}

// match finds who gets a job from which claim: the bucket whose turn it is, if a claim fits it, else one that a worker claimed
// for alone.
func (v *valve) match() (b *bucket, claim int) {
	held := v.claims.held
	fitting := func(b *bucket) int {
		return slices.IndexFunc(held, func(c claimed) bool { return c.turn.fits(b) })
	}
	b = v.nextDue(func(b *bucket) bool { return fitting(b) >= 0 })
	if i := fitting(b); i >= 0 {
		return b, i
	}
	for i, c := range held {
		for _, p := range v.parts {
			if b := p.buckets[c.turn.key]; c.turn.alone && b != nil && b.spot == spotDue {
				return b, i
			}
		}
	}
	return nil, 0
}

// expire tells workers elsewhere that have waited too long that there is no job for them, or all of them.
func (v *valve) expire(now instant, all bool) {
	c := &v.claims
	n := 0
	for n < len(c.held) && (all || c.held[n].until <= now) {
		v.out.refusals = append(v.out.refusals, c.held[n].worker)
		n++
	}
	c.held = slices.Delete(c.held, 0, n)
}

// wake is when the next offer may be made, or a claim expires.
func (c *claims) wake() instant {
	at := c.wakeAt
	if len(c.held) > 0 {
		at = min(at, c.held[0].until)
	}
	return at
}

// free is how many local workers have nothing to do.
func (v *valve) free() int {
	if !v.local {
		return 0
	}
	return v.policy.Workers - v.busy - v.lent
}

// lend takes a local worker for another drainer's valve.
func (v *valve) lend() bool {
	if v.free() <= 0 {
		return false
	}
	v.lent++
	return true
}
