package valve

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// throttled has a waiting job in each of its buckets, whose target asked for an hour's pause.
func throttled(t *testing.T, p policy.Policy, keys ...string) *valveBench {
	b := newValveBench(t, p)
	for _, key := range keys {
		b.arrive(key)
		b.arrive(key)
		b.end(b.start()[0], record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: time.Hour})
	}
	return b
}

// resume asks as an operator does, and stores the checkpoints that the answer waits for.
func (b *valveBench) resume(key queue.Key) (a job.Answer) {
	b.t.Helper()
	var qs Questions
	answered := false
	qs.Ask(b.p, job.Question{Op: job.OpResume, Key: key}, func(with job.Answer) {
		a, answered = with, true
	}, b.now)
	clock := func() pace.Instant { return b.now }
	for range 10 {
		if qs.Ponder(clock); answered {
			return a
		}
		if b.p.Checkpoints.Waits() {
			begin(b.p)
			b.p.Checkpoints.Store()
		}
	}
	b.t.Fatal("no answer")
	return a
}

func TestResumeEndsACoolDown(t *testing.T) {
	b := throttled(t, leaky("api", "10/s"), "a", "b")
	if a := b.resume("a"); a.Ended != 1 || a.Error != "" {
		t.Fatalf("resumed: %+v", a)
	}
	starts := b.until(time.Second, func(r Run) {
		if r.Key != "a" {
			t.Errorf("a job of %s started", r.Key)
		}
		b.done(r)
	})
	if len(starts) != 2 || starts[1]-starts[0] < 95*ms {
		t.Errorf("starts %v, want two, 100 ms apart", starts)
	}
	if a := b.resume("a"); a.Ended != 0 {
		t.Errorf("resumed again: %+v", a)
	}
	if a := b.resume("unknown"); a.Ended != 0 || a.Error != "" {
		t.Errorf("an unknown bucket: %+v", a)
	}
}

func TestResumeOfAPolicyEndsAllCoolDowns(t *testing.T) {
	b := throttled(t, leaky("api", "10/s"), "a", "b", "c")
	if a := b.resume(""); a.Ended != 3 {
		t.Fatalf("resumed: %+v", a)
	}
	if starts := b.until(time.Second, b.done); len(starts) != 6 {
		t.Errorf("%d jobs started, want 6", len(starts))
	}
}

func TestTheEndOfACoolDownIsStoredBeforeTheAnswer(t *testing.T) {
	b := throttled(t, leaky("api", "10/s"), "a")
	var qs Questions
	answers := 0
	qs.Ask(b.p, job.Question{Op: job.OpResume, Key: "a"}, func(job.Answer) { answers++ }, b.now)
	clock := func() pace.Instant { return b.now }
	if qs.Ponder(clock); answers != 0 || !b.p.Checkpoints.Waits() {
		t.Fatalf("answered %d times; a checkpoint is awaited: %t", answers, b.p.Checkpoints.Waits())
	}
	begin(b.p)
	b.p.Checkpoints.Store()
	if qs.Ponder(clock); answers != 1 {
		t.Errorf("answered %d times once it is stored", answers)
	}
	for _, c := range b.p.Handover(b.now).Clocks {
		if c.Cool > 0 {
			t.Errorf("the next owner inherits %+v", c)
		}
	}
}

func TestTheBackoffOfThrottlesBeginsAgainAfterResume(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	b.arrive("a")
	pause := func() time.Duration {
		b.end(b.start()[0], record.Outcome{Kind: record.OutcomeThrottled})
		return b.p.buckets["a"].Cool.Since(b.now)
	}
	first := pause()
	b.now = b.now.Add(first)
	if second := pause(); second != 2*first {
		t.Errorf("the second pause lasts %v, the first %v", second, first)
	}
	b.resume("a")
	b.now = b.now.Add(first)
	if next := pause(); next != first {
		t.Errorf("the pause after the end of one by hand lasts %v, want %v", next, first)
	}
}

func TestALearntRateRisesFromTheEndOfItsCoolDown(t *testing.T) {
	p := leaky("api", "10/s")
	p.AdaptiveRate = &policy.AdaptiveRate{}
	b := throttled(t, p, "a")
	low := b.p.buckets["a"].pace.Rate.PerSecond()
	b.resume("a")
	b.now = b.now.Add(30 * time.Second)
	b.v.learning.tune(b.p.buckets["a"], b.now)
	if now := b.p.buckets["a"].pace.Rate.PerSecond(); now <= low {
		t.Errorf("half a minute after the pause was ended the rate is %v, as before", now)
	}
}

func TestResumeProbesATargetThatWasDown(t *testing.T) {
	for name, buckets := range map[string]int{"a bucket's breaker": 1, "the breaker of all": 3} {
		for _, key := range []queue.Key{"key-0", ""} {
			t.Run(name+" "+string(key), func(t *testing.T) {
				b := newValveBench(t, leaky("api", "10/s"))
				for range gates.MostSuspectJobs {
					for k := range buckets {
						b.arrive(fmt.Sprintf("key-%d", k))
					}
				}
				b.until(10*time.Minute, b.down)
				b.until(b.now.Since(origin)+10*ms, b.down)
				waits := b.start()
				if len(waits) > 0 || b.v.Breakers().Open() == 0 {
					t.Fatalf("%d starts, breakers %v", len(waits), b.v.Breakers())
				}
				if a := b.resume(key); a.Probes == 0 || a.Ended != 0 || a.Error != "" {
					t.Fatalf("resumed: %+v", a)
				}
				probes := b.start()
				if len(probes) != 1 {
					t.Fatalf("%d probes, want one", len(probes))
				}
				if a := b.resume(key); a.Probes != 0 {
					t.Errorf("resumed while the probe runs: %+v", a)
				}
				b.done(probes[0])
				b.until(b.now.Since(origin)+time.Minute, b.done)
				if n := len(b.p.jobs); n != 0 || b.v.Breakers().Open() != 0 {
					t.Errorf("%d jobs are left, breakers %v", n, b.v.Breakers())
				}
			})
		}
	}
}
