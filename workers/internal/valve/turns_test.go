package valve

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func TestAHeldBucketMissesItsTurns(t *testing.T) {
	slow := leaky("", "1/s").Outflow
	for name, c := range map[string]struct {
		hold    func(b *valveBench) func(Run)
		release func(b *valveBench)
	}{
		"by its target": {
			hold: func(b *valveBench) func(Run) {
				return func(r Run) {
					if r.Key == "held" && b.now < origin.Add(second) {
						b.end(r, record.Outcome{Kind: record.OutcomeThrottled,
							RetryAfter: 10 * time.Second})
						return
					}
					b.done(r)
				}
			},
			release: func(*valveBench) {},
		},
		"by its own rate": {
			hold: func(b *valveBench) func(Run) {
				b.v.SetOverride("held", inforce.Override{Outflow: &slow}, b.now)
				return b.done
			},
			release: func(b *valveBench) { b.v.SetOverride("held", inforce.Override{}, b.now) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newValveBench(t, total("100/s"))
			for range 2000 {
				b.arrive("held")
				b.arrive("other")
			}
			b.until(11*second, c.hold(b))
			c.release(b)
			for range 2000 {
				b.arrive("new")
			}
			counts := map[queue.Key]int{}
			b.until(14*second, func(r Run) {
				counts[r.Key]++
				b.done(r)
			})
			for _, key := range []queue.Key{"held", "other", "new"} {
				if n := counts[key]; n < 98 || n > 102 {
					t.Errorf("%s started %d of 300 jobs, want a third", key, n)
				}
			}
		})
	}
}

func TestANewBucketTakesNoTurnBeforeWaitingOnes(t *testing.T) {
	b := newValveBench(t, total("10/s"))
	for range 5 {
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			b.arrive(key)
		}
	}
	b.until(750*ms, b.done) // the second turns of a, b and c
	b.arrive("late")
	var order []queue.Key
	b.until(1150*ms, func(r Run) {
		order = append(order, r.Key)
		b.done(r)
	})
	if fmt.Sprint(order) != "[d e late a]" {
		t.Errorf("then the turns are %v, want [d e late a]", order)
	}
}

// A key that sends one job after another has no waiting job in between, and must not get a turn for
// each.
func TestTurnsAreRememberedWhileNothingWaits(t *testing.T) {
	b := newValveBench(t, total("10/s"))
	for i := range mostRates {
		b.arrive(fmt.Sprint("later-", i), func(a *job.Arrived) {
			a.NotBefore = a.Stored.Add(time.Hour)
		})
	}
	for range 100 {
		b.arrive("backlog")
	}
	counts := map[queue.Key]int{}
	b.arrive("single")
	for at := 10 * ms; at < 6*second; at += 10 * ms {
		b.until(at, func(r Run) {
			counts[r.Key]++
			b.done(r)
		})
		if single := b.p.buckets["single"]; single == nil || single.held == 0 {
			b.arrive("single")
		}
	}
	if n := counts["backlog"]; n < 29 || n > 31 {
		t.Errorf("started %v, want as many of the one as of the other", counts)
	}
}

func TestTurnsOfIdleBucketsAreForgotten(t *testing.T) {
	b := newValveBench(t, total("10/s"))
	for i := range 40 {
		b.arrive("costly", cost(int64(1+i%4)))
		b.arrive("cheap")
	}
	b.until(30*second, b.done)
	if n := len(b.p.buckets); n != 0 {
		t.Errorf("%d empty buckets are kept", n)
	}
}
