package valve

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// claims finds workers in other processes: the valve offers work slightly ahead, and each claim
// gets the next job. Offers carry no job, because a silent worker would delay it.
type claims struct {
	offering int // unanswered offers
	declined bool
	nobody   bool // no worker answered
	running  int
	nextAt   pace.Instant // next offer
	wakeAt   pace.Instant // when demand may have grown
	held     []Claim
}

// Claim is a worker's claim for the first job that is in no excepted bucket.
type Claim struct {
	Worker string
	Except []job.Key // of which it runs too many jobs for its free places
	Until  pace.Instant

	except map[job.Key]bool
}

const (
	// ClaimWindow is the life of a claim: for the valve from its offer, for the worker, which stays
	// idle meanwhile, from its claim.
	ClaimWindow = 50 * time.Millisecond
	mostOffers  = 8
	// busyPause follows an offer when no worker had room, nobodyPause one without an answer.
	busyPause   = 20 * time.Millisecond
	nobodyPause = 250 * time.Millisecond
	// ahead is the time before a start when the search for a worker begins.
	ahead = 20 * time.Millisecond
	// HoldFor leaves time for the answer to a claim.
	HoldFor = ClaimWindow - 10*time.Millisecond
)

type OfferResult uint8

const (
	OfferClaimed OfferResult = iota // the claim may have been refused
	OfferBusy
	OfferNobody
)

// Fits reports whether a job that is due, or soon will be, is in no excepted bucket.
func (v *Valve) Fits(except []job.Key) bool {
	if len(except) == 0 {
		return true
	}
	c := Claim{Except: except}
	c.exceptions()
	if v.firstDue(0, c.fits) != nil {
		return true
	}
	soon := v.acted.Add(HoldFor)
	return slices.ContainsFunc(v.sched[:min(len(v.sched), mostLooks)],
		func(b scheduledBucket) bool {
			return b.nextAt <= soon && b.queued() > 0 && c.fits(b.bucket)
		})
}

func (v *Valve) Claimed(c Claim) {
	c.exceptions()
	v.claims.held = append(v.claims.held, c)
}

// exceptions makes a set of them: a worker may list thousands.
func (c *Claim) exceptions() {
	c.except = make(map[job.Key]bool, len(c.Except))
	for _, key := range c.Except {
		c.except[key] = true
	}
}

func (c *Claim) fits(b *bucket) bool { return !c.except[b.key] }

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

func (v *Valve) wanted(now pace.Instant) (n int, next pace.Instant) {
	next = pace.Never
	if v.Free() > 0 && len(v.due) == 0 {
		return 0, next
	}
	soon := now.Add(ahead)
	if v.breaker.open && len(v.due) == 0 {
		return 0, next
	}
	if (v.breaker.open || v.takesTurns()) && len(v.due) > 0 {
		v.admits(now)
		switch at := max(now, v.all.until); {
		case at > soon:
			return 0, at.Add(-ahead)
		case v.breaker.open:
			return 1, next
		default:
			return 1 + int(soon.Since(at)/max(v.turnEvery(), 1)), next
		}
	}
	n = len(v.due)
	for _, b := range v.sched[:min(len(v.sched), mostLooks)] {
		switch {
		case len(b.ready) == 0, b.callNext() && b.queued() == 1:
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

func (v *Valve) Offered(result OfferResult, now pace.Instant) {
	v.claims.offering--
	v.claims.declined, v.claims.nobody = result != OfferClaimed, result == OfferNobody
	switch result {
	case OfferBusy:
		v.claims.nextAt = now.Add(busyPause)
	case OfferNobody:
		v.claims.nextAt = now.Add(nobodyPause)
	}
	v.claims.wakeAt = now
	if v.claims.declined {
		v.againForCalls(now)
	}
}

// match pairs a claim with the first bucket in turn that it fits, or returns nil.
func (v *Valve) match() (b *bucket, claim int) {
	fitting := func(b *bucket) int {
		return slices.IndexFunc(v.claims.held, func(c Claim) bool { return c.fits(b) })
	}
	if b = v.nextDue(func(b *bucket) bool { return fitting(b) >= 0 }); b != nil {
		claim = fitting(b)
	}
	return b, claim
}

func (v *Valve) refuseLate(now pace.Instant, all bool) {
	c := &v.claims
	n := 0
	for n < len(c.held) && (all || c.held[n].Until <= now) {
		v.out.Refusals = append(v.out.Refusals, c.held[n].Worker)
		n++
	}
	c.held = slices.Delete(c.held, 0, n)
}

func (c *claims) wake() pace.Instant {
	at := c.wakeAt
	if len(c.held) > 0 {
		at = min(at, c.held[0].Until)
	}
	return at
}
