package workers

import (
	"math"
	"math/bits"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

// instant is a reading of this process's own clock: nanoseconds since the drainer was made, those included in which the
// machine slept ([timepiece]). The pure parts of this package know no other time but JetStream's, as far as [core.wall] can
// tell it.
type instant int64

// never is an instant that does not come.
const never = instant(math.MaxInt64)

func (t instant) add(d time.Duration) instant { return t + instant(d) }

// later is add for a duration from outside, such as the distance of a date: it does not overflow.
func (t instant) later(d time.Duration) instant { return t.add(min(d, forever)) }

func (t instant) since(other instant) time.Duration { return time.Duration(t - other) }

// Law 2 of DESIGN.md allows rate·(1.002·T + 2 ms) + burst starts in a window of T ≥ 1 s. At the least generous window
// that is 4 ms of the rate above rate·T, and a bucket divides them up like this:
const (
	// catchUp is how much faster than its rate a late bucket runs: 1 part in 550, 1.8 ms of each second.
	catchUp = 550
	// earliness is how far ahead of the sped-up rate one start may come after a late one: timers are late by up to
	// 1 ms at random, and without it every such delay would have to be caught up.
	earliness = time.Millisecond
	// handoff is the longest time between the valve's decision and the last check before the handler. A job that takes
	// longer is not started and goes back to the head.
	handoff = time.Millisecond
	// mostLateness is the lateness that is remembered to be made up.
	mostLateness = 10 * time.Second
)

// pace is the rate of a policy's buckets in the form that clocks need.
type pace struct {
	rate     algorithms.Rate
	burst    int64
	interval time.Duration // between two starts at the rate, rounded up
	short    time.Duration // between two starts while making up for lateness, rounded up
	credit   time.Duration // what idleness can earn: (burst − 1) intervals
	envelope time.Duration // the same in short intervals
	handoff  time.Duration
}

// newPace returns nil for the zero rate: jobs start unpaced.
func newPace(rate algorithms.Rate, burst int64) *pace {
	if rate.IsZero() {
		return nil
	}
	burst = max(burst, 1)
	interval := rate.Interval()
	short := interval - interval/(catchUp+1)
	return &pace{
		rate:     rate,
		burst:    burst,
		interval: interval,
		short:    short,
		credit:   times(burst-1, interval),
		envelope: times(burst-1, short) + earliness,
		handoff:  handoff,
	}
}

// clock says when one bucket's next job may start. It keeps two schedules and obeys the later one. The zero clock is a
// bucket that has been idle for ever.
//
//   - due is the schedule of the configured rate. Each start moves it on by exactly one interval, however late the start
//     was, so lateness is made up. Idleness moves it forward: it earns burst − 1 intervals and no more.
//   - tat is the theoretical arrival time of a generic cell rate algorithm (ITU-T I.371) that runs catchUp faster than the
//     rate. It is what keeps lateness from being made up in a clump.
type clock struct {
	due      instant
	fraction int64 // of due, in 1/Count ns
	tat      instant
	idle     instant // starts due at or before it were earned in idleness and may come together
}

// next returns when a start is allowed.
func (p *pace) next(c *clock) instant {
	return max(c.due, c.tat.add(-p.envelope))
}

// take spends the slots of one start.
func (p *pace) take(c *clock, now instant, cost int64) {
	if c.due > c.idle {
		c.tat = max(c.tat, now.add(p.envelope-earliness)) // late, not idle: no burst is left
	}
	c.tat = max(c.tat, now).add(times(cost, p.short))
	c.due = max(c.due, now.add(-mostLateness-p.credit))
	p.advance(c, cost)
}

// advance moves due on by cost intervals without losing a fraction of a nanosecond.
func (p *pace) advance(c *clock, cost int64) {
	high, low := bits.Mul64(uint64(cost), uint64(p.rate.Per))
	low, carry := bits.Add64(low, uint64(c.fraction), 0)
	count := uint64(p.rate.Count)
	if high += carry; high >= count {
		c.due, c.fraction = c.due.add(forever), 0
		return
	}
	whole, rest := bits.Div64(high, low, count)
	c.due, c.fraction = c.due.add(time.Duration(min(whole, uint64(forever)))), int64(rest)
}

// forever is the longest wait that a clock can express; instants plus forever do not overflow.
const forever = 100 * 365 * 24 * time.Hour

// longest is a configured limit on waiting as a duration that can be added to instants.
func longest(d policy.Duration) time.Duration { return min(time.Duration(d), forever) }

// times is n·d, at most forever.
func times(n int64, d time.Duration) time.Duration {
	if d > 0 && n > int64(forever/d) {
		return forever
	}
	return time.Duration(n) * d
}

// spare gives the slots of a start that did not happen back to the rate, but not to the envelope: the gap that it left is
// made up like any lateness.
func (p *pace) spare(c *clock, cost int64) {
	c.due = c.due.add(-times(cost, p.interval))
}

// wake is called when a bucket has work again after it had none or was held back by its concurrency.
func (p *pace) wake(c *clock, now instant) {
	if earned := now.add(-p.credit); c.due < earned {
		c.due, c.fraction = earned, 0
	}
	c.idle = now
}

// hold is called when a bucket may start again at t after a cool-down, a takeover or a lost lease: opening is no burst.
func (p *pace) hold(c *clock, t instant) {
	if c.due < t {
		c.due, c.fraction = t, 0
	}
	c.tat = max(c.tat, t.add(p.envelope-earliness))
	c.idle = 0
}

// adapt fits a clock to a pace that was another before. What is still to be waited for are slots: where those have become
// shorter, so does the wait. Over a change the larger rate and burst count, so that no wait becomes longer: tat is ahead by
// the burst that it leaves room for, and loses what a smaller one leaves no room for.
func (p *pace) adapt(c *clock, before *pace, now instant) {
	c.fraction = min(c.fraction, p.rate.Count-1)
	if fewer := before.burst - p.burst; fewer > 0 && c.tat > now {
		c.tat = max(now, c.tat.add(-times(fewer, before.short)))
	}
	was := before.interval
	if was <= p.interval {
		return
	}
	shorten := func(t instant) instant {
		if t <= now {
			return t
		}
		return now.add(time.Duration(math.Ceil(float64(t.since(now)) * (float64(p.interval) / float64(was)))))
	}
	c.due, c.tat = shorten(c.due), shorten(c.tat)
}

// fresh reports whether nothing distinguishes the clock from that of a bucket never seen.
func (p *pace) fresh(c *clock, now instant) bool {
	return c.due <= now.add(-p.credit) && c.tat <= now
}

// freshAt is when fresh will be true.
func (p *pace) freshAt(c *clock) instant { return max(c.due.add(p.credit), c.tat) }
