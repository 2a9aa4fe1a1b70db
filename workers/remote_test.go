package workers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
)

func TestRemoteLocalWorkersGoFirst(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Workers = 4
	b := newBench(t, p)
	var here, there seen
	release := make(chan struct{})
	blocking := func(s *seen) Handler {
		return func(ctx context.Context, job Job) error {
			_ = s.handle(ctx, job)
			<-release
			return nil
		}
	}
	b.lend(Options{}, map[string]Handler{"api": blocking(&there)})
	b.drain(Options{}, map[string]Handler{"api": blocking(&here)})
	for i := range 4 {
		b.publish("api", fmt.Sprint("k", i), i, 1)
	}
	b.until("all local workers are busy", func() bool {
		return len(here.all())+len(there.all()) == 4
	})
	if n := len(there.all()); n > 0 {
		t.Errorf("%d jobs ran elsewhere while there were local workers", n)
	}
	for i := range 3 {
		b.publish("api", fmt.Sprint("k", i), i, 1)
	}
	b.until("the others run elsewhere", func() bool { return len(there.all()) == 3 })
	if n := len(here.all()); n != 4 {
		t.Errorf("%d jobs run here, want 4", n)
	}
	close(release)
	b.empty("api")
}

func TestRemoteBusyWorkersArePassedOver(t *testing.T) {
	b := newBench(t, leaky("api", "500/s"))
	var declined atomic.Int64
	b.script("api", func(s *scripted, offer *nats.Msg) {
		declined.Add(1)
		s.busy(offer)
	})
	var ran seen
	b.lend(Options{}, map[string]Handler{"api": ran.handle})
	b.valve(Options{})
	b.publish("api", "a", 0, 100)
	b.empty("api")
	if got := ran.bodies("a"); !sameSet(got, numbers(100)) {
		t.Errorf("ran %v", got)
	}
	if declined.Load() == 0 {
		t.Error("nobody was passed over: the test shows nothing")
	}
}

// A claim that excepts all due buckets is refused, and another worker is asked.
func TestRemoteAWorkerGetsNoJobThatItExcepts(t *testing.T) {
	b := newBench(t, leaky("api", "500/s"))
	var refused atomic.Int64
	b.script("api", func(s *scripted, offer *nats.Msg) {
		switch answer := s.claim(offer, 1, "a"); {
		case isGo(answer):
			t.Error("a worker got a job of an excepted bucket")
			s.report(answer, job.OpSettle, job.SettledReturned)
		case turnOf(answer).State == job.TurnRefused:
			refused.Add(1)
		}
	})
	var ran seen
	b.lend(Options{}, map[string]Handler{"api": ran.handle})
	b.valve(Options{})
	b.publish("api", "a", 0, 100)
	b.empty("api")
	if got := ran.bodies("a"); !sameSet(got, numbers(100)) {
		t.Errorf("ran %v", got)
	}
	if refused.Load() == 0 {
		t.Error("no claim was refused: the test shows nothing")
	}
}

func TestRemoteOffersWithoutWorkersCostNothing(t *testing.T) {
	p := leaky("api", "20/s")
	p.Retry.MaxAttempts = 1
	b := newBench(t, p)
	b.publish("api", "a", 0, 10)
	var began starts
	b.valve(Options{Logger: slog.New(&began)})
	b.until("the valve has looked for workers", func() bool {
		a, err := b.broker.AskValve(t.Context(), "api", job.Partition("penstock.jobs.api.a", 2),
			job.Question{Op: job.OpBucket, Key: "a"})
		return err == nil && a.Bucket != nil && a.Bucket.Waiting == 10 && a.Bucket.HeadAgeMS > 1000
	})
	if n := len(began.all()); n > 0 {
		t.Errorf("%d starts without a worker", n)
	}
	var ran seen
	b.lend(Options{}, map[string]Handler{"api": ran.handle})
	b.empty("api")
	if got := ran.bodies("a"); !sameSet(got, numbers(10)) {
		t.Errorf("ran %v", got)
	}
	for _, job := range ran.all() {
		if job.Attempt != 1 {
			t.Errorf("job %s: attempt %d", job.ID, job.Attempt)
		}
	}
	if why := pacetest.Exceeds(began.all(), 20, 1); why != "" {
		t.Error(why)
	}
}

func TestRemoteConcurrencyIsExact(t *testing.T) {
	p := leaky("api", "2000/s")
	p.Concurrency, p.Workers = 5, 3
	b := newBench(t, p)
	var running gauge
	var here, there seen
	slow := func(s *seen) Handler {
		return func(ctx context.Context, job Job) error {
			running.enter()
			defer running.leave()
			wait(ctx, 20*time.Millisecond)
			return s.handle(ctx, job)
		}
	}
	o := Options{Lease: time.Minute} // with a lost lease some jobs would run twice
	for range 2 {
		b.lend(o, map[string]Handler{"api": slow(&there)})
	}
	b.publish("api", "a", 0, 200)
	b.drain(o, map[string]Handler{"api": slow(&here)})
	b.empty("api")
	if n := running.most.Load(); n != 5 {
		t.Errorf("%d jobs of one bucket at once, want 5", n)
	}
	if len(here.all()) == 0 || len(there.all()) == 0 || len(here.all())+len(there.all()) != 200 {
		t.Errorf("%d jobs ran here, %d elsewhere", len(here.all()), len(there.all()))
	}
}

func TestRemoteKeepsRateAndOrder(t *testing.T) {
	t.Parallel()
	for _, rate := range []struct {
		text string
		n    int
		per  float64
	}{{"50/s", 100, 50}, {"200/s", 300, 200}} {
		t.Run(rate.text, func(t *testing.T) {
			b := newBench(t, leaky("api", rate.text))
			b.publish("api", "a", 0, rate.n)
			var ordered []string
			for i := range rate.n {
				ordered = append(ordered, fmt.Sprint("api:", i+1))
			}
			var ran seen
			for range 2 {
				b.lend(Options{}, map[string]Handler{"api": ran.handle})
			}
			var began starts
			b.valve(Options{Logger: slog.New(&began)})
			b.empty("api")
			if got := ran.bodies("a"); !sameSet(got, numbers(rate.n)) {
				t.Errorf("ran %d jobs", len(got))
			}
			if ids := began.ids(); !slices.Equal(ids, ordered) {
				t.Errorf("started %v", ids)
			}
			if why := pacetest.Exceeds(began.all(), rate.per, 1); why != "" {
				t.Error(why)
			}
		})
	}
}

func TestRemoteOneBucketDoesNotTakeAllWorkers(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Workers = 8
	b := newBench(t, p)
	release := make(chan struct{})
	var hanging, fine atomic.Int64
	b.lend(Options{}, map[string]Handler{"api": func(_ context.Context, job Job) error {
		if job.Key == "hangs" {
			hanging.Add(1)
			<-release
			return nil
		}
		fine.Add(1)
		return nil
	}})
	b.valve(Options{})
	b.publish("api", "hangs", 0, 50)
	b.until("the hanging bucket has all that it gets", func() bool { return hanging.Load() >= 6 })
	b.publish("api", "fine", 0, 50)
	b.until("the other bucket runs", func() bool { return fine.Load() == 50 })
	if n := hanging.Load(); n > 7 {
		t.Errorf("the hanging bucket took %d of 8 workers", n)
	}
	close(release)
	b.empty("api")
}

// Under a total outflow, the hanging bucket is next, because it has had the fewest starts. A worker
// with room refuses it, and is then asked for another bucket.
func TestRemoteAWorkerRefusesABucketAndNotItsPolicy(t *testing.T) {
	t.Parallel()
	p := total("1000/s")
	p.Partitions, p.Workers = 1, 2
	b := newBench(t, p)
	hanged := make(chan struct{})
	release := sync.OnceFunc(func() { close(hanged) })
	var hanging, fine atomic.Int64
	b.lend(Options{}, map[string]Handler{"mail": func(_ context.Context, job Job) error {
		if job.Key == "hangs" {
			hanging.Add(1)
			<-hanged
			return nil
		}
		fine.Add(1)
		return nil
	}})
	b.valve(Options{})
	t.Cleanup(release)
	b.publish("mail", "hangs", 0, 20)
	b.until("a job hangs", func() bool { return hanging.Load() == 1 })
	b.publish("mail", "fine", 0, 20)
	b.until("the other bucket runs", func() bool { return fine.Load() == 20 })
	if n := hanging.Load(); n > 1 {
		t.Errorf("the bucket that hangs took %d of 2 workers", n)
	}
	release()
	b.empty("mail")
}
