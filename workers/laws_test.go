package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// TestSimulationLaws checks the seven laws under crashes and clock changes, over many more
// histories.

func TestLaw1BoundHoldsForPlainClients(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Capacity, p.Concurrency = 150, 1
	b := newBench(t, p)
	js, err := b.nc.JetStream(nats.MaxWait(deadline))
	if err != nil {
		t.Fatal(err)
	}
	publish := func(n int) (accepted int) {
		for i := range n {
			switch _, err := js.Publish("penstock.jobs.api.a", fmt.Append(nil, i)); {
			case err == nil:
				accepted++
			case !errors.As(err, new(*nats.APIError)):
				t.Fatal(err)
			}
		}
		return accepted
	}
	if n := publish(200); n != 150 {
		t.Fatalf("%d of 200 jobs were accepted, want 150", n)
	}
	release := make(chan struct{})
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": func(ctx context.Context, job Job) error {
		<-release
		return ran.handle(ctx, job)
	}})
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	b.until("a job runs", func() bool { return b.running("api", "a") == 1 })
	if n := publish(10); n != 0 {
		t.Errorf("%d more were accepted while one ran, which keeps its place", n)
	}
	release <- struct{}{}
	b.until("a place is free", func() bool {
		n, err := b.broker.Depth(t.Context(), "api")
		return err == nil && n == 149
	})
	if n := publish(10); n != 1 {
		t.Errorf("%d were accepted into one free place", n)
	}
}

func (b *bench) running(policy string, key queue.Key) int { return b.bucket(policy, key).Running }

// bucket returns the valve's state of a bucket; Running is -1 without an answer.
func (b *bench) bucket(policy string, key queue.Key) job.BucketState {
	p := 0
	for p < 2 && job.Partition("penstock.jobs."+policy+"."+string(key), 2) != p {
		p++
	}
	answer, err := b.broker.AskValve(b.t.Context(), policy, p,
		job.Question{Op: job.OpBucket, Key: key})
	if err != nil || answer.Bucket == nil {
		return job.BucketState{BucketState: api.BucketState{Running: -1}}
	}
	return *answer.Bucket
}

func TestLaw2RateHoldsWhileDrainersComeGoAndCrash(t *testing.T) {
	b := newBench(t, leaky("api", "100/s"))
	const jobs = 700
	b.publish("api", "a", 0, jobs)
	crew := newCrew(b)
	crew.join(2)
	for round := range 2 {
		b.until("jobs ran", func() bool { return crew.count() > 150*(round+1) })
		crew.cutOwner()
		crew.join(1 + round)
	}
	b.empty("api")
	if why := pacetest.Exceeds(crew.starts(), 100, 1); why != "" {
		t.Error(why)
	}
	crew.allRan(jobs)
}

func TestLaw3NothingIsLostWhenTheServerRestarts(t *testing.T) {
	b := newRestartableBench(t, leaky("api", "200/s"))
	const jobs = 600
	b.publish("api", "a", 0, jobs/2)
	b.publish("api", "b", jobs/2, jobs/2)
	crew := newCrew(b)
	crew.join(2)
	for round := range 2 {
		b.until("jobs ran", func() bool { return crew.count() > 150*(round+1) })
		b.restart()
	}
	b.empty("api")
	crew.allRan(jobs)
	for _, key := range []queue.Key{"a", "b"} {
		var starts []time.Duration
		for _, job := range crew.ran.all() {
			if job.Key == key {
				starts = append(starts, job.Started.Sub(crew.began))
			}
		}
		if why := pacetest.Exceeds(starts, 200, 1); why != "" {
			t.Errorf("bucket %s: %s", key, why)
		}
	}
}

func TestLaw4OrderOfAcceptance(t *testing.T) {
	p := leaky("api", "500/s")
	p.Retry = policy.Retry{Backoff: policy.Duration(50 * ms), MaxBackoff: policy.Duration(50 * ms)}
	b := newBench(t, p)
	b.publish("api", "a", 0, 100)
	for i := range 20 {
		b.send("api", "a", fmt.Sprint(100+i), "Penstock-Priority", "5")
	}
	pause := b.pause
	pause(true) // until the valve holds all jobs
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": func(ctx context.Context, job Job) error {
		if string(job.Body) == "50" && job.Attempt == 1 {
			return errors.New("once more")
		}
		return ran.handle(ctx, job)
	}})
	b.until("all jobs have come", func() bool { return b.bucket("api", "a").Waiting == 120 })
	pause(false)
	b.empty("api")
	var usual, urgent []string
	for i, job := range ran.all() {
		switch body := string(job.Body); {
		case body == "50":
		case job.Header.Get("Penstock-Priority") == "":
			usual = append(usual, body)
		default:
			urgent = append(urgent, body)
			if i >= 20 {
				t.Errorf("job %s, which is urgent, ran as the %dth", body, i)
			}
		}
	}
	all := numbers(120)
	if want := slices.Concat(all[:50], all[51:100]); !slices.Equal(usual, want) {
		t.Errorf("usual jobs ran in the order %v", usual)
	}
	if !slices.Equal(urgent, all[100:]) {
		t.Errorf("urgent jobs ran in the order %v", urgent)
	}
}

// One target hangs, one throttles, one fails and one is paused; the fifth never waits for them.
func TestLaw5IsolationOfBuckets(t *testing.T) {
	p := leaky("api", "100/s")
	p.Workers, p.Timeout = 8, policy.Duration(time.Hour)
	b := newBench(t, p, with(leaky("other", "100/s"), func(p *policy.Policy) { p.Workers = 2 }))
	paused := inforce.Override{Paused: true}
	if _, err := store.New(b.broker, nil).ChangeOverride(t.Context(), "api", "paused",
		func(store.Override) (inforce.Override, error) { return paused, nil }); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"hangs", "throttles", "fails", "paused"} {
		b.publish("api", key, 0, 200)
	}
	var ran seen
	hang := func(ctx context.Context, job Job) error {
		switch job.Key {
		case "hangs":
			<-ctx.Done()
			return ctx.Err()
		case "throttles":
			return RetryAfter(time.Hour, nil)
		case "fails":
			return errors.New("no")
		case "paused":
			t.Error("a paused bucket started a job")
		}
		return ran.handle(ctx, job)
	}
	b.drain(Options{Grace: time.Second}, map[string]Handler{"api": hang, "other": hang})
	b.until("the hanging target has its share of workers", func() bool {
		return b.running("api", "hangs") >= 5
	})
	b.publish("api", "healthy", 0, 100)
	b.publish("other", "healthy", 100, 100)
	b.until("the healthy buckets are done", func() bool {
		return len(ran.bodies("healthy")) == 200
	})
	// The causes last for an hour: both the hanging jobs and the cool-down.
	if n := b.running("api", "hangs"); n < 5 {
		t.Errorf("%d jobs hang still", n)
	}
}

func TestLaw6WaitingIsNotFailing(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Retry = policy.Retry{MaxAttempts: 1}
	b := newBench(t, p)
	b.publish("api", "a", 0, 1)
	var mu sync.Mutex
	calls := 0
	release, runs := make(chan struct{}), make(chan struct{})
	handle := func(_ context.Context, job Job) error {
		mu.Lock()
		defer mu.Unlock()
		if job.Attempt != 1 {
			t.Errorf("attempt %d", job.Attempt)
		}
		if calls++; calls <= 5 {
			return RetryAfter(20*ms, errors.New("slow down"))
		}
		close(runs)
		<-release
		return nil
	}
	first := b.drain(Options{}, map[string]Handler{"api": handle})
	<-runs
	b.drain(Options{}, map[string]Handler{"api": handle})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		first()
	}()
	b.until("the partition has a new owner", func() bool {
		records, err := b.broker.Tables().Partitions.List(t.Context(), "*.*")
		owners := map[string]bool{}
		for _, r := range records {
			var o record.Owner
			if err == nil {
				err = record.Decode(r.Value, &o)
			}
			owners[o.Owner] = true
		}
		return err == nil && len(records) == 2 && len(owners) == 1 && b.running("api", "a") == 1
	})
	close(release)
	<-stopped
	b.empty("api")
	if calls != 6 {
		t.Errorf("%d calls, want 6", calls)
	}
}

func TestLaw7AClearNoSaysWhyAndWhenToComeBack(t *testing.T) {
	p := leaky("api", "1/m")
	p.Capacity = 3
	b := newBench(t, p)
	producer := b.broker.NewProducer(jet.ProducerOptions{})
	submit := func() (jet.Receipt, error) {
		return producer.Publish(t.Context(),
			jet.Submission{Policy: "api", Key: "a", Body: []byte("x")})
	}
	partition := job.Partition(b.broker.Names().Jobs("api", "a"), p.WithDefaults().Partitions)
	for range 3 {
		if _, err := submit(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := submit(); !errors.Is(err, jet.ErrFull) {
		t.Fatalf("a full bucket says %v", err)
	}
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": ran.handle})
	b.until("the first job is done", func() bool { return len(ran.all()) == 1 })
	if _, err := submit(); err != nil && !errors.Is(err, jet.ErrFull) {
		t.Fatal(err)
	}
	var answer job.Answer
	b.answered(func() (err error) { // a job may run before its owner is asked
		answer, err = b.broker.AskValve(t.Context(), "api", partition,
			job.Question{Op: job.OpRoom, Key: "a"})
		return err
	})
	if answer.DelayMS < 30_000 || answer.DelayMS > 60_000 {
		t.Errorf("come back in %d ms; the next start is within a minute", answer.DelayMS)
	}
	if _, err := producer.Publish(t.Context(),
		jet.Submission{Policy: "nobody", Key: "a"}); !errors.Is(err, jet.ErrNoStream) {
		t.Errorf("an unknown policy says %v", err)
	}
}
