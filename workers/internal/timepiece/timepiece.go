// Package timepiece is the clock of a drainer: instants that go on while the machine sleeps, and
// how often the machine's clocks have jumped against each other. The core reads no clock; whoever
// asks it something says when.
package timepiece

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Timepiece reads instants. They go on while the machine sleeps, as the clocks of those do who take
// this process for dead meanwhile. Only a system call tells such a time: some 320 ns here, and it
// would be five times for each job. So a reading is one of the runtime's monotonic clock (65 ns in
// all), to which the time asleep is added. That is measured again when the wall clock has moved
// against the monotonic one: it has after each sleep, and NTP moves both alike unless it steps.
//
// A wall clock that has moved against the time since boot as well was set, or the host of this
// virtual machine stopped all of its clocks for a while. Nobody can tell how old a lease is then:
// see the core's Jumped.
type Timepiece struct {
	began  time.Time     // of instants
	booted time.Duration // the time since boot when they began
	// ns that the wall clock was ahead of the monotonic one when last looked at closely
	ahead  atomic.Int64
	asleep atomic.Int64 // ns since began that the monotonic clock does not count
	jumps  atomic.Uint64
	mu     sync.Mutex // of look
}

const (
	// looseness is by how much two clocks may seem to differ because this process was interrupted
	// between their readings.
	looseness = time.Millisecond
	// jump is the step of the wall clock from which on it counts: less fits the margin of every
	// lease.
	jump = 10 * time.Millisecond
)

// New begins to count.
func New() *Timepiece {
	c := &Timepiece{began: time.Now().Add(-time.Second)} // 0 and less are no instants
	boot, mono, ahead := c.measure()
	c.booted = boot - mono
	c.ahead.Store(int64(ahead))
	return c
}

// Jumps is how often the clocks have jumped so far.
func (c *Timepiece) Jumps() uint64 { return c.jumps.Load() }

// Now is the present instant.
func (c *Timepiece) Now() pace.Instant {
	t := time.Now()
	mono := t.Sub(c.began)
	if off := time.Duration(t.UnixNano()-c.ahead.Load()) - mono; off > looseness ||
		off < -looseness {
		return c.look()
	}
	return pace.Instant(mono) + pace.Instant(c.asleep.Load())
}

// look finds out why the wall clock has moved against the monotonic one.
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

// Date is an instant by this machine's wall clock as it was when instants began.
func (c *Timepiece) Date(t pace.Instant) time.Time {
	// without the monotonic reading, which does not count sleep
	return c.began.Round(0).Add(time.Duration(t))
}
