// Package crew knows who can run a valve's jobs, and who does: local workers, which several valves
// may share, and workers of other processes. To these the valve offers a start slightly ahead of
// it, and each one that claims gets the next job. Offers carry no job, because a silent worker
// would delay it.
package crew

import (
	"iter"
	"maps"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/claimant"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Crew runs a valve's jobs, of type J.
type Crew[J any] struct {
	*Workers

	Claimants claimant.Set[J]
	claims    claimant.Queue[J] // of workers elsewhere
	numbers   uint64            // of claims
	Declined  bool              // the last offer was not claimed
	nobody    bool              // no worker answered it
	nextAt    pace.Instant      // next offer
	wakeAt    pace.Instant      // when demand may have grown

	runs  map[uint64]Run[J] // by number, here and elsewhere
	given uint64            // last run number
}

// Run is a job that was started.
type Run[J any] struct {
	Of      J
	Attempt int
	local   bool
	worker  *claimant.Claimant[J] // in another process; nil: a local one, or a caller
}

// Claim is a worker's claim for the first job that is in no excepted bucket.
type Claim struct {
	Worker string
	Except []queue.Key // of which it runs too many jobs for its free places
	Until  pace.Instant
}

type Offered uint8

const (
	OfferClaimed Offered = iota // the claim may have been refused
	OfferBusy
	OfferNobody
)

const (
	// HoldFor leaves time for the answer to a worker's claim.
	HoldFor    = job.ClaimWindow - 10*time.Millisecond
	mostOffers = 8
	// busyPause follows an offer when no worker had room, nobodyPause one without an answer.
	busyPause   = 20 * time.Millisecond
	nobodyPause = 250 * time.Millisecond
)

// New returns a crew with workers of its own.
func New[J any](workers int) Crew[J] {
	return Crew[J]{Workers: &Workers{Most: workers, Slots: &Slots{}}, runs: map[uint64]Run[J]{}}
}

// Running counts running jobs, here and elsewhere, also other drainers' here.
func (c *Crew[J]) Running() int { return c.Busy + c.Reserved + c.Claimants.Working }

// Lacks returns why no worker takes a job.
func (c *Crew[J]) Lacks() gates.Reason {
	if !c.Local && c.nobody {
		return gates.ByNoWorker
	}
	return gates.ByWorkersBusy
}

// SetOf makes a set of buckets: a worker may list thousands.
func SetOf(keys []queue.Key) map[queue.Key]bool {
	set := make(map[queue.Key]bool, len(keys))
	for _, key := range keys {
		set[key] = true
	}
	return set
}

func (c *Crew[J]) Claim(asked Claim) {
	var none J
	k := claimant.New(none, &c.claims)
	c.numbers++
	k.Worker, k.Except, k.Seq = asked.Worker, SetOf(asked.Except), c.numbers
	c.Claimants.Take(k, claimant.Claim, asked.Until)
}

// Claims returns the workers' claims, the first one first.
func (c *Crew[J]) Claims() *claimant.Queue[J] { return &c.claims }

// Offered takes the result of an offer.
func (c *Crew[J]) Offered(result Offered, now pace.Instant) {
	c.Claimants.Offers--
	c.Declined, c.nobody = result != OfferClaimed, result == OfferNobody
	switch result {
	case OfferBusy:
		c.nextAt = now.Add(busyPause)
	case OfferNobody:
		c.nextAt = now.Add(nobodyPause)
	}
	c.wakeAt = now
}

// Rests reports whether no start is offered to workers elsewhere now. Demand may grow at next.
func (c *Crew[J]) Rests(next, now pace.Instant) bool {
	if c.Free() > 0 {
		c.Declined = false
	}
	c.wakeAt = next
	if now < c.nextAt {
		c.wakeAt = min(next, c.nextAt)
	}
	return now < c.nextAt
}

// Offer returns how many offers to make for a number of starts that are near, which may grow at
// next.
func (c *Crew[J]) Offer(starts int, next pace.Instant) (offers int) {
	c.wakeAt = min(c.wakeAt, next)
	offers = max(0, min(starts, mostOffers)-c.Claimants.Offers-c.claims.Len())
	c.Claimants.Offers += offers
	return offers
}

// Begin counts a run by a claimant, by the job's own caller, or else by a local worker.
func (c *Crew[J]) Begin(of J, attempt int, by *claimant.Claimant[J], caller bool) (number uint64) {
	r := Run[J]{Of: of, Attempt: attempt, local: by == nil && !caller, worker: by}
	if by != nil {
		c.Claimants.Take(by, claimant.Start, pace.Never)
	}
	if r.local {
		c.Busy++
		c.Slots.Used++
	}
	c.given++
	c.runs[c.given] = r
	return c.given
}

// End ends a run, and frees its worker. cameBack: it did not begin.
func (c *Crew[J]) End(number uint64, cameBack bool) (r Run[J], known bool) {
	if r, known = c.runs[number]; !known {
		return r, false
	}
	delete(c.runs, number)
	switch {
	case r.local:
		c.Busy--
		c.Slots.Used--
	case r.worker != nil:
		event := claimant.Pass
		if cameBack {
			event = claimant.Return
		}
		c.Claimants.Take(r.worker, event, pace.Never)
		c.Claimants.Take(r.worker, claimant.Settle, pace.Never)
	}
	return r, true
}

// Run returns a run by its number.
func (c *Crew[J]) Run(number uint64) (r Run[J], known bool) {
	r, known = c.runs[number]
	return r, known
}

// Runs returns them all, by number.
func (c *Crew[J]) Runs() iter.Seq2[uint64, Run[J]] { return maps.All(c.runs) }

// Idle reports whether there is no run, also of another drainer's job here, and no claim or offer.
func (c *Crew[J]) Idle() bool {
	return len(c.runs)+c.Reserved+c.claims.Len()+c.Claimants.Offers == 0
}

// Wake returns when a claimant falls silent or, if starts are allowed, demand may have grown.
func (c *Crew[J]) Wake(open bool) pace.Instant {
	if open {
		return min(c.Claimants.Wake(), c.wakeAt)
	}
	return c.Claimants.Wake()
}
