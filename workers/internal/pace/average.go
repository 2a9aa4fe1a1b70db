package pace

import (
	"math"
	"time"
)

// Average is how many jobs a bucket has started per second lately: an average over all time with
// exponentially falling weights.
//
// Three numbers for each bucket are all that this takes, where a list of starts would grow with the
// rate.
type Average struct {
	perSecond float32 // before last
	last      Instant // start; 0: never
	since     Instant // before the first start that it counts
}

// Averaged is what an average was when it was told.
func Averaged(perSecond float64, at Instant) Average {
	return Average{float32(perSecond), at, at.Add(-Forever)}
}

// few is the least time over which starts are averaged.
const few = 5 * time.Second

// memory is the time over which the starts at a pace are averaged.
//
// A bucket of one job an hour has no rate to speak of in five seconds, so slow ones are averaged
// over three of their intervals.
func memory(p *Pace, least time.Duration) time.Duration {
	if p == nil {
		return least
	}
	return max(least, min(3*p.Interval, time.Hour))
}

// faded is what is left of a weight after some time.
func faded(after, memory time.Duration) float64 {
	return math.Exp(-after.Seconds() / memory.Seconds())
}

// Count notes a start at a pace, which is nil for a bucket without one.
func (a *Average) Count(p *Pace, now Instant) { a.count(p, memory(p, few), now) }

// CountMinute is Count for an average over a minute at least.
func (a *Average) CountMinute(p *Pace, now Instant) { a.count(p, memory(p, time.Minute), now) }

func (a *Average) count(p *Pace, over time.Duration, now Instant) {
	if a.last == 0 {
		a.last, a.since = now, now
		if p != nil {
			// each start stands for half an interval before it, and half a one after it
			a.since = now.Add(-min(p.Interval, over) / 2)
		}
	}
	a.perSecond = a.perSecond*float32(faded(now.Since(a.last), over)) + float32(1/over.Seconds())
	a.last = now
}

// Now returns the average to three digits, also of ten a day: over so much of the memory as has
// been since its first start.
//
// Without that a bucket would seem slow until its memory is full, which takes an hour where it is
// slow.
func (a *Average) Now(p *Pace, now Instant) float64 { return a.over(memory(p, few), now) }

// NowMinute is Now for an average over a minute at least.
func (a *Average) NowMinute(p *Pace, now Instant) float64 {
	return a.over(memory(p, time.Minute), now)
}

func (a *Average) over(over time.Duration, now Instant) float64 {
	if a.last == 0 {
		return 0
	}
	seen := 1 - faded(max(time.Second, now.Since(a.since)), over)
	perSecond := float64(a.perSecond) * faded(now.Since(a.last), over) / seen
	if perSecond < 1e-6 {
		return 0
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(perSecond)))
	return math.Round(perSecond*scale) / scale
}

// Told is until when an average says something; 0: it never did.
func (a *Average) Told(p *Pace) Instant {
	if a.last == 0 {
		return 0
	}
	return a.last.Add(2 * memory(p, few))
}
