package valve

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func TestAKeyHasOneBucketInARecreatedStream(t *testing.T) {
	p := leaky("api", "10/s")
	p.Concurrency = 2
	b := newValveBench(t, p)
	b.arrive("a")
	run := b.start()[0]
	b.at(time.Minute)
	b.p.restart()
	b.v.Advance(b.now, pace.Never)
	b.seq = 0
	for range 30 {
		b.arrive("a")
	}
	first := b.p.buckets["a"]
	if first.Running != 1 {
		t.Errorf("%d jobs of the bucket run, want that of the old stream", first.Running)
	}
	b.end(run, record.Outcome{Kind: record.OutcomeDone})
	for range 30 {
		b.arrive("a")
	}
	if b.p.buckets["a"] != first {
		t.Error("the key has two buckets")
	}
	if why := pacetest.Exceeds(b.until(time.Minute+4*second, b.done), 10, 1); why != "" {
		t.Errorf("law 2: %s", why)
	}
}

func TestAFasterRateEndsASlowWait(t *testing.T) {
	slow, fast := leaky("", "1/d").Outflow, leaky("", "10/s").Outflow
	said := func(o inforce.Override) func(*valveBench) {
		return func(b *valveBench) { b.v.SetOverride("a", o, b.now) }
	}
	policySaid := func(rate string, paused bool) func(*valveBench) {
		return func(b *valveBench) {
			p := b.v.Policy
			p.Outflow = algorithms.Rate{}
			if rate != "" {
				p.Outflow = leaky("", rate).Outflow
			}
			b.v.Change(p, paused, b.now)
		}
	}
	for name, changes := range map[string][]func(*valveBench){
		"a paused override is replaced": {said(inforce.Override{Outflow: &slow, Paused: true}),
			said(inforce.Override{Outflow: &fast})},
		"a paused override is taken away": {said(inforce.Override{Outflow: &slow, Paused: true}),
			said(inforce.Override{})},
		"the rate changes during a pause": {
			said(inforce.Override{Outflow: &slow, Paused: true}),
			said(inforce.Override{Outflow: &fast, Paused: true}), said(inforce.Override{}),
		},
		"a paused policy is resumed at another rate": {policySaid("1/d", true),
			policySaid("10/s", false), said(inforce.Override{})},
		"there was no rate for a while": {policySaid("", false),
			said(inforce.Override{}), policySaid("10/s", false)},
	} {
		t.Run(name, func(t *testing.T) {
			b := newValveBench(t, leaky("api", "10/s"))
			said(inforce.Override{Outflow: &slow})(b)
			b.arrive("a")
			b.done(b.start()[0])
			for i, change := range changes {
				b.at(time.Duration(i+1) * 100 * ms)
				change(b)
			}
			for range 3 {
				b.arrive("a")
			}
			starts := b.until(time.Hour, b.done)
			if len(starts) != 3 || starts[2] > 2*second {
				t.Errorf("at 10/s, not paused: starts within an hour %v", starts)
			}
			if why := pacetest.Exceeds(starts, 10, 1); why != "" {
				t.Errorf("law 2: %s", why)
			}
		})
	}
}

func TestALowerMaxCooldownEndsACooldown(t *testing.T) {
	for rate, want := range map[string]time.Duration{"10/s": 3 * second, "1/m": time.Minute} {
		p := leaky("api", rate)
		p.Burst = 5
		p.Retry.MaxCooldown = policy.Duration(time.Hour)
		b := newValveBench(t, p)
		b.arrive("a")
		for range 20 {
			b.arrive("a")
		}
		runs := b.start()
		b.end(runs[0], record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: time.Hour})
		for _, r := range runs[1:] {
			b.done(r)
		}
		b.at(second)
		p = b.v.Policy
		p.Retry.MaxCooldown = policy.Duration(2 * second)
		b.v.Change(p, false, b.now)
		starts := b.until(30*time.Minute, b.done)
		if len(starts) < 16 || starts[0] < 3*second || starts[0] > want+ms {
			t.Errorf("%s: max_cooldown is 2 s, said at 1 s: starts %v", rate, starts)
		} else if starts[1]-starts[0] < 90*ms {
			t.Errorf("%s: the end of a cool-down lets a burst start: %v", rate, starts[:3])
		}
	}
}

func TestAnotherTargetIsProbedAtOnce(t *testing.T) {
	p := leaky("api", "10/s")
	p.Retry.Backoff, p.Retry.MaxBackoff = policy.Duration(time.Minute), policy.Duration(time.Minute)
	b := newValveBench(t, p)
	for range 10 {
		b.arrive("a")
	}
	b.until(700*ms, b.down)
	if !b.p.buckets["a"].Target.Down() {
		t.Fatal("the breaker is closed")
	}
	b.at(second)
	p = b.v.Policy
	p.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: "http://another.test"}}
	b.v.Change(p, false, b.now)
	if runs := b.start(); len(runs) != 1 {
		t.Errorf("%d probes start at once, want 1", len(runs))
	}
}
