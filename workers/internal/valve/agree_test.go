package valve

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func drawnLimits(rng *rand.Rand) (all policy.Limits) {
	for i := range 1 + rng.IntN(3) {
		most, window := 20+rng.Int64N(80), policy.Duration(2+rng.IntN(9))*policy.Duration(second)
		rate := algorithms.Rate{Count: most, Per: time.Duration(window)}
		l := policy.Limit{Name: fmt.Sprint("l", i), Rule: []policy.Rule{
			{Algorithm: policy.TokenBucket, Capacity: most, Refill: rate},
			{Algorithm: policy.LeakingBucket, Burst: most, Outflow: rate},
			{Algorithm: policy.SlidingLog, Limit: most, Window: window},
			{Algorithm: policy.FixedWindow, Limit: most, Window: window},
			{Algorithm: policy.SlidingCounter, Limit: most, Window: window},
		}[rng.IntN(5)]}
		if rng.IntN(2) == 0 {
			l.Cost = "tokens"
		}
		if rng.IntN(2) == 0 {
			l.Key = policy.KeyGlobal
		}
		all = append(all, l)
	}
	return all
}

// Starts, forecasts and holds agree: a bucket's head starts at the end of its hold, unless another
// begins then, and its expected start is the end of all holds. In odd seeds jobs do not use their
// estimates.
func TestTheReportedHoldIsTheRealOne(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 31))
		p := costly("", policy.Rule{})
		if p.Limits = drawnLimits(rng); rng.IntN(2) == 0 {
			p.Outflow = algorithms.Rate{}
		}
		b := newValveBench(t, p)
		b.start()
		for range 12 {
			b.arrive("a", tokens(1+rng.Int64N(20)))
		}
		var told pace.Instant
		var of uint64
		for b.now < origin.Add(5*time.Minute) && b.p.buckets["a"].queue.Len() > 0 {
			bucket := b.p.buckets["a"]
			by, until := b.view().held(bucket)
			head := bucket.queue.Head()
			wait, known := b.view().expect(b.p, head.Seq)
			runs := b.start()
			switch {
			case len(runs) > 0 && by != "":
				t.Fatalf("seed %d, %+v: job %d starts at %v, held by %s until %v", seed, p.Limits,
					head.Seq, b.now.Since(origin), by, until.Since(origin))
			case len(runs) == 0 && by == "":
				t.Fatalf("seed %d, %+v: job %d does not start at %v though nothing holds it", seed,
					p.Limits, head.Seq, b.now.Since(origin))
			case len(runs) == 0 && by != job.BlockedByStorage && (!known || until <= b.now ||
				b.now.Add(wait).Since(until) < -200*ms):
				t.Fatalf("seed %d, %+v: job %d is held by %s until %v, and expected at %v, %t",
					seed, p.Limits, head.Seq, by, until.Since(origin),
					b.now.Add(wait).Since(origin), known)
			}
			if seed%2 == 0 && known && of != head.Seq {
				of = head.Seq
				told = b.now.Add(wait)
			}
			for _, r := range runs {
				if seed%2 == 0 && (b.now.Since(told) > 200*ms || told.Since(b.now) > second) {
					t.Errorf("seed %d, %+v: job %d starts at %v, was told %v", seed, p.Limits,
						r.Seq, b.now.Since(origin), told.Since(origin))
				}
				o := record.Outcome{Kind: record.OutcomeDone}
				if seed%2 == 1 && rng.IntN(3) == 0 {
					o.Used = map[string]int64{"tokens": rng.Int64N(60)}
				}
				b.end(r, o)
				b.p.Confirmed(r.Seq, b.now)
			}
			if by, _ := b.view().held(bucket); by == job.BlockedByStorage {
				b.now = b.now.Add(askAgain + ms)
			}
			b.noted()
			if len(runs) == 0 {
				next := b.v.Wake(true)
				b.now = max(b.now, next)
			}
		}
		if b.p.buckets["a"].queue.Len() > 0 {
			t.Fatalf("seed %d: %+v: jobs are left", seed, p.Limits)
		}
	}
}
