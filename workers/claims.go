package workers

import "time"

// claims is how a valve finds workers in other processes: it offers, which says only that a job is due; a worker with room
// claims; and then the job is picked whose turn it is at that moment.
type claims struct {
	offering int     // offers that have no answer yet
	running  int     // jobs that run elsewhere
	nextAt   instant // no offer before it
}

const (
	// mostOffers is how many offers of one policy are open at once.
	mostOffers = 8
	// busyPause is the wait after an answer that a worker had no room, nobodyPause after there was none.
	busyPause   = 20 * time.Millisecond
	nobodyPause = 250 * time.Millisecond
)

// offerResult is how an offer ended.
type offerResult uint8

const (
	offerClaimed offerResult = iota // the claim was passed on, whatever became of it
	offerBusy                       // or no answer in time
	offerNobody
)

// offer asks for workers elsewhere when buckets are due and no local worker may take them.
func (v *valve) offer(now instant) {
	if now < v.claims.nextAt {
		return
	}
	for range min(len(v.due), mostOffers) - v.claims.offering {
		v.claims.offering++
		v.out.offers = append(v.out.offers, v.policy.Name)
	}
}

// wake is when the next offer may be made.
func (c *claims) wake(due bool) instant {
	if !due || c.offering > 0 {
		return never
	}
	return c.nextAt
}

// offered takes the end of an offer.
func (v *valve) offered(result offerResult, now instant) {
	v.claims.offering--
	switch result {
	case offerBusy:
		v.claims.nextAt = now.add(busyPause)
	case offerNobody:
		v.claims.nextAt = now.add(nobodyPause)
	}
}

// claimed starts a job for a worker elsewhere, if there is still one that may start.
func (v *valve) claimed(now instant) (run, bool) {
	if len(v.due) == 0 || !v.totalReady(now) {
		return run{}, false
	}
	return v.start(v.due[0].bucket, now, true), true
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
