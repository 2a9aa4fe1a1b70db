package timepiece

import (
	"sync"
	"testing"
	"time"
)

// slept makes the machine appear to have slept.
func (c *Timepiece) slept(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.booted -= d
	c.ahead.Add(-int64(d))
}

// stepped makes the wall clock appear to have been set.
func (c *Timepiece) stepped(d time.Duration) { c.ahead.Add(-int64(d)) }

func TestInstantsGoOnWhileTheMachineSleeps(t *testing.T) {
	c := New()
	before := c.Now()
	c.slept(time.Minute)
	after := c.Now()
	if passed := after.Since(before); passed < time.Minute || passed > 2*time.Minute {
		t.Errorf("a minute asleep: %v passed", passed)
	}
	if c.Now() < after || c.Jumps() != 0 {
		t.Errorf("then %v passed, and the clocks jumped %d times", c.Now().Since(after),
			c.Jumps())
	}
}

func TestAStepOfTheWallClockIsAJumpAndPassesNoTime(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, 2 * jump, -2 * jump} {
		c := New()
		before := c.Now()
		c.stepped(step)
		if passed := c.Now().Since(before); passed < 0 || passed > time.Minute {
			t.Errorf("a step of %v: %v passed", step, passed)
		}
		if n := c.Jumps(); n != 1 {
			t.Errorf("a step of %v: %d jumps", step, n)
		}
	}
}

func TestASleepAndAStepAtOnceAreBothSeen(t *testing.T) {
	c := New()
	before := c.Now()
	c.slept(time.Minute)
	c.stepped(-time.Second)
	if passed := c.Now().Since(before); passed < time.Minute || c.Jumps() != 1 {
		t.Errorf("%v passed, %d jumps", passed, c.Jumps())
	}
}

func TestInstantsNeverGoBack(t *testing.T) {
	c := New()
	const sleeps = 200
	began := c.Now()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for last := began; last.Since(began) < sleeps*time.Second; {
				now := c.Now()
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
		c.stepped(time.Duration(i%3-1) * 20 * time.Millisecond)
		c.Now()
	}
	readers.Wait()
}

func BenchmarkNow(b *testing.B) {
	c := New()
	b.Run("instant", func(b *testing.B) {
		for b.Loop() {
			c.Now()
		}
	})
	b.Run("since boot", func(b *testing.B) {
		for b.Loop() {
			sinceBoot()
		}
	})
}
