package valve

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func costly(key string, rule policy.Rule) policy.Policy {
	return policy.Policy{Name: "llm", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
		Outflow: leaky("", "100/s").Outflow, Capacity: 100_000},
		Limits: policy.Limits{{Name: "tokens", Key: key, Cost: "tokens", Rule: rule}}}
}

// A job that waits for a limit with a named cost starts as forecast, by all three: its expected
// start, a new job's wait, and its bucket's hold.
func TestForecastsCountLimitsWithCosts(t *testing.T) {
	window, rate := policy.Duration(2*second), leaky("", "50/s").Outflow
	for name, rule := range map[string]policy.Rule{
		"token bucket":    {Algorithm: policy.TokenBucket, Capacity: 100, Refill: rate},
		"leaking bucket":  {Algorithm: policy.LeakingBucket, Burst: 100, Outflow: rate},
		"sliding log":     {Algorithm: policy.SlidingLog, Limit: 100, Window: window},
		"fixed window":    {Algorithm: policy.FixedWindow, Limit: 100, Window: window},
		"sliding counter": {Algorithm: policy.SlidingCounter, Limit: 100, Window: window},
	} {
		for _, key := range []string{"", policy.KeyGlobal} {
			for _, each := range []int64{10, 60, 100} {
				t.Run(fmt.Sprint(name, " ", key, " ", each), func(t *testing.T) {
					b := newValveBench(t, costly(key, rule))
					foretold := map[uint64]time.Duration{}
					for i := range 8 {
						from := b.view().tail(b.p, job.Question{Key: "a",
							Costs: map[string]int64{"tokens": each}})
						j := b.arrive("a", tokens(each))
						wait, known := b.view().expect(b.p, j.Seq)
						if !known {
							t.Fatalf("nothing is foretold of job %d", j.Seq)
						}
						if i > 0 && (from == nil || *from != ceilMillis(wait)) {
							t.Errorf("job %d is told %v, and was told %v before it came", j.Seq,
								wait, from)
						}
						foretold[j.Seq] = wait
					}
					started := map[uint64]time.Duration{}
					b.until(time.Minute, func(r Run) {
						started[r.Seq] = b.now.Since(origin)
						b.done(r)
						b.noted()
					})
					for seq, at := range started {
						if off := at - foretold[seq]; off > 200*ms || off < -2*second {
							t.Errorf("job %d was to start after %v, and did after %v", seq,
								foretold[seq], at)
						}
					}
					if len(started) != 8 {
						t.Errorf("%d jobs have started", len(started))
					}
				})
			}
		}
	}
}

// An answer that costs six windows holds its bucket until that is paid.
func TestForecastsCountDebtBeyondAWindow(t *testing.T) {
	for _, algorithm := range []policy.Algorithm{policy.FixedWindow, policy.SlidingLog} {
		for _, key := range []string{"", policy.KeyGlobal} {
			b := newValveBench(t, costly(key, policy.Rule{Algorithm: algorithm, Limit: 100,
				Window: policy.Duration(5 * second)}))
			b.arrive("a", tokens(10))
			run := b.at(second).start()[0]
			b.noted()
			b.end(run, record.Outcome{Kind: record.OutcomeDone,
				Used: map[string]int64{"tokens": 600}})
			b.p.Confirmed(run.Seq, b.now)
			j := b.arrive("a", tokens(10))
			wait, known := b.view().expect(b.p, j.Seq)
			_, until := b.view().held(b.p.buckets["a"])
			starts := b.until(time.Minute, func(r Run) { b.done(r); b.noted() })
			if len(starts) != 1 {
				by, until := b.view().held(b.p.buckets["a"])
				t.Fatalf("%s %q: %v held by %s until %v", algorithm, key, starts, by,
					until.Since(origin))
			}
			wait += second
			if !known || starts[0] < 25*second ||
				starts[0]-wait > 300*ms || wait-starts[0] > 300*ms {
				t.Errorf("%s %q: it starts at %v, told %v, %t", algorithm, key, starts, wait, known)
			}
			off := starts[0] - until.Since(origin)
			if key == "" && (off > 300*ms || off < -300*ms) {
				t.Errorf("%s: held until %v, told %v", algorithm, starts[0], until.Since(origin))
			}
		}
	}
}

// A run's actual usage counts for the limits that charged it and still exist.
func TestARunIsSettledOverAChangeOfLimits(t *testing.T) {
	tokensOf := func(key string) policy.Policy {
		return costly(key, policy.Rule{Algorithm: policy.TokenBucket, Capacity: 100,
			Refill: leaky("", "1/m").Outflow})
	}
	other := policy.Limit{Name: "other", Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 50,
		Window: policy.Duration(second)}}
	for _, key := range []string{"", policy.KeyGlobal} {
		other.Key = key
		with, without := tokensOf(key), tokensOf(key)
		with.Limits = append(policy.Limits{other}, with.Limits...)
		for name, change := range map[string][2]policy.Policy{"added": {without, with},
			"removed": {with, without}} {
			for used, left := range map[int64]int64{10: 89, 80: 19} { // and one for the guard
				b := newValveBench(t, change[0])
				b.arrive("a", tokens(50))
				b.noted()
				run := b.at(2 * second).start()[0]
				b.noted()
				b.v.Change(change[1].WithDefaults(), false, b.now)
				b.end(run, record.Outcome{Kind: record.OutcomeDone,
					Used: map[string]int64{"tokens": used}})
				b.p.Confirmed(run.Seq, b.now)
				found := int64(-1)
				for _, l := range b.view().bucketState(b.p, "a").Limits {
					if l.Name == "tokens" {
						found = l.Left
					}
				}
				if found != left {
					t.Errorf("%s limit %q, used %d: %d tokens are left, want %d", name, key, used,
						found, left)
				}
			}
		}
	}
}
