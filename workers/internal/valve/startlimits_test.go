package valve

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// limited is a policy without an outflow: 3 jobs a minute, and 10 tokens in any ten seconds.
func limited() policy.Policy {
	window := func(d time.Duration) policy.Duration { return policy.Duration(d) }
	return policy.Policy{Name: "api", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
		Capacity: 100_000}, Limits: policy.Limits{
		{Name: "jobs", Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 3,
			Window: window(time.Minute)}},
		{Name: "tokens", Cost: "tokens", Rule: policy.Rule{Algorithm: policy.SlidingLog,
			Limit: 10, Window: window(10 * time.Second)}}}}
}

func tokens(n int64) func(*job.Arrived) {
	return func(a *job.Arrived) { a.Costs = map[string]int64{"tokens": n} }
}

// noted is that a checkpoint tells of all that has started.
func (b *valveBench) noted() {
	b.p.unnoted.gathered()
	b.p.Noted(true)
}

func TestALimitHoldsItsBucketAndNoOther(t *testing.T) {
	b := newValveBench(t, limited())
	for range 4 {
		b.arrive("a", tokens(5))
		b.arrive("b", tokens(1))
	}
	starts := map[string][]time.Duration{}
	last := func(r Run) {
		starts[string(r.Key)] = append(starts[string(r.Key)], b.now.Since(origin).Round(ms))
		b.done(r)
		b.noted()
	}
	b.until(second, last)
	a, other := b.p.buckets["a"], b.p.buckets["b"]
	for bucket, want := range map[*bucket]string{a: "limit:tokens", other: "limit:jobs"} {
		if by, until := b.v.held(bucket, b.now); by != want || until <= b.now {
			t.Errorf("%s is held by %q until %v", bucket.key, by, until)
		}
	}
	b.until(2*time.Minute, last)
	want := "map[a:[0s 0s 10.05s 1m0.05s] b:[0s 0s 0s 1m0.05s]]"
	if got := fmt.Sprint(starts); got != want {
		t.Errorf("starts at %s, want %s", got, want)
	}
}

// It is kept until then, and not longer: keys come from the outside.
func TestABucketIsForgottenOnceItsLimitsCountNothing(t *testing.T) {
	b := newValveBench(t, limited())
	for _, at := range []time.Duration{0, 50 * second} {
		b.at(at).arrive("a", tokens(1))
		b.until(at+second, b.done)
		b.noted()
	}
	if b.until(109*second, nil); b.p.Buckets() != 1 {
		t.Error("what counts of its limits is forgotten")
	}
	if b.until(112*second, nil); b.p.Buckets() != 0 {
		t.Error("it is kept for ever")
	}
}

// A start is charged when it is decided. One that is on its way for longer than the guard covers
// goes back, and what it took of the limits with it.
func TestAStartThatIsLateForItsLimitsGoesBack(t *testing.T) {
	b := newValveBench(t, limited())
	for range 3 {
		b.arrive("a", tokens(1))
	}
	b.v.Advance(b.now, pace.Never)
	runs := b.out.Starts
	b.out.Starts = nil
	for i, r := range runs {
		late := b.now.Add(26 * ms)
		if i == 0 {
			late = b.now.Add(25 * ms)
		}
		_, passed := r.Decide(func() (fence, now pace.Instant) { return pace.Never, late }, nil)
		if passed != (i == 0) {
			t.Fatalf("start %d: %v", i, passed)
		}
		if !passed {
			b.end(r, record.Outcome{Kind: record.OutcomeReturned})
		}
	}
	starts := b.until(time.Minute, b.done)
	if len(starts) != 2 || starts[1] > second {
		t.Errorf("they start at %v", starts)
	}
}

func TestNothingStartsUnderLimitsForLongWithoutACheckpoint(t *testing.T) {
	p := limited()
	p.Limits[0].Limit = 100
	b := newValveBench(t, p)
	b.arrive("a", cost(2), tokens(1))
	if b.start(); b.p.buckets["a"].running != 0 {
		t.Error("a job starts that costs more than is known")
	}
	b.noted()
	b.at(second)
	b.done(b.start()[0])
	b.at(3*second - ms)
	b.arrive("a", tokens(1))
	b.done(b.start()[0])
	b.at(3*second + ms)
	b.arrive("b", tokens(1))
	if b.start(); b.p.buckets["b"].running != 0 {
		t.Error("a job starts two seconds after one that no checkpoint tells of")
	}
	b.p.unnoted.gathered()
	b.p.Noted(false)
	if b.at(4 * second).start(); b.p.buckets["b"].running != 0 {
		t.Error("a job starts although the checkpoint was not stored")
	}
	b.noted()
	if starts := b.until(5*second, b.done); len(starts) != 1 {
		t.Errorf("starts at %v once all are told of", starts)
	}
}

func TestWhatARunUsedIsSettled(t *testing.T) {
	b := newValveBench(t, limited())
	for range 2 {
		b.arrive("a", tokens(8))
	}
	r := b.start()[0]
	b.end(r, record.Outcome{Kind: record.OutcomeDone, Used: map[string]int64{"tokens": 2}})
	if starts := b.until(second, b.done); len(starts) != 1 {
		t.Errorf("the second starts at %v though 2 of 8 were used", starts)
	}
	b = newValveBench(t, limited())
	b.arrive("a", tokens(1))
	b.end(b.start()[0],
		record.Outcome{Kind: record.OutcomeDone, Used: map[string]int64{"tokens": 19}})
	b.noted()
	b.arrive("a", tokens(1))
	starts := b.until(time.Minute, b.done)
	if len(starts) != 1 || starts[0] < 10*second || starts[0] > 21*second {
		t.Errorf("starts at %v though the first used 19 of 10 in ten seconds", starts)
	}
}

func TestAJobThatALimitNeverLetsPassIsBuried(t *testing.T) {
	b := newValveBench(t, limited())
	b.arrive("a", tokens(11))
	b.arrive("a", cost(4))
	if got := b.reasons(); got != "[malformed malformed]" {
		t.Errorf("buried as %s", got)
	}
}

// What the limits allowed before a job waited for a worker they may not allow any more: nothing
// starts in the last two guards of a clock's window, which the other side may count in the next.
func TestAJobThatHasWaitedForAWorkerAsksItsLimitsAgain(t *testing.T) {
	p := policy.Policy{Name: "api", Workers: 1, Rule: policy.Rule{
		Algorithm: policy.LeakingBucket, Capacity: 10}, Limits: policy.Limits{{Name: "jobs",
		Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 3,
			Window: policy.Duration(time.Minute)}}}}
	for _, came := range []time.Duration{50 * second, 120 * ms} { // before the window ends
		b := newValveBench(t, p)
		ends := b.wall().Truncate(time.Minute).Add(time.Minute).Sub(b.wall())
		if came > ends {
			ends += time.Minute
		}
		b.at(ends - came).arrive("a")
		first := b.start()[0]
		b.arrive("b")
		b.at(ends - 40*ms).done(first)
		b.noted()
		starts := b.until(ends+time.Minute, func(Run) {})
		if want := ends + 50*ms; len(starts) != 1 || starts[0].Round(ms) != want.Round(ms) {
			t.Errorf("came %v before the end: starts at %v, want %v", came, starts, want)
		}
	}
}
