package valve

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A bucket is punctual for a second; then something holds it until the third, and is reported with
// the time since the rate would have allowed the next start.
func TestCausesOfLateStarts(t *testing.T) {
	const from, until = second, 3 * second
	for name, c := range map[string]struct {
		policy func(*policy.Policy)
		run    func(b *valveBench, running Run)
		want   map[string]time.Duration
	}{
		"nothing": {run: func(b *valveBench, running Run) {
			b.done(running)
			b.until(until, b.done)
		}},
		"timers": {run: func(b *valveBench, running Run) {
			b.done(running)
			for now := from; now < until; now += 7 * ms {
				b.at(now)
				for _, r := range b.start() {
					b.done(r)
				}
			}
		}},
		"no processor": {run: func(b *valveBench, running Run) {
			b.done(running)
			b.at(until).start()
		}, want: map[string]time.Duration{job.LateByProcessor: 1900 * ms}},
		"no free worker": {policy: func(p *policy.Policy) { p.Workers = 1 },
			run: func(b *valveBench, running Run) {
				b.until(until, b.done)
				b.done(running)
				b.start()
			}, want: map[string]time.Duration{job.BlockedByWorkersBusy: 1900 * ms}},
		"nobody": {run: func(b *valveBench, running Run) {
			b.done(running)
			b.v.Crew.Local = false
			for now := from; now < until; now += 100 * ms {
				b.at(now).start()
				b.v.Offered(crew.OfferNobody, b.now)
			}
			b.v.Crew.Local = true
			b.at(until).start()
		}, want: map[string]time.Duration{job.BlockedByNoWorker: 1900 * ms}},
		"concurrency": {policy: func(p *policy.Policy) { p.Concurrency = 1 },
			run: func(b *valveBench, running Run) {
				b.until(until, b.done)
				b.done(running)
				b.start()
			}, want: map[string]time.Duration{job.BlockedByConcurrency: 1900 * ms}},
		"a pause": {run: func(b *valveBench, running Run) {
			b.done(running)
			b.v.SetOverride("a", inforce.Override{Paused: true}, b.now)
			b.start()
			b.at(until)
			b.v.SetOverride("a", inforce.Override{}, b.now)
			b.start()
		}, want: map[string]time.Duration{job.BlockedByPaused: 1900 * ms}},
		"a pause that lasts": {run: func(b *valveBench, running Run) {
			b.done(running)
			b.v.SetOverride("a", inforce.Override{Paused: true}, b.now)
			b.start()
			b.at(until)
		}, want: map[string]time.Duration{job.BlockedByPaused: 1900 * ms}},
		"a cool-down": {run: func(b *valveBench, running Run) {
			b.end(running, record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: until - from})
			b.start()
			b.at(until).start()
		}, want: map[string]time.Duration{job.BlockedByThrottled: 1900 * ms}},
		"the lease": {run: func(b *valveBench, running Run) {
			b.done(running)
			b.v.Advance(b.now, 0)
			b.at(until)
			b.v.Resume(b.now)
		}, want: map[string]time.Duration{job.BlockedByStorage: 1900 * ms}},
		"the lease, until now": {run: func(b *valveBench, running Run) {
			b.done(running)
			b.at(from + 100*ms)
			b.p.buckets["a"].changed()
			b.v.placeChanged(b.now)
			b.at(until)
			b.v.Advance(b.now, 0)
		}, want: map[string]time.Duration{job.BlockedByStorage: 1900 * ms}},
		"the target": {run: func(b *valveBench, running Run) {
			b.down(running)
			for b.now < origin.Add(until) && !b.p.buckets["a"].Target.Down() {
				b.until(b.now.Since(origin)+100*ms, b.down)
			}
			b.at(until)
		}, want: map[string]time.Duration{job.BlockedByBreaker: 1600 * ms}},
		"a limit": {policy: slowed(2), run: func(b *valveBench, running Run) {
			b.done(running)
			b.until(until, noted(b))
		}, want: map[string]time.Duration{job.LateByLimit: second}},
		"a limit that lasts": {policy: slowed(10), run: func(b *valveBench, running Run) {
			b.done(running)
			b.until(until, noted(b))
		}, want: map[string]time.Duration{job.LateByLimit: 1900 * ms}},
		"others": {policy: func(p *policy.Policy) { p.OutflowTotal = p.Outflow },
			run: func(b *valveBench, running Run) {
				b.done(running)
				for range 100 {
					b.arrive("b")
				}
				b.until(until, b.done)
			}, want: map[string]time.Duration{job.BlockedByTotalRate: second}},
	} {
		t.Run(name, func(t *testing.T) {
			p := leaky("api", "10/s")
			if c.policy != nil {
				c.policy(&p)
			}
			b := newValveBench(t, p)
			for range 100 {
				b.arrive("a")
			}
			b.until(from-1, noted(b))
			runs := b.at(from).start()
			if len(runs) != 1 {
				t.Fatalf("%d starts after a second", len(runs))
			}
			c.run(b, runs[0])
			got := b.view().bucketState(b.p, "a").LateMS
			for cause, want := range c.want {
				told := time.Duration(got[cause]) * ms
				if told < want*9/10 || told > want*11/10 {
					t.Errorf("late by %s: %v, want about %v", cause, told, want)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("told %v, want only %v", got, slices.Sorted(maps.Keys(c.want)))
			}
		})
	}
}

func noted(b *valveBench) func(Run) {
	return func(r Run) {
		b.done(r)
		b.noted()
	}
}

func slowed(seconds int64) func(*policy.Policy) {
	return func(p *policy.Policy) {
		p.Limits = policy.Limits{{Name: "jobs", Rule: policy.Rule{
			Algorithm: policy.SlidingLog, Limit: 11, Window: policy.Duration(seconds) *
				policy.Duration(time.Second)}}}
	}
}

func TestABucketReportsItsRate(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	for range 2000 {
		b.arrive("a")
	}
	b.until(time.Minute, b.done)
	s := b.view().bucketState(b.p, "a")
	if s.Outflow != 10 || s.RateMinute < 9.9 || s.RateMinute > 10.1 {
		t.Errorf("outflow %v, achieved %v", s.Outflow, s.RateMinute)
	}
	b.v.SetOverride("b", inforce.Override{Outflow: &b.v.Policy.Outflow}, b.now)
	if s := b.view().bucketState(b.p, "b"); s.Outflow != 10 || s.RateMinute != 0 {
		t.Errorf("a key without jobs: outflow %v, achieved %v", s.Outflow, s.RateMinute)
	}
}

func TestTheTimesHeldByLimitsAreReported(t *testing.T) {
	b := newValveBench(t, limited())
	told := map[string]time.Duration{}
	take := func(since time.Duration) map[string]time.Duration {
		clear(told)
		b.v.TakeHeld(b.now, since, func(limit string, held time.Duration) { told[limit] += held })
		return told
	}
	for range 4 {
		b.arrive("a", tokens(5))
		b.arrive("b", tokens(1))
		b.arrive("c", tokens(1))
	}
	b.until(second, noted(b))
	b.at(3 * second)
	if got := take(2 * second); !maps.Equal(got, map[string]time.Duration{"tokens": 2 * second,
		"jobs": 4 * second}) {
		t.Errorf("in two seconds %v", got)
	}
	b.p.Drop()
	b.at(4 * second)
	if got := take(second); len(got) > 0 {
		t.Errorf("%v of a partition that is lost", got)
	}
	b = newValveBench(t, account())
	for range 8 {
		b.arrive("a", tokens(2))
	}
	b.until(second, noted(b))
	b.at(3 * second)
	if got := take(2 * second); !maps.Equal(got, map[string]time.Duration{"account": 2 * second}) {
		t.Errorf("of all keys in two seconds %v", got)
	}
}

func TestLatestBuckets(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/s"))
	b.v.SetOverride("paused", inforce.Override{Paused: true}, b.now)
	for _, key := range []string{"stuck", "deep", "deep", "deep", "paused", "paused"} {
		b.arrive(key)
	}
	b.arrive("stuck")
	b.until(20*second, func(r Run) {
		o := record.Outcome{Kind: record.OutcomeDone}
		if r.Key == "stuck" {
			o = record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: time.Hour}
		}
		b.end(r, o)
	})
	for range 5 {
		b.arrive("deep")
	}
	if states, _ := b.list(job.ByLate, 0, 3); len(states) != 3 || states[0].Key != "stuck" {
		t.Errorf("%+v", states)
	}
	if _, got := b.view().lateMS(b.p.buckets["paused"]); got != 0 {
		t.Errorf("a paused bucket is %d ms late", got)
	}
}
