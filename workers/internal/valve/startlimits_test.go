package valve

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
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

// noted stores a checkpoint with all starts so far.
func (b *valveBench) noted() {
	begin(b.p)
	if b.p.Checkpoints.Store() {
		b.v.NotedFirst(b.v, b.now)
	}
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
		if by, until := b.view().held(bucket); by != want || until <= b.now {
			t.Errorf("%s is held by %q until %v", bucket.queue.Key, by, until)
		}
	}
	b.until(2*time.Minute, last)
	want := "map[a:[0s 0s 10.05s 1m0.05s] b:[0s 0s 0s 1m0.05s]]"
	if got := fmt.Sprint(starts); got != want {
		t.Errorf("starts at %s, want %s", got, want)
	}
}

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

// A start is charged when decided. One in flight for longer than the guard is returned, with its
// charge.
func TestAStartThatIsLateForItsLimitsGoesBack(t *testing.T) {
	p := limited()
	p.Limits[0].Window = p.Limits[1].Window
	b := newValveBench(t, p)
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

// An owner's first start under limits waits for its first checkpoint only: after a crash before
// that, all starts are known.
func TestNothingStartsUnderLimitsBeforeTheFirstCheckpoint(t *testing.T) {
	for _, key := range []string{"", policy.KeyGlobal} {
		b := unownedValve(t, daily(160, key))
		b.own()
		b.p.GoLive(b.now)
		b.arrive("a")
		if runs := b.start(); len(runs) > 0 {
			t.Errorf("key %q: a job starts", key)
		}
		begin(b.p)
		if !b.p.Checkpoints.Store() {
			t.Error("it is not the first")
		}
		b.v.NotedFirst(b.v, b.now)
		if runs := b.start(); len(runs) != 1 {
			t.Errorf("key %q: no job starts once the checkpoint is stored", key)
		}
	}
}

func TestUsedCostsAreSettled(t *testing.T) {
	b := newValveBench(t, limited())
	for range 2 {
		b.arrive("a", tokens(8))
	}
	r := b.start()[0]
	b.end(r, record.Outcome{Kind: record.OutcomeDone, Used: map[string]int64{"tokens": 2}})
	b.noted()
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

// Limits may no longer allow a job that has waited for a worker: no job starts in the last two
// guards of a clock window, which the target may count in the next.
func TestAJobThatHasWaitedForAWorkerAsksItsLimitsAgain(t *testing.T) {
	p := policy.Policy{Name: "api", Workers: 1, Rule: policy.Rule{
		Algorithm: policy.LeakingBucket, Capacity: 10}, Limits: policy.Limits{{Name: "jobs",
		Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 3,
			Window: policy.Duration(time.Minute)}}}}
	for _, came := range []time.Duration{50 * second, 120 * ms} {
		b := newValveBench(t, p)
		ends := b.wall().Truncate(time.Minute).Add(time.Minute).Sub(b.wall())
		if came > ends {
			ends += time.Minute
		}
		b.at(ends - came).arrive("a")
		first := b.start()[0]
		b.arrive("b")
		if early := b.start(); len(early) > 0 {
			t.Fatalf("%d jobs start beside the only worker", len(early))
		}
		b.at(ends - 40*ms).done(first)
		b.noted()
		starts := b.until(ends+time.Minute, func(Run) {})
		if want := ends + 50*ms; len(starts) != 1 || starts[0].Round(ms) != want.Round(ms) {
			t.Errorf("came %v before the end: starts at %v, want %v", came, starts, want)
		}
	}
}

func daily(limit int64, key string) policy.Policy {
	return policy.Policy{Name: "api", Workers: 1000, Rule: policy.Rule{
		Algorithm: policy.LeakingBucket, Capacity: 100_000}, Limits: policy.Limits{{Name: "daily",
		Key: key, Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: limit,
			Window: policy.Duration(24 * time.Hour)}}}}
}

func (b *valveBench) crowd(key string) *valveBench {
	for range 500 {
		b.arrive(key)
	}
	return b
}

// soon counts the starts of a moment, within the allowed unknown time.
func (b *valveBench) soon(noted func(Run)) int {
	return len(b.until(b.now.Since(origin)+300*ms, func(r Run) { b.done(r); noted(r) }))
}

func TestABudgetIsTrustedFromOwnersThatKeepIt(t *testing.T) {
	for _, key := range []string{"", policy.KeyGlobal} {
		for _, cost := range []string{"", "tokens"} {
			p := daily(160, key)
			p.Limits[0].Cost = cost
			b := newValveBench(t, p)
			b.crowd("a").noted()
			if n := b.soon(func(Run) {}); n != 10 {
				t.Fatalf("key %q: %d start without a checkpoint, want a sixteenth", key, n)
			}
			b.noted()
			h := b.p.Handover(b.now)
			old := h
			old.ByCost = nil
			for name, c := range map[string]struct {
				told record.Handover
				want int
			}{"its own": {h, 160 - 10 - 10}, "of nobody": {old, 0}} {
				next := unownedValve(t, p)
				next.seq = b.seq
				next.inheritFrom(inheritance.State{Handover: c.told, Crashed: true,
					Elapsed: second, Age: second, Fence: ms}).crowd("a").noted()
				if n := next.soon(func(Run) { next.noted() }); n != c.want {
					t.Errorf("key %q, cost %q, a budget %s: %d start, want %d", key, cost, name, n,
						c.want)
				}
			}
		}
	}
}

func TestDebtIsInTheBudget(t *testing.T) {
	for _, key := range []string{"", policy.KeyGlobal} {
		p := daily(1600, key)
		p.Limits[0].Cost = "tokens"
		b := newValveBench(t, p)
		for range 9 {
			b.arrive("a", tokens(5))
		}
		b.noted()
		runs := 0
		b.v.Crew.Most = 1
		b.until(300*ms, func(r Run) {
			runs++
			b.end(r, record.Outcome{Kind: record.OutcomeDone,
				Used: map[string]int64{"tokens": 120}})
		})
		if runs != 1 {
			t.Errorf("key %q: %d start though the first used more than the budget", key, runs)
		}
		b.noted()
		in := inheritance.State{Handover: b.p.Handover(b.now)}
		of := b.v.quota
		if of == nil {
			of = b.v.together.Limits
		}
		if n := in.Since(of, key != "")["tokens"]; n != 100-1+120 {
			t.Errorf("key %q: %d tokens are charged by a crash", key, n)
		}
	}
}

func TestAJobMayCostMoreThanABudget(t *testing.T) {
	for _, named := range []string{"", "tokens"} {
		p, of := daily(160, ""), cost(30)
		if p.Limits[0].Cost = named; named != "" {
			of = tokens(30)
		}
		b := newValveBench(t, p)
		for range 2 {
			b.arrive("a", of)
		}
		if n := b.soon(func(Run) {}); n != 0 {
			t.Errorf("%q: %d start though no checkpoint tells of their cost", named, n)
		}
		b.noted()
		if n := b.soon(func(Run) {}); n != 1 {
			t.Errorf("%q: %d of two jobs start that cost more than the budget", named, n)
		}
		in := inheritance.State{Handover: b.p.Handover(b.now)}
		if n := in.Since(b.v.quota, false)[named]; n != 10-1+30 {
			t.Errorf("%q: %d units are charged", named, n)
		}
	}
}

// Limits change while a record has a smaller budget, or no budget, and records are lost. The
// unknown units never exceed the record that a successor may find.
func TestABudgetIsAlsoTheRecords(t *testing.T) {
	large := daily(1600, "")
	large.Limits = append(large.Limits, policy.Limit{Name: "more", Rule: policy.Rule{
		Algorithm: policy.SlidingLog, Limit: 3200, Window: policy.Duration(24 * time.Hour)}})
	none := func(Run) {}
	b := newValveBench(t, daily(160, ""))
	b.noted()
	for range 6 {
		b.arrive("a")
	}
	if n := b.soon(none); n != 6 {
		t.Fatalf("%d of six start", n)
	}
	b.v.Change(large.WithDefaults(), false, b.now)
	begin(b.p)
	if n := b.crowd("a").soon(none); n != 4 {
		t.Errorf("%d more start while the record is written, want what was left of ten", n)
	}
	b.p.Checkpoints.Store()
	if n := b.soon(none); n != 100-4 {
		t.Errorf("%d start by the larger budget, want what is left of a hundred", n)
	}
	for range 3 {
		begin(b.p)
		if n := b.soon(none); n != 0 {
			t.Errorf("%d start though the record was not stored", n)
		}
	}
	b.noted()
	b.v.Change(daily(160, "").WithDefaults(), false, b.now)
	begin(b.p)
	b.v.Change(large.WithDefaults(), false, b.now)
	if n := b.soon(none); n != 10 {
		t.Errorf("%d start though the record of a smaller budget may be stored, want 10", n)
	}
	b.noted()
	begin(b.p)
	if n := b.soon(none); n != 100 {
		t.Errorf("%d start once all is told, want 100", n)
	}
	b.p.Checkpoints.Store()
	if n := b.soon(none); n != 0 {
		t.Errorf("%d start though none is told of the last hundred", n)
	}
}
