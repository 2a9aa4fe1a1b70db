package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// deadline is how long a test waits for what must happen.
const deadline = 30 * time.Second

// bench is a server with a policy.
type bench struct {
	t      *testing.T
	server *embedded.Server
	nc     *nats.Conn
	broker *queue.Broker

	// Of a server that can be restarted.
	restartable *embedded.Options
	url         string
}

func newBench(t *testing.T, policies ...policy.Policy) *bench {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	b := &bench{t: t, server: server}
	b.setUp(policies...)
	return b
}

func (b *bench) setUp(policies ...policy.Policy) {
	b.t.Helper()
	t := b.t
	b.nc = b.connect()
	var err error
	if b.broker, err = queue.NewBroker(b.nc, queue.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := b.broker.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range policies {
		b.put(p)
	}
}

func (b *bench) put(p policy.Policy) {
	b.t.Helper()
	p = p.WithDefaults()
	if problems := p.Validate(); len(problems) > 0 {
		b.t.Fatal(problems)
	}
	if _, err := b.broker.PutPolicy(b.t.Context(), p); err != nil {
		b.t.Fatal(err)
	}
	if err := b.broker.Apply(b.t.Context(), p); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) connect() *nats.Conn {
	b.t.Helper()
	var nc *nats.Conn
	var err error
	if b.url != "" {
		nc, err = nats.Connect(b.url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	} else {
		nc, err = b.server.Connect(nats.MaxReconnects(-1))
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	return nc
}

// publish sends jobs as any NATS client would.
func (b *bench) publish(policy, key string, from, n int) {
	b.t.Helper()
	js, err := b.nc.JetStream()
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range n {
		if _, err := js.PublishAsync("penstock.jobs."+policy+"."+key, []byte(fmt.Sprint(from+i))); err != nil {
			b.t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(deadline):
		b.t.Fatal("publishes were not acknowledged")
	}
}

// drain runs a drainer until the returned function is called, which waits for its end.
func (b *bench) drain(o Options, handlers map[string]Handler) (stop func()) {
	b.t.Helper()
	if o.Lease == 0 {
		o.Lease = time.Second
	}
	d, err := New(b.connect(), o)
	if err != nil {
		b.t.Fatal(err)
	}
	for name, handle := range handlers {
		d.Handle(name, handle)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				b.t.Errorf("drainer: %v", err)
			}
		case <-time.After(deadline):
			b.t.Error("the drainer did not stop")
		}
	})
	b.t.Cleanup(stop)
	return stop
}

// empty waits until a policy's stream holds nothing.
func (b *bench) empty(policy string) {
	b.t.Helper()
	b.until("the queue is empty", func() bool {
		n, err := b.broker.Depth(b.t.Context(), policy)
		return err == nil && n == 0
	})
}

func (b *bench) until(what string, done func() bool) {
	b.t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	end := time.After(deadline)
	for !done() {
		select {
		case <-ticker.C:
		case <-end:
			b.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// seen collects the jobs that handlers ran.
type seen struct {
	mu   sync.Mutex
	jobs []Job
}

func (s *seen) handle(_ context.Context, job Job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(s.jobs, job)
	return nil
}

func (s *seen) all() []Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs := slices.Clone(s.jobs)
	slices.SortFunc(jobs, func(a, b Job) int { return a.Started.Compare(b.Started) })
	return jobs
}

func (s *seen) bodies(key queue.Key) (bodies []string) {
	for _, job := range s.all() {
		if job.Key == key {
			bodies = append(bodies, string(job.Body))
		}
	}
	return bodies
}

func leaky(name, rate string) policy.Policy {
	r, err := algorithms.ParseRate(rate)
	if err != nil {
		panic(err)
	}
	return policy.Policy{Name: name, Algorithm: policy.LeakingBucket, Outflow: r, Capacity: 100_000, Partitions: 2}
}

func numbers(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// TestLaw2RateAndLaw4Order drain a real queue.
func TestDrainerKeepsRateAndOrder(t *testing.T) {
	b := newBench(t, leaky("api", "100/s"))
	b.publish("api", "a", 0, 250)
	b.publish("api", "b", 0, 120)
	var ran seen
	b.drain(Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}, map[string]Handler{"api": ran.handle})
	b.empty("api")
	for key, n := range map[queue.Key]int{"a": 250, "b": 120} {
		if got := ran.bodies(key); !slices.Equal(got, numbers(n)) {
			t.Errorf("bucket %s ran %v", key, got)
		}
		var starts []time.Duration
		for _, job := range ran.all() {
			if job.Key == key {
				starts = append(starts, job.Started.Sub(ran.all()[0].Started))
			}
		}
		if why := exceeds(starts, 100, 1); why != "" {
			t.Errorf("bucket %s: %s", key, why)
		}
	}
}

func TestDrainerOutcomes(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Retry = policy.Retry{MaxAttempts: 3, Backoff: policy.Duration(10 * time.Millisecond), MaxBackoff: policy.Duration(20 * time.Millisecond)}
	b := newBench(t, p)
	var mu sync.Mutex
	attempts := map[string][]int{}
	b.drain(Options{}, map[string]Handler{"api": func(_ context.Context, job Job) error {
		mu.Lock()
		attempts[string(job.Key)] = append(attempts[string(job.Key)], job.Attempt)
		n := len(attempts[string(job.Key)])
		mu.Unlock()
		switch {
		case job.Key == "fails":
			return errors.New("no")
		case job.Key == "panics" && n == 1:
			panic("oh")
		case job.Key == "permanent":
			return Permanent(errors.New("never"))
		case job.Key == "throttled" && n <= 4:
			return RetryAfter(10*time.Millisecond, errors.New("slow down"))
		}
		return nil
	}})
	for _, key := range []string{"fails", "panics", "permanent", "throttled", "fine"} {
		b.publish("api", key, 0, 1)
	}
	b.empty("api")
	mu.Lock()
	defer mu.Unlock()
	for key, want := range map[string][]int{
		"fails": {1, 2, 3}, "panics": {1, 2}, "permanent": {1}, "throttled": {1, 1, 1, 1, 1}, "fine": {1},
	} {
		if !slices.Equal(attempts[key], want) {
			t.Errorf("%s: attempts %v, want %v", key, attempts[key], want)
		}
	}
	for key, want := range map[string]string{"fails": "attempts", "permanent": "permanent"} {
		if got := b.deadLetter("api", key); got != want {
			t.Errorf("%s: dead letter %q, want %q", key, got, want)
		}
	}
	b.until("attempt records are gone", func() bool {
		records, err := b.broker.Attempts().List(t.Context(), ">")
		return err == nil && len(records) == 0
	})
}

// deadLetter returns the reason of the last dead letter of a bucket.
func (b *bench) deadLetter(policy, key string) string {
	b.t.Helper()
	js, err := b.nc.JetStream()
	if err != nil {
		b.t.Fatal(err)
	}
	m, err := js.GetLastMsg("PENSTOCK_DEAD_"+policy, "penstock.dead."+policy+"."+key)
	if err != nil {
		b.t.Fatalf("dead letter of %s: %v", key, err)
	}
	return m.Header.Get("Penstock-Dead-Reason")
}

// TestPlannedHandover restarts drainers one after the other while jobs run: nothing is lost, nothing runs twice, no attempt
// counts.
func TestPlannedHandoverLosesAndRepeatsNothing(t *testing.T) {
	b := newBench(t, leaky("api", "200/s"))
	b.publish("api", "a", 0, 600)
	b.publish("api", "b", 0, 600)
	var ran seen
	slow := func(ctx context.Context, job Job) error {
		timer := time.NewTimer(100 * time.Millisecond)
		defer timer.Stop()
		<-timer.C
		return ran.handle(ctx, job)
	}
	stop := b.drain(Options{}, map[string]Handler{"api": slow})
	for round := range 4 {
		b.until("jobs ran", func() bool { return len(ran.all()) > 200*(round+1) })
		next := b.drain(Options{}, map[string]Handler{"api": slow})
		if round%2 == 0 {
			b.until("the newcomer is known", func() bool {
				records, err := b.broker.Drainers().List(t.Context(), ">")
				return err == nil && len(records) == 2
			})
		}
		stop()
		stop = next
	}
	b.empty("api")
	stop()
	for _, key := range []queue.Key{"a", "b"} {
		if got := ran.bodies(key); !slices.Equal(got, numbers(600)) {
			t.Errorf("bucket %s ran %d jobs: %v", key, len(got), got)
		}
	}
	for _, job := range ran.all() {
		if job.Attempt != 1 {
			t.Errorf("job %s: attempt %d", job.ID, job.Attempt)
		}
	}
}
