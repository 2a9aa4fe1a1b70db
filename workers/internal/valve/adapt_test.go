package valve

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/adapt"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func adapting(outflow string) policy.Policy {
	p := leaky("api", outflow)
	p.AdaptiveRate = &policy.AdaptiveRate{}
	p.Capacity = policy.MaxCapacity
	return p
}

func TestLearningCountsTheBucketsThatItSlows(t *testing.T) {
	p, _ := bareParts()
	n, b := &learning{rule: &policy.AdaptiveRate{}}, bucketOf(p, "a")
	b.limits = limitsFor(leaky("api", "10/s").WithDefaults(), inforce.Override{}, false)
	b.own().Cool = origin.Add(second)
	under := b.limits
	if !n.learn(b, origin, origin) || n.lowered != 1 || b.pace.Rate.PerSecond() >= 10 {
		t.Errorf("after a throttle: %d slowed, %v per second", n.lowered, b.pace.Rate.PerSecond())
	}
	n.relearn(b, true, nil)
	if b.limits = under; n.lowered != 0 || b.learnt != nil {
		t.Errorf("after another policy: %d slowed", n.lowered)
	}
	n.rule = nil
	if n.learn(b, origin, origin) || n.lowered != 0 {
		t.Error("a policy without the rule slows its buckets")
	}
}

type target struct {
	limit  func(at time.Duration) int
	within []pace.Instant
}

func (t *target) serves(now pace.Instant) bool {
	for len(t.within) > 0 && t.within[0] <= now.Add(-second) {
		t.within = t.within[1:]
	}
	if len(t.within) >= t.limit(now.Since(origin)) {
		return false
	}
	t.within = append(t.within, now)
	return true
}

func (b *valveBench) calls(t *target, latency, until time.Duration,
	each func(at time.Duration, served bool)) {
	type answer struct {
		run Run
		at  pace.Instant
		record.Outcome
	}
	var under []answer
	for b.now < origin.Add(until) {
		for len(b.p.buckets) == 0 || b.p.buckets["a"].queue.Len() < 100 {
			b.arrive("a")
		}
		for _, r := range b.start() {
			o := record.Outcome{Kind: record.OutcomeDone}
			served := t.serves(b.now)
			if !served {
				o = record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: second}
			}
			each(b.now.Since(origin), served)
			under = append(under, answer{r, b.now.Add(latency), o})
		}
		next := b.v.Wake(true)
		if len(under) > 0 && under[0].at <= next {
			a := under[0]
			under = under[1:]
			b.now = max(b.now, a.at)
			b.end(a.run, a.Outcome)
			b.out.Reset()
			if a.Kind == record.OutcomeDone {
				b.p.Confirmed(a.run.Seq, b.now)
			}
			continue
		}
		b.now = max(b.now, next)
	}
}

// docs/guide.md promises that a steady target throttles fewer than one call in 200, that more than
// 95 % of its limit is used, and that changes are found.
func TestABucketFindsItsTargetsHiddenLimit(t *testing.T) {
	for _, c := range []struct {
		limit   int
		latency time.Duration
	}{{5, 50 * ms}, {30, 50 * ms}, {30, second}, {150, 50 * ms}} {
		b := newValveBench(t, adapting("300/s"))
		var served, throttled int
		b.calls(&target{limit: func(time.Duration) int { return c.limit }}, c.latency,
			20*time.Minute, func(at time.Duration, ok bool) {
				switch {
				case at < 3*time.Minute:
				case ok:
					served++
				default:
					throttled++
				}
			})
		share := 100 * float64(throttled) / float64(served+throttled)
		use := 100 * float64(served) / (17 * 60 * float64(c.limit))
		t.Logf("%3d/s of an outflow of 300/s, answers after %v: %.2f %% throttled, %.1f %% used",
			c.limit, c.latency, share, use)
		if share >= 0.5 || use <= 95 {
			t.Errorf("%d/s: %.2f %% throttled, %.1f %% used", c.limit, share, use)
		}
	}
}

func TestABucketFollowsALimitThatChanges(t *testing.T) {
	const change = 10 * time.Minute
	for _, c := range []struct {
		from, to int
		most     time.Duration
	}{{100, 50, time.Minute}, {100, 10, time.Minute}, {50, 75, 2 * time.Minute},
		{20, 100, 3 * time.Minute}} {
		b := newValveBench(t, adapting("120/s"))
		limit := func(at time.Duration) int {
			if at < change {
				return c.from
			}
			return c.to
		}
		seconds := make([]struct{ served, throttled int }, 20*60+1)
		b.calls(&target{limit: limit}, 50*ms, 20*time.Minute, func(at time.Duration, ok bool) {
			if s := &seconds[int(at/second)]; ok {
				s.served++
			} else {
				s.throttled++
			}
		})
		found := time.Duration(0)
		for ; ; found += second {
			var served, throttled int
			for _, s := range seconds[int((change+found)/second):][:60] {
				served += s.served
				throttled += s.throttled
			}
			if served >= c.to*60*9/10 && throttled*100 <= served {
				break
			}
		}
		t.Logf("from %d to %d/s: found after %v", c.from, c.to, found)
		if found > c.most {
			t.Errorf("from %d to %d/s: found after %v, want %v", c.from, c.to, found, c.most)
		}
	}
}

func TestALearntLimitOnlyLowersTheRate(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := adapting("20/s")
		p.Burst = 1 + r.Int64N(5)
		p.Retry.Backoff = policy.Duration(ms)
		b := newValveBench(t, p)
		var starts []time.Duration
		limit, until := 100, time.Duration(0)
		b.calls(&target{limit: func(at time.Duration) int {
			if at > until {
				limit, until = r.IntN(30), at+time.Duration(r.Int64N(int64(30*second)))
			}
			return limit
		}}, 20*ms, 3*time.Minute, func(at time.Duration, _ bool) { starts = append(starts, at) })
		if law := pacetest.Exceeds(starts, 20, p.Burst); law != "" {
			t.Errorf("seed %d: %s", seed, law)
		}
	}
}

func TestALearntLimitIsShownAndForgotten(t *testing.T) {
	b := newValveBench(t, adapting("10/s"))
	throttle := func() {
		b.arrive("a")
		b.arrive("a")
		b.end(b.start()[0], record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: second})
		b.now = b.now.Add(second)
	}
	adapted := func() float64 { return b.view().bucketState(b.p, "a").Adapted }
	throttle()
	if got := adapted(); math.Abs(got-9.5) > 1e-6 || b.view().Lowered() != 1 {
		t.Fatalf("after a throttle its rate is %v, and %d buckets are slower", got,
			b.view().Lowered())
	}
	if told := b.out.Adapted; len(told) != 1 || math.Abs(told[0].PerSecond-9.5) > 1e-6 ||
		told[0].Key != "a" {
		t.Errorf("told: %+v", b.out.Adapted)
	}
	if at := b.view().room(b.p, "a"); at < 100*ms*20/19 {
		t.Errorf("a place comes free after %v", at)
	}
	b.v.Change(b.v.Policy, true, b.now)
	b.v.Change(b.v.Policy, false, b.now)
	b.v.SetOverride("a", inforce.Override{Paused: true}, b.now)
	b.v.SetOverride("a", inforce.Override{}, b.now)
	if got := adapted(); got < 9.5 || got > 9.7 {
		t.Errorf("after a pause its rate is %v", got)
	}
	p := b.v.Policy
	p.Timeout *= 2
	b.v.Change(p, false, b.now)
	if got := adapted(); got != 0 || b.view().Lowered() != 0 {
		t.Errorf("under another policy its rate is %v, and %d buckets are slower", got,
			b.view().Lowered())
	}
	b.now = b.now.Add(second)
	throttle()
	b.v.SetOverride("a", inforce.Override{Outflow: &algorithms.Rate{Count: 5, Per: second}}, b.now)
	if got := adapted(); got != 0 {
		t.Errorf("with an outflow of its own its rate is %v", got)
	}
}

func TestALearntLimitIsHandedOver(t *testing.T) {
	for _, crashed := range []bool{false, true} {
		b := newValveBench(t, adapting("10/s"))
		for range 5 {
			b.arrive("a")
		}
		b.end(b.start()[0], record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: second})
		b.now = b.now.Add(1500 * ms)
		g := b.p.Gather()
		g.Some(10, b.now, b.now.Add(5*second))
		h := b.p.HandoverBut(b.now)
		h.Clocks = g.Records(b.now, h)
		heir := unownedValve(t, adapting("10/s"))
		heir.own()
		heir.now = b.now.Add(2 * second)
		heir.p.Opened(time.Time{}, 0, &inheritance.State{Crashed: crashed, Owner: "self",
			Elapsed: 2 * second, Age: 2 * second, Handover: h}, heir.now)
		if heir.p.buckets["a"] == nil || heir.p.buckets["a"].learnt == nil {
			t.Fatalf("crashed %v: nothing is known of %+v", crashed, h.Clocks)
		}
		b.now = heir.now
		least, most := b.v.learning.bounds(b.v.base.pace)
		for after := range 60 {
			at := time.Duration(b.now) + time.Duration(after)*second
			was := b.p.buckets["a"].learnt.Rate(at, least, most)
			is := heir.p.buckets["a"].learnt.Rate(at, least, most)
			if math.Abs(is/was-1) > 1e-4 {
				t.Fatalf("crashed %v: the rate is %v, and was %v", crashed, is, was)
			}
		}
		if got := heir.view().bucketState(heir.p, "a").Adapted; got < 9.5 ||
			got > 9.8 {
			t.Errorf("crashed %v: the rate is %v", crashed, got)
		}
		other := adapting("20/s")
		heir = unownedValve(t, other)
		heir.own()
		heir.p.Opened(time.Time{}, 0, &inheritance.State{Handover: h}, heir.now)
		if heir.p.buckets["a"].learnt != nil {
			t.Error("what was learnt below another outflow is inherited")
		}
	}
}

func TestALearntLimitIsForgottenWithItsBucket(t *testing.T) {
	b := newValveBench(t, adapting("10/s"))
	b.arrive("a")
	r := b.start()[0]
	b.end(r, record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: second})
	b.now = b.now.Add(second)
	r = b.start()[0]
	b.end(r, record.Outcome{Kind: record.OutcomeDone})
	b.p.Confirmed(r.Seq, b.now)
	began := b.now
	for len(b.p.buckets) > 0 && b.now < origin.Add(time.Hour) {
		b.now = max(b.now+1, b.v.Wake(true))
		b.v.Advance(b.now, pace.Never)
	}
	if took := b.now.Since(began); took < 30*second || took > 2*adapt.Recovery ||
		b.view().Lowered() != 0 {
		t.Errorf("it is forgotten after %v, %d buckets are slower", took, b.view().Lowered())
	}
}
