// Package timepiece is a drainer's clock. It counts jumps of the machine's clocks.
package timepiece

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Timepiece reads instants that continue while the machine sleeps, as they do for the processes
// that judge this one's lease. That system call takes about 320 ns, five times per job. A reading
// therefore takes the runtime's monotonic clock (65 ns in total) and adds the time asleep. The time
// asleep is measured again when the wall clock has moved against the monotonic one, as after each
// sleep; NTP moves both equally unless it steps.
//
// A wall clock that has also moved against the time since boot was set, or the host stopped this
// virtual machine. The age of a lease is then unknown: see the core's Jumped.
type Timepiece struct {
	began  time.Time
	booted time.Duration
	// ns of the wall clock before the monotonic one, as last measured
	ahead  atomic.Int64
	asleep atomic.Int64 // ns that the monotonic clock does not count
	jumps  atomic.Uint64
	mu     sync.Mutex
}

const (
	// looseness is the difference of two clocks that an interruption may cause.
	looseness = time.Millisecond
	// jump is the least step that counts: smaller ones fit a lease's margin.
	jump = 10 * time.Millisecond
)

func New() *Timepiece {
	c := &Timepiece{began: time.Now().Add(-time.Second)} // 0 and less are no instants
	boot, mono, ahead := c.measure()
	c.booted = boot - mono
	c.ahead.Store(int64(ahead))
	return c
}

func (c *Timepiece) Jumps() uint64 { return c.jumps.Load() }

func (c *Timepiece) Now() pace.Instant {
	t := time.Now()
	mono := t.Sub(c.began)
	if off := time.Duration(t.UnixNano()-c.ahead.Load()) - mono; off > looseness ||
		off < -looseness {
		return c.look()
	}
	return pace.Instant(mono) + pace.Instant(c.asleep.Load())
}

// look determines why the wall clock has moved.
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

// Date converts an instant to a date, by the wall clock as of New.
func (c *Timepiece) Date(t pace.Instant) time.Time {
	// Strip the monotonic reading, which does not count sleep.
	return c.began.Round(0).Add(time.Duration(t))
}
