package valve

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func (b *valveBench) down(r Run) {
	b.end(r, record.Outcome{Kind: record.OutcomeFailed, Unavailable: true,
		Error: "connection refused"})
	b.record()
}

func (b *valveBench) record() {
	for _, s := range b.out.Saves {
		b.v.stock.saved(b.p.jobs[s.Seq], b.now)
	}
	b.out.Saves = nil
}

func (b *valveBench) attempts() (n int) {
	for _, j := range b.p.jobs {
		n += j.Attempts
	}
	return n
}

// The target is down for ten minutes. A few attempts count, one job a minute probes, and then every
// bucket continues at its rate.
func TestAnOutageCountsNoAttemptsAndEndsWithoutAClump(t *testing.T) {
	const length = 10 * time.Minute
	for name, c := range map[string]struct {
		policy        policy.Policy
		buckets, jobs int
		counted       int
	}{
		"one bucket":                   {leaky("api", "10/s"), 1, 200, gates.MostSuspectJobs},
		"many buckets":                 {leaky("api", "10/s"), 40, 20, gates.MostSuspectBuckets},
		"many buckets of one job each": {leaky("api", "10/s"), 300, 1, gates.MostSuspectBuckets},
		"with a burst": {with(leaky("api", "10/s"), func(p *policy.Policy) {
			p.Burst = 5
		}), 10, 50, gates.MostSuspectBuckets},
		"a total outflow": {total("20/s"), 20, 20, gates.MostSuspectBuckets},
	} {
		t.Run(name, func(t *testing.T) {
			b := newValveBench(t, c.policy)
			for range c.jobs {
				for k := range c.buckets {
					b.arrive(fmt.Sprintf("key-%d", k))
				}
			}
			var lost []time.Duration
			b.until(length, func(r Run) {
				lost = append(lost, b.now.Since(origin))
				b.down(r)
			})
			if n := b.attempts(); n != c.counted {
				t.Errorf("%d attempts were counted, want %d", n, c.counted)
			}
			probes := slices.DeleteFunc(lost, func(at time.Duration) bool { return at < 500*ms })
			if n := len(probes); n < 12 || n > 24 {
				t.Errorf("%d probes in %v", n, length)
			}
			if b.reasons() != "[]" || b.v.Breakers().Open() == 0 {
				t.Errorf("letters %s, %d breakers are open", b.reasons(), b.v.Breakers().Open())
			}
			starts := map[queue.Key][]time.Duration{}
			all := b.until(length+5*time.Minute, func(r Run) {
				starts[r.Key] = append(starts[r.Key], b.now.Since(origin))
				b.done(r)
			})
			if len(b.p.jobs) > 0 {
				t.Errorf("%d jobs are left", len(b.p.jobs))
			}
			if b.v.Breakers().Open() != 0 {
				t.Errorf("%d breakers are open", b.v.Breakers().Open())
			}
			burst := min(2, max(1, c.policy.Burst))
			for key, s := range starts {
				if !c.policy.Outflow.IsZero() {
					if why := pacetest.Exceeds(s, 10, burst); why != "" {
						t.Errorf("%s: %s", key, why)
					}
				}
			}
			if !c.policy.OutflowTotal.IsZero() {
				if why := pacetest.Exceeds(all, 20, 1); why != "" {
					t.Error(why)
				}
			}
			if first := all[0] - length; first > gates.MostProbeWait {
				t.Errorf("it was noticed after %v that the target is back", first)
			}
		})
	}
}

func TestAnswersOfJobsUnderWayWhenABreakerOpens(t *testing.T) {
	b := newValveBench(t, policy.Policy{Name: "door",
		Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 10,
			Refill: leaky("", "1/s").Outflow},
		Queue: &policy.Queue{Capacity: 100}, Workers: 64})
	for range 100 {
		b.arrive("a")
	}
	runs := b.start()
	for _, r := range runs {
		b.down(r)
	}
	if n := b.attempts(); len(runs) < 20 || n != gates.MostSuspectJobs {
		t.Errorf("%d attempts of %d runs were counted, want %d", n, len(runs),
			gates.MostSuspectJobs)
	}
	if more := b.start(); len(more) > 0 {
		t.Errorf("%d jobs start while the breaker is open", len(more))
	}
	b.now = b.p.buckets["a"].Target.At
	probe := b.start()
	if len(probe) != 1 || b.p.jobs[probe[0].Seq].tried != 0 {
		t.Fatalf("probes: %s", b.seqs(probe))
	}
	if more := b.at(time.Minute).start(); len(more) > 0 {
		t.Errorf("%d jobs start beside the probe", len(more))
	}
	b.done(probe[0])
	if more := b.start(); len(more) == 0 || more[0].Seq != 1 {
		t.Errorf("after the probe %s start", b.seqs(more))
	}
}

func TestEarlierRunsAreNoProbes(t *testing.T) {
	for name, keys := range map[string]int{"a bucket's breaker": 1,
		"that of all buckets": 2 * gates.MostSuspectBuckets} {
		b := newValveBench(t, leaky("api", "1000/s"))
		for i := range 60 {
			b.arrive(fmt.Sprint("k", i%keys))
		}
		var runs []Run
		b.until(second/10, func(r Run) { runs = append(runs, r) })
		opened := func() gates.Breaker {
			if keys == 1 && b.p.buckets["k0"].Target != nil {
				return b.p.buckets["k0"].Target.Breaker
			}
			return b.v.health.All
		}
		b.at(second)
		for len(runs) > 4 && !opened().Open {
			b.down(runs[0])
			runs = runs[1:]
		}
		before := opened()
		if !before.Open || len(runs) < 4 {
			t.Fatalf("%s: open %v, %d runs are under way", name, before.Open, len(runs))
		}
		b.down(runs[0])
		b.done(runs[1])
		if opened() != before {
			t.Errorf("%s: at the same instant: %+v became %+v", name, before, opened())
		}
		b.at(second + ms)
		b.down(runs[2])
		b.done(runs[3])
		if opened() != before {
			t.Errorf("%s: later: %+v became %+v", name, before, opened())
		}
	}
}

func TestABreakerThatClosesIsNoBurst(t *testing.T) {
	b := newValveBench(t, with(leaky("api", "10/s"), func(p *policy.Policy) { p.Burst = 5 }))
	for range gates.MostSuspectJobs {
		b.arrive("a")
	}
	b.until(20*second, b.down)
	for seq := uint64(2); seq <= gates.MostSuspectJobs; seq++ {
		b.p.cancel(seq)
		b.p.Confirmed(seq, b.now)
	}
	b.now = b.p.buckets["a"].Target.At
	probe := b.start()
	b.now = b.now.Add(10 * second)
	for range 10 {
		b.arrive("a")
	}
	b.done(probe[0])
	if runs := b.start(); len(runs) != 1 {
		t.Errorf("%d jobs start as the breaker closes", len(runs))
	}
}

func TestClosingABreaker(t *testing.T) {
	for kind, want := range map[record.OutcomeKind]int{
		record.OutcomeDone: 0, record.OutcomePermanent: 0, record.OutcomeThrottled: 0,
		record.OutcomeFailed:   0,
		record.OutcomeReturned: 1, record.OutcomeUncounted: 1,
	} {
		b := newValveBench(t, leaky("api", "1000/s"))
		for range 20 {
			b.arrive("a")
		}
		b.until(second/4, b.down)
		if b.v.Breakers().Open() != 1 {
			t.Fatalf("%d breakers are open", b.v.Breakers().Open())
		}
		b.now = b.p.buckets["a"].Target.At
		b.end(b.start()[0], record.Outcome{Kind: kind})
		if n := b.v.Breakers().Open(); n != want {
			t.Errorf("%d breakers are open after a probe that ended %s", n, kind)
		}
		b.now = b.now.Add(ms)
		if again := b.start(); want == 1 && len(again) != 1 {
			t.Errorf("%d probes after one that ended %s", len(again), kind)
		}
	}
}

// A long probe does not stop the bucket: one starts each minute, and the first to end decides.
func TestAProbeThatRunsForLongIsNotTheOnlyOne(t *testing.T) {
	for name, keys := range map[string]int{"a bucket's breaker": 1,
		"that of all buckets": 2 * gates.MostSuspectBuckets} {
		t.Run(name, func(t *testing.T) {
			b := newValveBench(t, leaky("api", "10/s"))
			for i := range 60 {
				b.arrive(fmt.Sprint("k", i%keys))
			}
			b.until(2*second, b.down)
			if b.v.Breakers().Open() == 0 {
				t.Fatal("no breaker is open")
			}
			var probes []Run
			b.until(5*time.Minute, func(r Run) { probes = append(probes, r) })
			if n := len(probes); n < 4 || n > 5 {
				t.Fatalf("%d probes in five minutes in which none ended", n)
			}
			b.done(probes[len(probes)-1])
			if keys == 1 && b.v.Breakers().Open() > 0 || b.v.health.All.Open {
				t.Errorf("%d breakers are open after a probe that found the target up",
					b.v.Breakers().Open())
			}
		})
	}
}

func TestABucketsBreakerIsItsOwn(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	for range 100 {
		for _, key := range []string{"down", "up", "fine"} {
			b.arrive(key)
		}
	}
	ran := 0
	b.until(10*second, func(r Run) {
		if r.Key == "down" {
			b.down(r)
		} else {
			b.done(r)
			ran++
		}
	})
	if ran != 200 {
		t.Errorf("%d of 200 jobs of healthy buckets ran", ran)
	}
	if b.v.Breakers().Open() != 1 {
		t.Errorf("%d breakers are open, want that of the bucket", b.v.Breakers().Open())
	}
}

func TestBucketsInARowOpenTheBreakerOfAll(t *testing.T) {
	for name, up := range map[string]bool{"in a row": false, "with others in between": true} {
		b := newValveBench(t, leaky("api", "10/s"))
		for i := range gates.MostSuspectBuckets {
			b.arrive(fmt.Sprint("down-", i))
			b.down(b.start()[0])
			if up {
				b.arrive(fmt.Sprint("up-", i))
				b.done(b.start()[0])
			}
		}
		if b.v.health.All.Open == up {
			t.Errorf("%s: the breaker of all is open: %v", name, b.v.health.All.Open)
		}
	}
}

// Law 5: buckets with a failing target do not take all probes from a working one, although it runs
// jobs and they do not.
func TestEveryBucketIsProbed(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	for range 3 {
		b.arrive("up")
	}
	b.until(second, func(Run) {})
	for i := range 10 * gates.MostSuspectBuckets {
		b.arrive(fmt.Sprint("down-", i%gates.MostSuspectBuckets))
	}
	b.until(2*second, b.down)
	if !b.v.health.All.Open {
		t.Fatal("the breaker is closed")
	}
	last := b.arrive("up")
	var waited time.Duration
	b.until(10*time.Minute, func(r Run) {
		if r.Ref == last.ref() {
			waited = b.now.Since(origin)
			b.done(r)
			return
		}
		b.down(r)
	})
	if waited == 0 || waited > 30*second {
		t.Errorf("the bucket whose target is up was probed after %v", waited)
	}
	if b.v.health.All.Open {
		t.Error("the breaker of all is open")
	}
}

func TestAProbeThatWasHandedOverIsNotWaitedFor(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	other := b.v.Own(handle.Partition{Policy: b.v.Policy.Name, Number: 1}, 2)
	other.GoLive(b.now)
	for i := range gates.MostSuspectBuckets + 1 {
		b.arrive(fmt.Sprint(i))
	}
	for _, r := range b.start()[:gates.MostSuspectBuckets] {
		b.down(r)
	}
	b.now = b.v.health.All.At
	if probe := b.start(); len(probe) != 1 {
		t.Fatalf("%d probes", len(probe))
	}
	b.p.Surrender(b.now)
	other.arrive(
		&job.Arrived{Seq: 100, Key: "other", Stored: b.wall(), Cost: 1, Body: []byte("x")}, b.now)
	if probe := b.at(time.Minute).start(); b.seqs(probe) != "[100]" {
		t.Errorf("probes %s", b.seqs(probe))
	}
}

func TestAnOpenBreakerIsHandedOver(t *testing.T) {
	p := leaky("api", "10/s")
	old := newValveBench(t, p)
	for range 20 {
		old.arrive("a")
	}
	old.until(20*second, old.down)
	left := old.p.buckets["a"].Target.At.Since(old.now)
	h := old.p.Surrender(old.now)
	if old.v.Breakers().Open() != 0 {
		t.Errorf("%d breakers are open of no partition", old.v.Breakers().Open())
	}

	b := unownedValve(t, p).inheritFrom(
		inheritance.State{Owner: "old", Handover: h, Elapsed: second})
	for range 20 {
		b.arrive("a")
	}
	if b.v.Breakers().Open() != 1 {
		t.Fatalf("%d breakers are open", b.v.Breakers().Open())
	}
	probes := b.until(time.Minute, b.down)
	if off := probes[0] - (left - second); off.Abs() > ms {
		t.Errorf("probed after %v, want %v", probes[0], left-second)
	}
	if n := b.attempts(); n != 0 || len(probes) > 4 {
		t.Errorf("%d attempts were counted, %d probes", n, len(probes))
	}
}

// The changed policy may have another target, so it is tried at once.
func TestAChangedPolicyIsProbedAtOnce(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	for i := range 40 {
		b.arrive(fmt.Sprint(i % 4))
	}
	b.until(5*time.Minute, b.down)
	changed := b.v.Policy
	changed.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: "http://new"}}
	b.v.Change(changed, false, b.now)
	runs := b.start()
	if len(runs) != 1 {
		t.Fatalf("%d probes", len(runs))
	}
	b.done(runs[0])
	starts := b.until(5*time.Minute+3*second, b.done)
	if len(b.p.jobs) > 0 || len(starts) != 39 {
		t.Errorf("%d jobs ran and %d are left, 3 s after the target was changed", len(starts),
			len(b.p.jobs))
	}
}

// A pause lasts, and does not end in a burst; deadlines still pass.
func TestABreakerWhileItsBucketIsPaused(t *testing.T) {
	b := newValveBench(t, with(leaky("api", "10/s"), func(p *policy.Policy) { p.Burst = 5 }))
	for range 30 {
		b.arrive("a")
	}
	b.arrive("a", func(a *job.Arrived) { a.Deadline = a.Stored.Add(time.Minute) })
	b.until(20*second, b.down)
	b.v.Change(b.v.Policy, true, b.now)
	b.until(5*time.Minute, func(r Run) { t.Fatalf("job %d started during the pause", r.Seq) })
	if b.reasons() != "[deadline]" {
		t.Errorf("letters %s", b.reasons())
	}
	b.v.Change(b.v.Policy, false, b.now)
	if starts := b.until(6*time.Minute, b.done); pacetest.Exceeds(starts, 10, 1) != "" ||
		len(starts) != 30 {
		t.Errorf("%d started after the pause; %s", len(starts), pacetest.Exceeds(starts, 10, 1))
	}
}

// A worker that cannot call its target for a reason of its own says nothing of the job: none of
// its attempts counts, and the first such run opens the breaker.
func TestAMistakeOfTheWorkerCountsNoAttempt(t *testing.T) {
	for name, buckets := range map[string]int{"one bucket": 1, "many buckets": 40} {
		t.Run(name, func(t *testing.T) {
			b := newValveBench(t, with(leaky("api", "10/s"), func(p *policy.Policy) {
				p.Retry.MaxAttempts = 1
			}))
			for range 3 {
				for k := range buckets {
					b.arrive(fmt.Sprintf("key-%d", k))
				}
			}
			runs := 0
			b.until(10*time.Minute, func(r Run) {
				runs++
				b.end(r, record.Outcome{Kind: record.OutcomeUncounted, Unavailable: true,
					Error: "no such file"})
				b.record()
			})
			if n := b.attempts(); n != 0 || b.reasons() != "[]" || runs > buckets+30 {
				t.Errorf("%d attempts were counted in %d runs, letters %s", n, runs, b.reasons())
			}
			key := queue.Key("key-0")
			state := b.view().bucketState(b.p, key)
			if state.By != job.BlockedByBreaker || state.LastError != "no such file" {
				t.Errorf("the bucket is blocked by %q: %q", state.By, state.LastError)
			}
			b.until(20*time.Minute, b.done)
			if n := len(b.p.jobs); n != 0 {
				t.Errorf("%d jobs are left once the mistake is mended", n)
			}
		})
	}
}
