package pace

import (
	"math"
	"time"
)

// Average is an exponentially weighted average of a bucket's starts per second.
type Average struct {
	perSecond float32
	last      Instant // 0: never
	since     Instant
}

func Averaged(perSecond float64, at Instant) Average {
	return Average{float32(perSecond), at, at.Add(-Forever)}
}

// Few is the usual shortest averaging time.
const Few = 5 * time.Second

// over returns the averaging time at a pace, for slow buckets three intervals.
func over(p *Pace, least time.Duration) time.Duration {
	if p == nil {
		return least
	}
	return max(least, min(3*p.Interval, time.Hour))
}

func faded(after, memory time.Duration) float64 {
	return math.Exp(-after.Seconds() / memory.Seconds())
}

func (a *Average) Count(p *Pace, least time.Duration, now Instant) {
	over := over(p, least)
	if a.last == 0 {
		a.last, a.since = now, now
		if p != nil {
			// Each start represents half an interval on either side.
			a.since = now.Add(-min(p.Interval, over) / 2)
		}
	}
	a.perSecond = a.perSecond*float32(faded(now.Since(a.last), over)) + float32(1/over.Seconds())
	a.last = now
}

// Now returns the average to three digits, over the time since the first start at most.
func (a *Average) Now(p *Pace, least time.Duration, now Instant) float64 {
	if a.last == 0 {
		return 0
	}
	over := over(p, least)
	seen := 1 - faded(max(time.Second, now.Since(a.since)), over)
	perSecond := float64(a.perSecond) * faded(now.Since(a.last), over) / seen
	if perSecond < 1e-6 {
		return 0
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(perSecond)))
	return math.Round(perSecond*scale) / scale
}

// Told returns until when an average is meaningful; 0: never.
func (a *Average) Told(p *Pace) Instant {
	if a.last == 0 {
		return 0
	}
	return a.last.Add(2 * over(p, Few))
}
