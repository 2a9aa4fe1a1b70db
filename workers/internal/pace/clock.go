// Package pace decides when a bucket may start its next job, and proves that this keeps law 2 of
// DESIGN.md.
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

// Instant is a reading of a process's own clock, in nanoseconds, including time asleep.
type Instant int64

const Never = Instant(math.MaxInt64)

func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Later is Add for external durations; it does not overflow.
func (t Instant) Later(d time.Duration) Instant { return t.Add(min(d, Forever)) }

func (t Instant) Since(other Instant) time.Duration { return time.Duration(t - other) }

// Law 2 of DESIGN.md allows peak·(T + 2 ms) + burst starts in a window of T ≥ 1 s. A clock spends
// this budget on two things:
//
// - tolerance: lateness up to this is made up at once.
//
// - sped: the faster rate for making up more lateness.
//
// In windows of T the starts are at most sped·(T + tolerance) + burst, by the proof at [Clock]. The
// least generous window is T = 1 s: sped·(1 s + tolerance) = peak·(1 s + 2 ms). Longer windows are
// no tighter as long as sped is at most the peak, which holds for a tolerance of 2 ms or more.
//
// The default peak, 1.25 % above the outflow, allows 14.5 ms of a second's starts: 10 ms go to the
// tolerance, and the rest makes a late bucket 0.45 % faster. A peak equal to the outflow leaves
// only the 2 ms.
const (
	// slack is law 2's allowance in addition to the peak.
	slack = 2 * time.Millisecond
	// Tolerance is the largest tolerance, reached with the default peak.
	Tolerance = 10 * time.Millisecond
	// mostLateness bounds the lateness that is made up.
	mostLateness = 10 * time.Second
)

// Pace is a rate as used by clocks. Intervals are rounded up.
type Pace struct {
	Rate     algorithms.Rate
	Peak     float64 // starts per second while late
	Burst    int64
	peak     float64
	Interval time.Duration // at the rate
	short    time.Duration // interval while making up for lateness
	Credit   time.Duration // what idle time can earn: (burst − 1) intervals
	envelope time.Duration // Credit in short intervals, plus the tolerance
}

// New returns nil for the zero rate: unpaced. peak is a multiple of the rate, at least 1.
func New(rate algorithms.Rate, peak float64, burst int64) *Pace {
	if rate.IsZero() {
		return nil
	}
	burst = max(burst, 1)
	interval := rate.Interval()
	most := peak * (time.Second + slack).Seconds() // starts per second, relative to the rate
	// A third of the peak's margin goes to speed, for lateness beyond the tolerance.
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

// Clock determines when a bucket's next job may start. It keeps two schedules and obeys the later
// one.
//
//   - due is the schedule of the configured rate. Each start advances it by exactly one interval,
//     also after a late start, so lateness is made up. Idle time earns at most burst − 1 intervals.
//   - tat is the theoretical arrival time of a generic cell rate algorithm (ITU-T I.371) at rate
//     sped. It bounds the starts that make up for lateness at once.
//
// tat is kept twice. The started one is the law: a start takes its slot there at its instant
// ([Clock.Start]). The planned one serves the valve's decisions: each job takes its slot when
// decided ([Pace.Take]). A plan that was too optimistic costs a returned start.
//
// Law 2 follows for a clock without other changes. Let starts at t₁ ≤ … ≤ tₙ in a window of T cost
// c₁ … cₙ. The first moves tat to t₁ + c₁·short or later, each further one by its cost·short. The
// last passed, so tₙ ≥ tat − envelope: (c₁ + … + cₙ₋₁)·short ≤ T + envelope, or c₁ + … + cₙ₋₁ ≤
// sped·(T + tolerance) + burst − 1. With costs of 1 that is n ≤ sped·(T + tolerance) + burst. A
// hold only advances tat, to where a start at its instant is the first of its own. It thus
// represents earlier starts of another process: they moved their tat at most one interval and the
// envelope beyond their last start.
type Clock struct {
	Due      Instant
	fraction int64
	Tat      Instant
	started  atomic.Int64 // tat as started
	pace     atomic.Pointer[Pace]
}

// TAT returns the later of the planned and the started one.
func (c *Clock) TAT() Instant { return max(c.Tat, Instant(c.started.Load())) }

func (p *Pace) Next(c *Clock) Instant {
	if p == nil {
		return 0
	}
	return max(c.Due, c.TAT().Add(-p.envelope))
}

func (p *Pace) Take(c *Clock, now Instant, cost int64) {
	if p == nil {
		return
	}
	c.pace.Store(p)
	c.Tat = max(c.TAT(), now).Add(Times(cost, p.short))
	c.Due = max(c.Due, now.Add(-mostLateness-p.Credit))
	p.advance(c, cost)
}

func (c *Clock) May(now Instant) bool {
	p := c.pace.Load()
	return p == nil || now >= Instant(c.started.Load()).Add(-p.envelope)
}

// Start takes a planned start's slots, if it may happen. It is safe for concurrent use.
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

// move changes the started tat, concurrently with starts.
func (c *Clock) move(to func(tat Instant) Instant) {
	for {
		tat := c.started.Load()
		if c.started.CompareAndSwap(tat, int64(to(Instant(tat)))) {
			return
		}
	}
}

func (c *Clock) Reset() { c.Set(0, 0) }

func (c *Clock) Set(due, tat Instant) {
	c.pace.Store(nil) // until the next plan
	c.Due, c.fraction, c.Tat = due, 0, tat
	c.started.Store(int64(tat))
}

// advance loses no fractions of a nanosecond.
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

// Forever is the longest wait; instants plus Forever do not overflow.
const Forever = 100 * 365 * 24 * time.Hour

func Longest(d policy.Duration) time.Duration { return min(time.Duration(d), Forever) }

// Times returns n·d, at most Forever.
func Times(n int64, d time.Duration) time.Duration {
	if d > 0 && n > int64(Forever/d) {
		return Forever
	}
	return time.Duration(n) * d
}

func (p *Pace) Spare(c *Clock, cost int64) {
	if p != nil {
		c.Due = c.Due.Add(-Times(cost, p.Interval))
		c.Tat = c.Tat.Add(-Times(cost, p.short))
	}
}

func (p *Pace) Wake(c *Clock, now Instant) {
	if p != nil && c.Due < now.Add(-p.Credit) {
		c.Due, c.fraction = now.Add(-p.Credit), 0
	}
}

// Hold allows the next start at t, without a burst.
func (p *Pace) Hold(c *Clock, t Instant) {
	if p == nil {
		return
	}
	if c.Due < t {
		c.Due, c.fraction = t, 0
	}
	c.Tat = max(c.Tat, t.Add(p.envelope))
	c.move(func(tat Instant) Instant { return max(tat, t.Add(p.envelope)) })
}

// Adapt converts a clock from a former pace. Pending waits are in slots, and become shorter with
// them. Across a change the larger rate and burst count: tat is ahead by the burst that it leaves
// room for, and moves back by the difference to a smaller one.
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

func (p *Pace) stretch(c *Clock, before *Pace, now Instant) {
	stretched := func(t Instant) Instant {
		if t <= now {
			return t
		}
		by := float64(p.Interval) / float64(before.Interval)
		return now.Add(time.Duration(math.Ceil(min(float64(t.Since(now))*by, float64(Forever)))))
	}
	c.Due, c.Tat = stretched(c.Due), stretched(c.Tat)
	c.move(stretched)
}

// At returns the pace at another rate per second, with the same burst and peak ratio.
func (p *Pace) At(perSecond float64) *Pace {
	const count = 1000
	per := time.Duration(min(count/perSecond*float64(time.Second), float64(Forever)))
	return New(algorithms.Rate{Count: count, Per: max(per, 1)}, p.peak, p.Burst)
}

// Refit converts a clock from a former pace of the same burst. The number of slots to wait for
// stays. So a clock that is refitted any number of times starts no more than one at the fastest of
// its paces: in slots, its distance from now shrinks by time alone, and at that pace fastest. A
// concurrent start meets the old pace with the longer wait, or waits longer.
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

func (p *Pace) Fresh(c *Clock, now Instant) bool {
	return c.Due <= now.Add(-p.Credit) && c.TAT() <= now
}

func (p *Pace) FreshAt(c *Clock) Instant {
	if p == nil {
		return 0
	}
	return max(c.Due.Add(p.Credit), c.TAT())
}

// Before returns a predecessor's recorded pace, or p without one, for conversions of its slots.
func (p *Pace) Before(rate string, burst int64) *Pace {
	r, err := algorithms.ParseRate(rate)
	if err != nil {
		return p
	}
	return cmp.Or(New(r, policy.DefaultPeak, burst), p)
}
