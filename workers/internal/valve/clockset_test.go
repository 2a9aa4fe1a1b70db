package valve

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

func (b *valveBench) setClock(to func(time.Time) time.Time) {
	b.v.wall = func(now pace.Instant) (time.Time, time.Duration) {
		at, off := wallOfTests(now)
		return to(at), off
	}
	b.v.Redate(b.now)
}

// When JetStream's clock is set back, usage of a clock window counts for at most one more, until
// the clock has caught up. When set forward, the current windows count at once.
func TestWindowsFollowAClockThatIsSet(t *testing.T) {
	const window = 10 * second
	day := 24 * time.Hour
	for _, step := range []time.Duration{-second, -window, -25 * second, -30 * day, -3000 * day,
		25 * second, 10 * day} {
		for _, key := range []string{"", policy.KeyGlobal} {
			for name, rule := range map[string]policy.Rule{
				"fixed window":    {Algorithm: policy.FixedWindow},
				"sliding counter": {Algorithm: policy.SlidingCounter},
			} {
				rule.Limit, rule.Window = 5, policy.Duration(window)
				t.Run(fmt.Sprint(step, key, name), func(t *testing.T) {
					p := costly(key, rule)
					p.Outflow = algorithms.Rate{}
					b := newValveBench(t, p)
					for range 20 {
						b.arrive("a", tokens(1))
					}
					done := func(r Run) { b.done(r); b.noted() }
					if first := b.until(second, done); len(first) != 5 {
						t.Fatalf("at first start %v", first)
					}
					b.setClock(func(at time.Time) time.Time { return at.Add(step) })
					by, until := b.view().held(b.p.buckets["a"])
					if until > origin.Add(21*second) {
						t.Errorf("held by %s until %v", by, until.Since(origin))
					}
					next := b.until(21*second, done)
					if len(next) == 0 || step < 0 && len(next) > 10 ||
						step > 0 && next[0] > second {
						t.Errorf("then start %v", next)
					}
					if rest := b.until(52*second, done); len(next)+len(rest) != 15 {
						t.Errorf("then start %v, and %v", next, rest)
					}
				})
			}
		}
	}
}

// A step of years costs one month.
func TestMonthsFollowAClockThatIsSetBack(t *testing.T) {
	p := costly("", policy.Rule{Algorithm: policy.FixedWindow, Limit: 5,
		Window: policy.Duration(algorithms.Month), Zone: "Europe/Berlin"})
	b := newValveBench(t, p)
	for range 6 {
		b.arrive("a", tokens(1))
	}
	done := func(r Run) { b.done(r); b.noted() }
	if first := b.until(second, done); len(first) != 5 {
		t.Fatalf("at first start %v", first)
	}
	b.setClock(func(at time.Time) time.Time { return at.AddDate(-3, 0, 0) })
	if by, until := b.view().held(b.p.buckets["a"]); until.Since(b.now) > 63*24*time.Hour {
		t.Errorf("held by %s for %v", by, until.Since(b.now))
	}
}
