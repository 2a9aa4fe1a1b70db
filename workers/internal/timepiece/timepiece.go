// Package timepiece is the clock of a drainer. Its instants continue while the machine sleeps,
// and it counts the jumps of the machine's clocks against each other. The core itself reads no
// clock.
package timepiece

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Timepiece reads instants. They continue while the machine sleeps, like the clocks of
// processes that judge this one's lease. Only a system call returns such a time, at some 320 ns
// here, five times per job. So a reading takes the runtime's monotonic clock (65 ns in all) and
// adds the time asleep. That is measured again when the wall clock has moved against the
// monotonic one, as it has after each sleep; NTP moves both alike unless it steps.
//
// A wall clock that has also moved against the time since boot was set, or the host of this
// virtual machine stopped all of its clocks. The age of a lease is then unknown: see the core's
// Jumped.
// see the core's Jumped.
type Timepiece struct {
	began  time.Time     // of instants
	booted time.Duration // time since boot at began
	// ns by which the wall clock was ahead of the monotonic one when last measured
	ahead  atomic.Int64
	asleep atomic.Int64 // ns since began that the monotonic clock does not count
	jumps  atomic.Uint64
	mu     sync.Mutex // of look
}

const (
	// looseness is the apparent difference of two clocks that an interruption between their
	// readings may cause.
	looseness = time.Millisecond
	// jump is the smallest step of the wall clock that counts: smaller ones fit the margin of
	// every lease.
	jump = 10 * time.Millisecond
)

// New returns a timepiece that starts now.
func New() *Timepiece {
	c := &Timepiece{began: time.Now().Add(-time.Second)} // 0 and less are no instants
	boot, mono, ahead := c.measure()
	c.booted = boot - mono
	c.ahead.Store(int64(ahead))
	return c
}

// Jumps returns the number of clock jumps so far.
func (c *Timepiece) Jumps() uint64 { return c.jumps.Load() }

// Now returns the present instant.
func (c *Timepiece) Now() pace.Instant {
	t := time.Now()
	mono := t.Sub(c.began)
	if off := time.Duration(t.UnixNano()-c.ahead.Load()) - mono; off > looseness ||
		off < -looseness {
		return c.look()
	}
	return pace.Instant(mono) + pace.Instant(c.asleep.Load())
}

// look determines why the wall clock has moved against the monotonic one.
func (c *Timepiece) look() pace.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	boot, mono, ahead := c.measure()
	slept := boot - c.booted - mono - time.Duration(c.asleep.Load())
	if slept > looseness {
		c.asleep.Add(int64(slept))
	} else {
		slept = 0
	}
	if stepped := ahead - time.Duration(c.ahead.Load()) - slept; stepped > jump || stepped < -jump {
		c.jumps.Add(1)
	}
	c.ahead.Store(int64(ahead))
	return pace.Instant(mono) + pace.Instant(c.asleep.Load())
}

// measure reads all three clocks without an interruption in between.
func (c *Timepiece) measure() (boot, mono, ahead time.Duration) {
	for {
		before := time.Now()
		boot = sinceBoot()
		after := time.Now()
		if mono = after.Sub(c.began); after.Sub(before) < looseness/2 {
			return boot, mono, time.Duration(after.UnixNano()) - mono
		}
	}
}

// Date converts an instant to a date, by this machine's wall clock as of the timepiece's start.
func (c *Timepiece) Date(t pace.Instant) time.Time {
	// Strip the monotonic reading, which does not count sleep.
	return c.began.Round(0).Add(time.Duration(t))
}
