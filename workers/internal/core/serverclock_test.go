package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// The clock lies between a renewal's sending and the sight of its stamp. A contradiction is another
// server's clock.
func TestTheServersClockIsKnownToAFewMilliseconds(t *testing.T) {
	var c serverClock
	stamp := func(sent pace.Instant, by, seen time.Duration, stored time.Time) time.Duration {
		t.Helper()
		c.see(sent, stored, sent.Add(seen))
		return c.wall(sent.Add(by)).Sub(stored)
	}
	at := originWall
	for _, x := range []struct {
		name     string
		seen     time.Duration
		ahead    time.Duration
		from, to time.Duration
	}{
		{"prompt", 2 * ms, 0, -ms, ms},
		{"seen after a break", 20 * second, 0, -3 * ms, 3 * ms},
		{"a leader that is 12 s ahead", 2 * ms, 12 * second, -ms, ms},
		{"and back", 2 * ms, 0, -ms, ms},
		{"in the next century", 2 * ms, 40 * 365 * 24 * time.Hour, -ms, ms},
	} {
		at = at.Add(second)
		sent := origin.Add(at.Sub(originWall))
		if off := stamp(sent, ms, x.seen, at.Add(x.ahead+ms)); off < x.from || off > x.to {
			t.Errorf("%s: off by %v", x.name, off)
		}
	}
}

// A contradiction by drift alone changes the result by no more than the drift.
func TestAClockThatDriftsStaysKnown(t *testing.T) {
	for slow := range 40 {
		var c serverClock
		for i := range slow + 1 {
			passed, seen := time.Duration(i)*2*second, ms
			sent := origin.Add(passed)
			stored := originWall.Add(passed - passed/10_000)
			if i > 0 && i == slow {
				seen = 190 * ms
			}
			c.see(sent, stored, sent.Add(seen))
			if off := c.wall(sent).Sub(stored).Abs(); off > 5*ms {
				t.Fatalf("off by %v at stamp %d, which took %v", off, i, seen)
			}
			for _, hour := range []time.Duration{-time.Hour, time.Hour} {
				if _, off := c.read(sent.Add(hour)); off < 700*ms {
					t.Fatalf("%v from stamp %d the clock is known within %v", hour, i, off)
				}
			}
		}
	}
}
