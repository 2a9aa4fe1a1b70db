// Package pace decides when a bucket may start its next job, and holds the proof that law 2 of
// DESIGN.md is kept by it. It counts starts as well, and knows neither jobs nor wall clocks.
package pace

import (
	"cmp"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

// Instant is a reading of a process's own clock: nanoseconds since its drainer was made, those
// included in which the machine slept. What is decided by instants compares with no other process.
type Instant int64

// Never is an instant that does not come.
const Never = Instant(math.MaxInt64)

// Add returns the instant d after t.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Later is Add for a duration from outside, such as the distance of a date: it does not overflow.
func (t Instant) Later(d time.Duration) Instant { return t.Add(min(d, Forever)) }

// Since returns how long t is after other.
func (t Instant) Since(other Instant) time.Duration { return time.Duration(t - other) }

// Law 2 of DESIGN.md allows peak·(T + 2 ms) + burst starts in a window of T ≥ 1 s. That is a
// budget, and a clock spends it on two things:
//
//   - tolerance: so long may a start be late and its lateness be made up at once.
//   - sped: so much faster than the outflow a bucket runs that is later than that.
//
// In windows of T the starts are at most sped·(T + tolerance) + burst, by the proof at [Clock]. The
// least generous window is T = 1 s. There the two share what the peak has above the outflow, as
// sped·(1 s + tolerance) = peak·(1 s + 2 ms); longer windows are no tighter as long as sped is at
// most the peak, which it is when the tolerance is 2 ms or more.
//
// With the default peak, 1.25 % above the outflow, 14.5 ms of a second's starts can be spent: 10 ms
// go to the tolerance, and the rest makes a bucket 0.45 % faster while it is late. With a peak
// equal to the outflow all there is are the 2 ms, for timers are late; nothing else is made up.
const (
	// slack is what law 2 leaves beside the peak.
	slack = 2 * time.Millisecond
	// Tolerance is the largest tolerance, which there is with the default peak.
	Tolerance = 10 * time.Millisecond
	// mostLateness is the lateness that is remembered to be made up.
	mostLateness = 10 * time.Second
)

// Pace is the rate of a policy's buckets in the form that clocks need.
type Pace struct {
	Rate     algorithms.Rate
	Peak     float64 // starts per second while making up for lateness, at most
	Burst    int64
	peak     float64
	Interval time.Duration // between two starts at the rate, rounded up
	short    time.Duration // between two starts while making up for lateness, rounded up
	Credit   time.Duration // what idleness can earn: (burst − 1) intervals
	envelope time.Duration // the same in short intervals, and the tolerance
}

// New returns nil for the zero rate: jobs start unpaced. The peak is given as a multiple of the
// rate, at least 1.
func New(rate algorithms.Rate, peak float64, burst int64) *Pace {
	if rate.IsZero() {
		return nil
	}
	burst = max(burst, 1)
	interval := rate.Interval()
	most := peak * (time.Second + slack).Seconds() // starts of one second, in those of the rate
	// A third of what the peak has above the rate is for speed, or the tolerance would be all there
	// is, and what is later than it would never be made up.
	above := time.Duration((most - 1) * float64(time.Second))
	tolerance := slack + min(Tolerance-slack, max(0, above-slack)*2/3)
	short := float64(rate.Per) / float64(rate.Count) * (time.Second + tolerance).Seconds() / most
	p := &Pace{
		Rate:     rate,
		Peak:     peak * rate.PerSecond(),
		Burst:    burst,
		peak:     peak,
		Interval: interval,
		short:    time.Duration(math.Ceil(short)),
		Credit:   Times(burst-1, interval),
	}
	p.envelope = Times(burst-1, p.short) + tolerance
	return p
}

// Clock says when one bucket's next job may start. It keeps two schedules and obeys the later one.
// The zero clock is a bucket that has been idle for ever.
//
//   - due is the schedule of the configured rate. Each start moves it on by exactly one interval,
//     however late the start was, so lateness is made up. Idleness moves it forward: it earns burst
//     − 1 intervals and no more.
//   - tat is the theoretical arrival time of a generic cell rate algorithm (ITU-T I.371) that is
//     sped. It is what bounds the clump in which lateness is made up.
//
// tat is kept twice. What started says of it is the law: whoever starts a job takes its slot there
// at the instant of the start ([Clock.Start]), so that it does not matter how long a job was on its
// way to its worker. What was planned says of it is what the valve decides by: there each job takes
// its slot when it is decided ([Pace.Take]), since the next is decided before it starts. A plan
// that was too hopeful, because the machine was busy, costs a start that comes back.
//
// Law 2 follows for a clock that nothing else changes. Let starts at t₁ ≤ … ≤ tₙ in a window of T
// cost c₁ … cₙ. The first moves tat to t₁ + c₁·short or later, each further one by its cost·short.
// The last passed, so that tₙ ≥ tat − envelope: (c₁ + … + cₙ₋₁)·short ≤ T + envelope, or c₁ + … +
// cₙ₋₁ ≤ sped·(T + tolerance) + burst − 1. With costs of 1 that is n ≤ sped·(T + tolerance) +
// burst. A hold moves tat on only, to where a start at its instant is the first of its own, so that
// it is in the place of the starts of somebody else before it: they moved their tat no further than
// one interval and the envelope after their last start.
type Clock struct {
	Due      Instant
	fraction int64        // of due, in 1/Count ns
	Tat      Instant      // as planned
	started  atomic.Int64 // tat as started
	// the pace by which starts go, nil: unpaced; whoever decided them, they obey that of now
	pace atomic.Pointer[Pace]
}

// TAT returns the theoretical arrival time, as planned or as started, whichever is later.
func (c *Clock) TAT() Instant { return max(c.Tat, Instant(c.started.Load())) }

// Next returns when a start is allowed.
func (p *Pace) Next(c *Clock) Instant {
	return max(c.Due, c.TAT().Add(-p.envelope))
}

// Take plans a start: it spends its slots.
func (p *Pace) Take(c *Clock, now Instant, cost int64) {
	c.pace.Store(p)
	c.Tat = max(c.TAT(), now).Add(Times(cost, p.short))
	c.Due = max(c.Due, now.Add(-mostLateness-p.Credit))
	p.advance(c, cost)
}

// May reports whether a start that was planned may happen at now, as far as what has started goes.
func (c *Clock) May(now Instant) bool {
	p := c.pace.Load()
	return p == nil || now >= Instant(c.started.Load()).Add(-p.envelope)
}

// Start reports whether a start that was planned may happen at now, and takes its slots if it may.
// It may be called beside the valve, and by several at once.
func (c *Clock) Start(now Instant, cost int64) bool {
	for {
		tat, p := c.started.Load(), c.pace.Load()
		switch {
		case p == nil:
			return true
		case now < Instant(tat).Add(-p.envelope):
			return false
		}
		if next := max(Instant(tat), now).Add(Times(cost, p.short)); c.started.CompareAndSwap(tat,
			int64(next)) {
			return true
		}
	}
}

// move changes what has started, while others may start.
func (c *Clock) move(to func(tat Instant) Instant) {
	for {
		tat := c.started.Load()
		if c.started.CompareAndSwap(tat, int64(to(Instant(tat)))) {
			return
		}
	}
}

// Reset makes the clock that of a bucket which has been idle for ever.
func (c *Clock) Reset() { c.Set(0, 0) }

// Set sets a clock to what is known of another, and what has started to what was planned there.
func (c *Clock) Set(due, tat Instant) {
	c.pace.Store(nil) // until the next that is planned
	c.Due, c.fraction, c.Tat = due, 0, tat
	c.started.Store(int64(tat))
}

// advance moves due on by cost intervals without losing a fraction of a nanosecond.
func (p *Pace) advance(c *Clock, cost int64) {
	high, low := bits.Mul64(uint64(cost), uint64(p.Rate.Per))
	low, carry := bits.Add64(low, uint64(c.fraction), 0)
	count := uint64(p.Rate.Count)
	if high += carry; high >= count {
		c.Due, c.fraction = c.Due.Add(Forever), 0
		return
	}
	whole, rest := bits.Div64(high, low, count)
	c.Due, c.fraction = c.Due.Add(time.Duration(min(whole, uint64(Forever)))), int64(rest)
}

// Forever is the longest wait that a clock can express; instants plus forever do not overflow.
const Forever = 100 * 365 * 24 * time.Hour

// Longest is a configured limit on waiting as a duration that can be added to instants.
func Longest(d policy.Duration) time.Duration { return min(time.Duration(d), Forever) }

// Times is n·d, at most Forever.
func Times(n int64, d time.Duration) time.Duration {
	if d > 0 && n > int64(Forever/d) {
		return Forever
	}
	return time.Duration(n) * d
}

// Spare gives the slots of a start that did not happen back.
func (p *Pace) Spare(c *Clock, cost int64) {
	c.Due = c.Due.Add(-Times(cost, p.Interval))
	c.Tat = c.Tat.Add(-Times(cost, p.short))
}

// Wake is called when a bucket has work again after it had none or was held back by its
// concurrency.
func (p *Pace) Wake(c *Clock, now Instant) {
	if earned := now.Add(-p.Credit); c.Due < earned {
		c.Due, c.fraction = earned, 0
	}
}

// Hold is called when a bucket may start again at t after a cool-down, a takeover or a lost lease:
// opening is no burst.
func (p *Pace) Hold(c *Clock, t Instant) {
	if c.Due < t {
		c.Due, c.fraction = t, 0
	}
	c.Tat = max(c.Tat, t.Add(p.envelope))
	c.move(func(tat Instant) Instant { return max(tat, t.Add(p.envelope)) })
}

// Adapt fits a clock to a pace that was another before. What is still to be waited for are slots:
// where those have become shorter, so does the wait. Over a change the larger rate and burst count,
// so that no wait becomes longer: tat is ahead by the burst that it leaves room for, and loses what
// a smaller one leaves no room for.
func (p *Pace) Adapt(c *Clock, before *Pace, now Instant) {
	c.pace.Store(p)
	c.fraction = min(c.fraction, p.Rate.Count-1)
	if fewer := before.Burst - p.Burst; fewer > 0 {
		lower := func(tat Instant) Instant {
			return max(min(tat, now), tat.Add(-Times(fewer, before.short)))
		}
		c.Tat = lower(c.Tat)
		c.move(lower)
	}
	if before.Interval > p.Interval {
		p.stretch(c, before, now)
	}
}

// stretch keeps the slots that are still to be waited for, which become longer or shorter.
func (p *Pace) stretch(c *Clock, before *Pace, now Instant) {
	stretched := func(t Instant) Instant {
		if t <= now {
			return t
		}
		by := float64(p.Interval) / float64(before.Interval)
		return now.Add(time.Duration(
			math.Ceil(min(float64(t.Since(now))*by, float64(Forever)))))
	}
	c.Due, c.Tat = stretched(c.Due), stretched(c.Tat)
	c.move(stretched)
}

// At is the pace at another rate, in starts per second, with the same burst and ratio of the peak.
func (p *Pace) At(perSecond float64) *Pace {
	const count = 1000
	per := time.Duration(min(count/perSecond*float64(time.Second), float64(Forever)))
	return New(algorithms.Rate{Count: count, Per: max(per, 1)}, p.peak, p.Burst)
}

// Refit fits a clock to a pace that was another before, of the same burst. What is still to be
// waited for are slots, as many as before, whether they have become longer or shorter. So a clock
// that is refitted any number of times starts no more than one that was at the fastest of its paces
// all the time: in slots, what is ahead of now shrinks by time alone, and at that pace the fastest.
//
// A start that is decided beside it meets the old pace with the longer wait, or waits for longer.
func (p *Pace) Refit(c *Clock, before *Pace, now Instant) {
	slower := p.Interval > before.Interval
	if slower {
		p.stretch(c, before, now)
	}
	c.pace.Store(p)
	c.fraction = min(c.fraction, p.Rate.Count-1)
	if !slower {
		p.stretch(c, before, now)
	}
}

// Fresh reports whether nothing distinguishes the clock from that of a bucket never seen.
func (p *Pace) Fresh(c *Clock, now Instant) bool {
	return c.Due <= now.Add(-p.Credit) && c.TAT() <= now
}

// FreshAt is when Fresh will be true.
func (p *Pace) FreshAt(c *Clock) Instant { return max(c.Due.Add(p.Credit), c.TAT()) }

// Before returns the pace that a predecessor recorded, p itself where it recorded none. Of its peak
// nothing is known, nor needed: what is fitted are slots of the rate.
func (p *Pace) Before(rate string, burst int64) *Pace {
	r, err := algorithms.ParseRate(rate)
	if err != nil {
		return p
	}
	return cmp.Or(New(r, policy.DefaultPeak, burst), p)
}
