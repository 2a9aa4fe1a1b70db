// Package pace decides when a bucket may start its next job, and holds the proof that law 2 of
// DESIGN.md is kept by it. It counts starts as well, and knows neither jobs nor wall clocks.
package pace

import (
	"cmp"
	"math"
	"math/bits"
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

// Law 2 of DESIGN.md allows rate·(1.002·T + 2 ms) + burst starts in a window of T ≥ 1 s. At the
// least generous window that is 4 ms of the rate above rate·T, and a bucket divides them up like
// this:
const (
	// catchUp is how much faster than its rate a late bucket runs: 1 part in 550, 1.8 ms of each
	// second.
	catchUp = 550
	// Earliness is how far ahead of the sped-up rate one start may come after a late one: timers
	// are late by up to 1 ms at random, and without it every such delay would have to be caught up.
	Earliness = time.Millisecond
	// Undecided is the longest time between the valve's decision and the last check before the
	// handler. A job that takes longer is not started and goes back to the head.
	Undecided = time.Millisecond
	// mostLateness is the lateness that is remembered to be made up.
	mostLateness = 10 * time.Second
)

// Pace is the rate of a policy's buckets in the form that clocks need.
type Pace struct {
	Rate      algorithms.Rate
	Burst     int64
	Interval  time.Duration // between two starts at the rate, rounded up
	short     time.Duration // between two starts while making up for lateness, rounded up
	Credit    time.Duration // what idleness can earn: (burst − 1) intervals
	envelope  time.Duration // the same in short intervals
	Undecided time.Duration
}

// New returns nil for the zero rate: jobs start unpaced.
func New(rate algorithms.Rate, burst int64) *Pace {
	if rate.IsZero() {
		return nil
	}
	burst = max(burst, 1)
	interval := rate.Interval()
	short := interval - interval/(catchUp+1)
	return &Pace{
		Rate:      rate,
		Burst:     burst,
		Interval:  interval,
		short:     short,
		Credit:    Times(burst-1, interval),
		envelope:  Times(burst-1, short) + Earliness,
		Undecided: Undecided,
	}
}

// Clock says when one bucket's next job may start. It keeps two schedules and obeys the later one.
// The zero clock is a bucket that has been idle for ever.
//
//   - due is the schedule of the configured rate. Each start moves it on by exactly one interval,
//     however late the start was, so lateness is made up. Idleness moves it forward: it earns burst
//     − 1 intervals and no more.
//   - tat is the theoretical arrival time of a generic cell rate algorithm (ITU-T I.371) that runs
//     catchUp faster than the rate. It is what keeps lateness from being made up in a clump.
type Clock struct {
	Due      Instant
	fraction int64 // of due, in 1/Count ns
	Tat      Instant
	idle     Instant // starts due at or before it were earned in idleness and may come together
}

// Next returns when a start is allowed.
func (p *Pace) Next(c *Clock) Instant {
	return max(c.Due, c.Tat.Add(-p.envelope))
}

// Spent is what a start took of the envelope.
type Spent struct{ before, after Instant } // the clock's tat

// Refund returns to the envelope what a start took that did not happen, unless something else was
// taken since.
func (s Spent) Refund(c *Clock) {
	if c.Tat == s.after {
		c.Tat = s.before
	}
}

// Take spends the slots of one start, and returns what it took of the envelope.
func (p *Pace) Take(c *Clock, now Instant, cost int64) Spent {
	before := c.Tat
	if c.Due > c.idle {
		c.Tat = max(c.Tat, now.Add(p.envelope-Earliness)) // late, not idle: no burst is left
	}
	c.Tat = max(c.Tat, now).Add(Times(cost, p.short))
	c.Due = max(c.Due, now.Add(-mostLateness-p.Credit))
	p.advance(c, cost)
	return Spent{before, c.Tat}
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

// Spare gives the slots of a start that did not happen back to the rate, but not to the envelope:
// the gap that it left is made up like any lateness.
func (p *Pace) Spare(c *Clock, cost int64) {
	c.Due = c.Due.Add(-Times(cost, p.Interval))
}

// Wake is called when a bucket has work again after it had none or was held back by its
// concurrency.
func (p *Pace) Wake(c *Clock, now Instant) {
	if earned := now.Add(-p.Credit); c.Due < earned {
		c.Due, c.fraction = earned, 0
	}
	c.idle = now
}

// Hold is called when a bucket may start again at t after a cool-down, a takeover or a lost lease:
// opening is no burst.
func (p *Pace) Hold(c *Clock, t Instant) {
	if c.Due < t {
		c.Due, c.fraction = t, 0
	}
	c.Tat = max(c.Tat, t.Add(p.envelope-Earliness))
	c.idle = 0
}

// Adapt fits a clock to a pace that was another before. What is still to be waited for are slots:
// where those have become shorter, so does the wait. Over a change the larger rate and burst count,
// so that no wait becomes longer: tat is ahead by the burst that it leaves room for, and loses what
// a smaller one leaves no room for.
func (p *Pace) Adapt(c *Clock, before *Pace, now Instant) {
	c.fraction = min(c.fraction, p.Rate.Count-1)
	if fewer := before.Burst - p.Burst; fewer > 0 && c.Tat > now {
		c.Tat = max(now, c.Tat.Add(-Times(fewer, before.short)))
	}
	was := before.Interval
	if was <= p.Interval {
		return
	}
	shorten := func(t Instant) Instant {
		if t <= now {
			return t
		}
		return now.Add(
			time.Duration(math.Ceil(float64(t.Since(now)) * (float64(p.Interval) / float64(was)))))
	}
	c.Due, c.Tat = shorten(c.Due), shorten(c.Tat)
}

// Fresh reports whether nothing distinguishes the clock from that of a bucket never seen.
func (p *Pace) Fresh(c *Clock, now Instant) bool {
	return c.Due <= now.Add(-p.Credit) && c.Tat <= now
}

// FreshAt is when Fresh will be true.
func (p *Pace) FreshAt(c *Clock) Instant { return max(c.Due.Add(p.Credit), c.Tat) }

// Before returns the pace that a predecessor recorded, p itself where it recorded none.
func (p *Pace) Before(rate string, burst int64) *Pace {
	r, err := algorithms.ParseRate(rate)
	if err != nil {
		return p
	}
	return cmp.Or(New(r, burst), p)
}
