package valve

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

func TestEachRefusedCallIsToldItsOwnTurn(t *testing.T) {
	c, now := newCalling(t, leaky("api", "10/s")), callsBegin
	for i, want := range []int64{0, 0, 0, 200, 300, 400} {
		q := job.Claim{Op: job.OpClaim, Key: "a", ID: fmt.Sprint(i), N: 1, Partitions: 1,
			WaitMS: 200}
		var retry int64
		c.part.Hear(q, func(t job.Turn) { retry = t.RetryMS }, now)
		if c.begin(now); retry != want {
			t.Errorf("call %d is told %d ms, want %d", i+1, retry, want)
		}
	}
}

func TestWaitingCallsCountAgainstLimits(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Limits = []policy.Limit{{Name: "tokens", Cost: "tokens", Rule: policy.Rule{
		Algorithm: policy.SlidingLog, Limit: 300, Window: policy.Duration(time.Minute)}}}
	c, now := newCalling(t, p), callsBegin
	for i := range 5 {
		var start int64
		costs := map[string]int64{"tokens": 300}
		if i == 0 {
			costs["tokens"] = 100
		}
		c.part.Hear(job.Claim{Op: job.OpClaim, Key: "a", Costs: costs,
			ID: fmt.Sprint(i), N: 1, Partitions: 1, WaitMS: 600_000}, func(t job.Turn) {
			start = *t.StartMS
		}, now)
		if start < int64(i*60_000) {
			t.Errorf("call %d, of one in a minute, is foretold in %d ms", i+1, start)
		}
	}
}

// Programs' SDKs try three times. Their calls take two minutes and a half, of 30 s that each waits.
func TestNoCallIsLostByItsRefusals(t *testing.T) {
	// Nothing is foretold before the first checkpoint of the units taken.
	for name, after := range map[string]time.Duration{"at once": 0, "cold": 3 * time.Second} {
		t.Run(name, func(t *testing.T) { loseNoCall(t, callsBegin.Add(after)) })
	}
}

func loseNoCall(t *testing.T, foreseen pace.Instant) {
	p := leaky("api", "576/m")
	p.Timeout = policy.Duration(10 * time.Minute)
	p.Limits = []policy.Limit{
		{Name: "requests", Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 192,
			Window: policy.Duration(time.Minute)}},
		{Name: "tokens", Cost: "tokens", Rule: policy.Rule{Algorithm: policy.SlidingLog,
			Limit: 8700, Window: policy.Duration(time.Minute)}},
	}
	c := newCalling(t, p)
	type caller struct {
		tries        int
		at, ends     pace.Instant
		begun, ended pace.Instant
	}
	all := make([]caller, 200)
	for i := range all {
		all[i].at = callsBegin.Add(time.Duration(i) * time.Millisecond)
	}
	done, refused := 0, 0
	for now := callsBegin; done < len(all); now += 5 * milli {
		if now >= foreseen {
			begin(c.part)
			c.part.Checkpoints.Store()
		}
		if now == foreseen {
			c.NotedFirst(c.Valve, now)
		}
		if now > callsBegin.Add(4*time.Minute) {
			t.Fatalf("%d of %d calls have begun", done, len(all))
		}
		for i := range all {
			a := &all[i]
			id := fmt.Sprintf("%d-%d", i, a.tries)
			switch {
			case a.begun > 0 && a.ended == 0 && now >= a.begun.Add(50*time.Millisecond):
				a.ended = now
				c.settle(id, job.SettledDone, now)
			case a.begun > 0 || now < a.at:
			case a.ends > 0 && now >= a.ends:
				t.Fatalf("call %d waited for nothing", i)
			default:
				if a.ends == 0 {
					a.ends = now.Add(30 * time.Second)
				}
				c.n++
				a.at = now.Add(2 * time.Second)
				c.part.Hear(job.Claim{Op: job.OpClaim, Key: "a",
					Costs: map[string]int64{"tokens": 110}, Priority: a.tries, ID: id, N: c.n,
					Partitions: 1, WaitMS: a.ends.Since(now).Milliseconds()}, func(told job.Turn) {
					switch told.State {
					case job.TurnGo:
						done++
						a.begun = now
					case job.TurnOffer:
						a.at = now
					case job.TurnRefused:
						refused++
						if a.tries++; a.tries == 3 {
							t.Fatalf("call %d is lost after %v", i, now.Since(callsBegin))
						}
						a.at, a.ends = now.Add(time.Duration(told.RetryMS)*
							time.Millisecond), 0
					}
				}, now)
			}
		}
		c.begin(now)
	}
	if refused == 0 || refused > 2*len(all) {
		t.Errorf("%d refusals", refused)
	}
}
