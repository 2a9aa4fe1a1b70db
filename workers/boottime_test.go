package workers

import (
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// slept makes a timepiece remember the clocks as they were before this machine slept.
func (c *timepiece) slept(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.booted -= d
	c.ahead.Add(-int64(d))
}

// stepped makes it remember the wall clock as it was before it was set.
func (c *timepiece) stepped(d time.Duration) { c.ahead.Add(-int64(d)) }

func TestInstantsGoOnWhileTheMachineSleeps(t *testing.T) {
	c := newTimepiece()
	before := c.now()
	c.slept(time.Minute)
	after := c.now()
	if passed := after.Since(before); passed < time.Minute || passed > 2*time.Minute {
		t.Errorf("a minute asleep: %v passed", passed)
	}
	if c.now() < after || c.jumps.Load() != 0 {
		t.Errorf("then %v passed, and the clocks jumped %d times", c.now().Since(after),
			c.jumps.Load())
	}
}

func TestAStepOfTheWallClockIsAJumpAndPassesNoTime(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, 2 * jump, -2 * jump} {
		c := newTimepiece()
		before := c.now()
		c.stepped(step)
		if passed := c.now().Since(before); passed < 0 || passed > time.Minute {
			t.Errorf("a step of %v: %v passed", step, passed)
		}
		if n := c.jumps.Load(); n != 1 {
			t.Errorf("a step of %v: %d jumps", step, n)
		}
	}
}

// TestASleepAndAStepAtOnceAreBothSeen: a machine that wakes up asks NTP for the time.
func TestASleepAndAStepAtOnceAreBothSeen(t *testing.T) {
	c := newTimepiece()
	before := c.now()
	c.slept(time.Minute)
	c.stepped(-time.Second)
	if passed := c.now().Since(before); passed < time.Minute || c.jumps.Load() != 1 {
		t.Errorf("%v passed, %d jumps", passed, c.jumps.Load())
	}
}

// TestInstantsNeverGoBack for anybody who reads them, while the machine sleeps and its wall clock
// is set to and fro.
func TestInstantsNeverGoBack(t *testing.T) {
	c := newTimepiece()
	const sleeps = 200
	began := c.now()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for last := began; last.Since(began) < sleeps*time.Second; {
				now := c.now()
				if now < last {
					t.Errorf("an instant %v before the last", last.Since(now))
					return
				}
				last = now
			}
		})
	}
	for i := range sleeps {
		c.slept(time.Second)
		c.stepped(time.Duration(i%3-1) * 20 * ms)
		c.now()
	}
	readers.Wait()
}

// TestTheLastCheckNoticesAJump: a worker may come to its last check before the loop has looked at
// the clock again.
func TestTheLastCheckNoticesAJump(t *testing.T) {
	g := gate{clock: newTimepiece()}
	g.set(pace.Never, 0)
	if fence, now := g.check(); now >= fence {
		t.Fatalf("the fence %v is closed at %v", fence, now)
	}
	g.clock.stepped(time.Minute)
	if fence, now := g.check(); now < fence {
		t.Error("the fence is open after a jump")
	}
	g.heard.Store(1)
	if fence, now := g.check(); now >= fence {
		t.Error("the fence is closed although the core has heard of the jump")
	}
}

func BenchmarkNow(b *testing.B) {
	c := newTimepiece()
	b.Run("instant", func(b *testing.B) {
		for b.Loop() {
			c.now()
		}
	})
	b.Run("since boot", func(b *testing.B) {
		for b.Loop() {
			sinceBoot()
		}
	})
}
