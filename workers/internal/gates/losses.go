package gates

import (
	"math"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Losses are the time that a policy's paced buckets lost, by reason, and how many wait for limits.
type Losses struct {
	left struct { // last time that due buckets had to wait, and why
		by Reason
		at pace.Instant
	}
	lost    [reasons]time.Duration // since the last TakeLost
	holding map[string]int         // waiting buckets by start limit
}

// Lateness is what a bucket lost. It is a value, because most buckets lose nothing.
type Lateness struct {
	Limit     string        // that holds the bucket, paced or not
	Behind    time.Duration // that is not made up
	hold      Reason        // what holds the bucket
	since     pace.Instant  // since when its rate allows a start
	limited   pace.Instant
	limitedBy Reason
	lost      *lost
}

// lost has decaying sums of lost time by reason.
type lost struct {
	last    pace.Instant
	seconds [reasons]float32
}

const lostMemory = time.Minute

func (l *lost) fade(now pace.Instant) {
	faded := float32(math.Exp(-now.Since(l.last).Seconds() / lostMemory.Seconds()))
	for c := range l.seconds {
		l.seconds[c] *= faded
	}
	l.last = now
}

// faded returns the decayed sum of a loss of d that ends now.
func faded(d time.Duration) float32 {
	return float32(-lostMemory.Seconds() * math.Expm1(-d.Seconds()/lostMemory.Seconds()))
}

func (ls *Losses) note(l *Lateness, by Reason, d time.Duration, now pace.Instant) {
	if d <= 0 {
		return
	}
	if l.lost == nil {
		l.lost = &lost{last: now}
	}
	l.lost.fade(now)
	l.lost.seconds[by] += faded(d)
	ls.lost[by] += d
}

// Wait records which start limit a bucket waits for.
func (ls *Losses) Wait(l *Lateness, limit string) {
	if l.Limit == limit {
		return
	}
	if ls.holding == nil {
		ls.holding = map[string]int{}
	}
	if ls.holding[l.Limit]--; ls.holding[l.Limit] <= 0 {
		delete(ls.holding, l.Limit)
	}
	if l.Limit = limit; limit != "" {
		ls.holding[limit]++
	}
}

// Is reports whether it has noted a hold.
func (l *Lateness) Is(h Hold, paced bool, now pace.Instant) bool {
	switch {
	case h.Until <= now:
		return l.Limit == "" && (!paced || l.hold == None)
	case h.By == ByRate:
		return l.Limit == "" && l.hold == None
	}
	return h.By == l.hold && h.Limit == l.Limit && !h.passes()
}

// Note records what holds a bucket with waiting jobs.
func (ls *Losses) Note(l Lateness, h Hold, p *pace.Pace, c *pace.Clock, now pace.Instant) Lateness {
	if h.Until <= now {
		h = Hold{}
	}
	ls.Wait(&l, h.Limit)
	switch {
	case p == nil:
		return l
	case h.passes():
		l.limited, l.limitedBy, h.By = h.Until, h.By, None
	case h.By == ByRate:
		h.By = None
	}
	if h.By == l.hold {
		return l
	}
	if l.hold != None {
		ls.note(&l, l.hold, now.Since(l.since), now)
	}
	l.hold, l.since = h.By, max(now, p.Next(c))
	return l
}

// Missed records a loss since an instant; 0: there was no start. Call it before the clock is held.
func (ls *Losses) Missed(l Lateness, by Reason, p *pace.Pace, c *pace.Clock,
	since, now pace.Instant) Lateness {
	if p != nil && since > 0 && l.hold == None {
		ls.note(&l, by, now.Since(max(since, p.Next(c))), now)
	}
	return l
}

// Started records how late a start is that was due at an instant, before it takes its slot.
func (ls *Losses) Started(l *Lateness, p *pace.Pace, c *pace.Clock, due, now pace.Instant) {
	if p == nil {
		return
	}
	behind := now.Since(c.Due)
	switch more := behind - l.Behind; {
	case more > pace.Tolerance:
		since := now.Add(-more)
		if l.limited > since {
			limited := l.limited.Since(since)
			if more -= limited; more <= pace.Tolerance {
				limited, more = limited+more, 0
			}
			ls.note(l, l.limitedBy, limited, now)
			since = l.limited
		}
		ls.note(l, ls.why(max(since, due)), more, now)
	case more > 0:
		return
	}
	l.Behind = behind
}

func (ls *Losses) why(since pace.Instant) Reason {
	if ls.left.by != None && ls.left.at >= since {
		return ls.left.by
	}
	return ByProcessor
}

// Left records why due buckets still wait.
func (ls *Losses) Left(by Reason, now pace.Instant) { ls.left.by, ls.left.at = by, now }

// By returns the ms that a bucket lost by reason, and in total without what is meant. due is since
// when it only lacks a worker, or Never; while nothing may start, that is for want of storage.
func (ls *Losses) By(l Lateness, p *pace.Pace, c *pace.Clock, due pace.Instant, open bool,
	now pace.Instant) (by map[string]int64, total int64) {
	var sum lost
	if l.lost != nil {
		sum = *l.lost
		sum.fade(now)
	}
	reason, since := l.hold, l.since
	if reason == None && l.limited > now {
		reason, since = l.limitedBy, p.Next(c)
	}
	if reason == None && due < pace.Never {
		if reason, since = ls.why(due), due; !open {
			reason = ByStorage
		}
	}
	sum.seconds[reason] += faded(max(0, now.Since(since)))
	for r := None + 1; r < reasons; r++ {
		ms := int64(sum.seconds[r] * 1000)
		if !meant[r] {
			total += ms
		}
		if ms > 0 && by == nil {
			by = map[string]int64{}
		}
		if ms > 0 {
			by[names[r]] = ms
		}
	}
	return by, total
}

// EachHeld tells how many buckets wait for each start limit.
func (ls *Losses) EachHeld(tell func(limit string, buckets int)) {
	for limit, buckets := range ls.holding {
		tell(limit, buckets)
	}
}

func (ls *Losses) TakeLost(tell func(cause string, lost time.Duration)) {
	for by, lost := range ls.lost {
		if lost > 0 {
			tell(names[by], lost)
			ls.lost[by] = 0
		}
	}
}
