package workers

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

func TestRemoteLateCountsNoAttempt(t *testing.T) {
	p := leaky("api", "50/s")
	p.Retry.MaxAttempts = 1
	b := newBench(t, p)
	b.publish("api", "a", 0, 1)
	answers := make(chan string, 100)
	refused, told := false, false
	worker := b.script("api", func(s *scripted, offer *nats.Msg) {
		switch {
		case !refused:
			refused = true
			wait(t.Context(), 2*job.ClaimWindow)
			if answer := s.claim(offer, 1); answer != nil {
				answers <- turnOf(answer).State
			}
		case !told:
			if started := s.claim(offer, 1); isGo(started) {
				told = true
				answers <- "go"
				answers <- s.report(started, job.OpSettle, job.SettledReturned)
			}
		}
	})
	b.valve(Options{})
	for _, want := range []string{"no", "go", "ok"} {
		select {
		case got := <-answers:
			if got != want {
				t.Errorf("the valve says %q, want %q", got, want)
			}
		case <-time.After(deadline):
			t.Fatalf("waited in vain for %q", want)
		}
	}
	worker.stop()
	b.runsElsewhere(1)
}

func TestRemoteWorkerDiesWhileItRuns(t *testing.T) {
	p := leaky("api", "50/s")
	p.Timeout = policy.Duration(time.Second)
	p.Retry.Backoff = policy.Duration(time.Millisecond)
	b := newBench(t, p)
	b.publish("api", "a", 0, 1)
	got := make(chan struct{})
	b.script("api", func(s *scripted, offer *nats.Msg) {
		if isGo(s.claim(offer, 1)) {
			s.nc.Close()
			close(got)
		}
	})
	b.valve(Options{})
	b.receive("the worker has the job", got)
	b.runsElsewhere(2)
}

func (b *bench) runsElsewhere(attempt int) {
	b.t.Helper()
	var ran seen
	b.lend(Options{}, map[string]Handler{"api": ran.handle})
	b.empty("api")
	if jobs := ran.all(); len(jobs) != 1 || jobs[0].Attempt != attempt {
		b.t.Errorf("ran %v, want one job, attempt %d", jobs, attempt)
	}
}

// A run elsewhere is a row of a table while its worker has it.
func TestRemoteRunsTakeNoGoroutines(t *testing.T) {
	const runs = 200
	b := newBench(t, leaky("api", "1000/s"))
	began := make(chan struct{}, runs)
	b.script("api", func(s *scripted, offer *nats.Msg) {
		if isGo(s.claim(offer, runs)) {
			began <- struct{}{}
		}
	})
	b.valve(Options{Grace: time.Millisecond})
	before := runtime.NumGoroutine()
	b.publish("api", "a", 0, runs)
	for range runs {
		b.receive("a job runs", began)
	}
	if more := runtime.NumGoroutine() - before; more > runs/4 {
		t.Errorf("%d runs take %d goroutines", runs, more)
	}
}

func TestRemoteWorkerLeavesBeforeItsJob(t *testing.T) {
	p := leaky("api", "50/s")
	p.Retry.MaxAttempts = 1
	b := newBench(t, p)
	b.publish("api", "a", 0, 1)
	left := make(chan struct{})
	b.script("api", func(s *scripted, offer *nats.Msg) {
		_ = s.nc.PublishRequest(offer.Reply, nats.NewInbox(),
			said(job.Claim{Op: job.OpClaim, Want: job.WantJob, Slots: 1}))
		_ = s.nc.Flush()
		s.nc.Close()
		close(left)
	})
	b.valve(Options{})
	b.receive("the worker has left", left)
	b.runsElsewhere(1)
}

func TestRemoteProgressExtendsAnAttempt(t *testing.T) {
	t.Parallel()
	p := leaky("api", "50/s")
	p.Timeout = policy.Duration(2 * time.Second)
	p.Retry.MaxAttempts = 1
	b := newBench(t, p)
	b.publish("api", "a", 0, 1)
	answer := make(chan string, 10)
	var jobs atomic.Int64
	b.script("api", func(s *scripted, offer *nats.Msg) {
		started := s.claim(offer, 1)
		if !isGo(started) {
			return
		}
		jobs.Add(1)
		end := time.Now().Add(time.Duration(p.Timeout) + 2*travel)
		for time.Now().Before(end) {
			_ = s.nc.Publish(started.Reply, said(job.Claim{Op: job.OpProgress}))
			wait(t.Context(), 50*time.Millisecond)
		}
		answer <- s.report(started, job.OpProgress, "")
		answer <- s.report(started, job.OpSettle, "maybe")
		answer <- s.report(started, job.OpSettle, job.SettledDone)
		answer <- s.report(started, job.OpSettle, job.SettledDone)
		answer <- s.report(started, job.OpProgress, "")
	})
	b.valve(Options{})
	for _, want := range []string{"ok", "error", "ok", "gone", "gone"} {
		if got := <-answer; got != want {
			t.Errorf("the valve says %q, want %q", got, want)
		}
	}
	b.empty("api")
	if n := jobs.Load(); n != 1 {
		t.Errorf("the job was given out %d times", n)
	}
}

func TestRemoteOutcomes(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Retry = policy.Retry{MaxAttempts: 3, Backoff: policy.Duration(10 * time.Millisecond),
		MaxBackoff: policy.Duration(20 * time.Millisecond)}
	b := newBench(t, p)
	var mu sync.Mutex
	attempts := map[string][]int{}
	log := logged{t: t}
	b.lend(Options{Logger: log.logger()}, map[string]Handler{"api": func(_ context.Context,
		job Job) error {
		mu.Lock()
		attempts[string(job.Key)] = append(attempts[string(job.Key)], job.Attempt)
		n := len(attempts[string(job.Key)])
		mu.Unlock()
		switch {
		case job.Key == "fails":
			return errors.New("no,\nand never again")
		case job.Key == "panics" && n == 1:
			panic("oh")
		case job.Key == "exits" && n == 1:
			runtime.Goexit()
		case job.Key == "permanent":
			return Permanent(errors.New("never"))
		case job.Key == "throttled" && n <= 4:
			return RetryAfter(10*time.Millisecond, errors.New("slow down"))
		case job.Key == "snoozed" && n <= 4:
			return Again(10 * time.Millisecond)
		}
		return nil
	}})
	b.valve(Options{})
	for _, key := range []string{"fails", "panics", "exits", "permanent", "throttled",
		"snoozed", "fine"} {
		b.publish("api", key, 0, 1)
	}
	b.empty("api")
	mu.Lock()
	defer mu.Unlock()
	for key, want := range map[string][]int{
		"fails": {1, 2, 3}, "panics": {1, 2}, "exits": {1, 2}, "permanent": {1},
		"throttled": {1, 1, 1, 1, 1},
		"snoozed":   {1, 1, 1, 1, 1}, "fine": {1},
	} {
		if !slices.Equal(attempts[key], want) {
			t.Errorf("%s: attempts %v, want %v", key, attempts[key], want)
		}
	}
	if lines := log.lines("a handler panicked", "key=panics", "panic=oh",
		"remote_run_test.go"); lines != 1 {
		t.Errorf("%d lines about the attempt that panicked", lines)
	}
	for key, want := range map[string]string{"fails": "attempts", "permanent": "permanent"} {
		if got := b.deadLetter("api", key); got != want {
			t.Errorf("%s: dead letter %q, want %q", key, got, want)
		}
	}
}

// TestRemoteHandoverRepeatsNothing hands a partition over while a job runs elsewhere for longer
// than its time limit.
func TestRemoteHandoverRepeatsNothing(t *testing.T) {
	t.Parallel()
	p := leaky("api", "50/s")
	p.Partitions, p.Timeout, p.Retry.MaxAttempts = 1, policy.Duration(time.Second), 1
	b := newBench(t, p)
	b.publish("api", "a", 0, 20)
	var ran seen
	began, release := make(chan struct{}), make(chan struct{})
	b.lend(Options{}, map[string]Handler{"api": func(ctx context.Context, job Job) error {
		_ = ran.handle(ctx, job)
		if string(job.Body) == "0" {
			close(began)
			<-release
		}
		return nil
	}})
	stop := b.valve(Options{})
	b.receive("the first job runs", began)
	b.valve(Options{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	b.until("the successor starts the others", func() bool { return len(ran.all()) == 20 })
	wait(t.Context(), time.Duration(p.Timeout)+travel+time.Second)
	select {
	case <-stopped:
		t.Error("the predecessor stopped without waiting for the job")
	default:
	}
	close(release)
	b.empty("api")
	b.receive("the predecessor has stopped", stopped)
	if got := ran.bodies("a"); !sameSet(got, numbers(20)) {
		t.Errorf("ran %v", got)
	}
	for _, job := range ran.all() {
		if job.Attempt != 1 {
			t.Errorf("job %s: attempt %d", job.ID, job.Attempt)
		}
	}
}

func TestRemoteGraceEndsWithStop(t *testing.T) {
	for _, ends := range []string{"valve", "lender"} {
		t.Run(ends, func(t *testing.T) {
			p := leaky("api", "50/s")
			p.Retry.MaxAttempts = 1
			b := newBench(t, p)
			b.publish("api", "a", 0, 1)
			var ran seen
			var running gauge
			began := make(chan struct{}, 10)
			handle := func(ctx context.Context, job Job) error {
				running.enter()
				defer running.leave()
				_ = ran.handle(ctx, job)
				if len(ran.all()) == 1 {
					began <- struct{}{}
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}
			o := Options{Grace: 10 * time.Millisecond, Lease: 2 * time.Second}
			stopLender := b.lend(o, map[string]Handler{"api": handle})
			stopValve := b.valve(o)
			b.receive("the job runs", began)
			if ends == "valve" {
				stopValve()
				b.valve(o)
			} else {
				stopLender()
				b.lend(o, map[string]Handler{"api": handle})
			}
			b.empty("api")
			jobs := ran.all()
			if len(jobs) != 2 || jobs[1].Attempt != 1 || running.most.Load() != 1 {
				t.Errorf("ran %v, %d at once", jobs, running.most.Load())
			}
		})
	}
}
