// Package workerstest runs Penstock inside a test: a real NATS server, policies, and drainers with
// the test's handlers. Without mocks and sleeps, tests publish, wait for outcomes, and check when
// jobs started.
//
//	kit := workerstest.New(t, workerstest.Policy("stripe", "50/s"))
//	kit.Handle("stripe", myHandler)
//	kit.Publish("stripe", "tenant-1", []byte("…"), 20)
//	kit.Wait("stripe", 20)
//	kit.AssertRate("stripe", "tenant-1")
package workerstest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/internal/server/audit"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

// Patience is a [Kit]'s longest wait before it fails the test.
const Patience = 30 * time.Second

// Kit is a running Penstock, until the end of the test. Its methods fail the test on errors.
type Kit struct {
	t        testing.TB
	server   *embedded.Server
	broker   *jet.Broker
	producer *jet.Producer
	handlers map[string]workers.Handler
	drainer  sync.Once

	mu       sync.Mutex
	policies map[string]policy.Policy
	changed  chan struct{}
	starts   map[string][]workers.Job
	ends     map[string][]queue.Event
	events   []heard
	reported map[string]int // starts among the events
}

type heard struct {
	policy string
	queue.Event
	at time.Time
}

// Policy returns a leaking bucket with a rate such as "50/s" and room for 100,000 jobs per key.
// Tests may modify it.
func Policy(name, outflow string) policy.Policy {
	rate, err := algorithms.ParseRate(outflow)
	if err != nil {
		panic(fmt.Sprintf("workerstest: %v", err))
	}
	return policy.Policy{Name: name,
		Rule:       policy.Rule{Algorithm: policy.LeakingBucket, Outflow: rate, Capacity: 100_000},
		Partitions: 1}
}

// New starts a server in the test's process, and stores the policies.
func New(t testing.TB, policies ...policy.Policy) *Kit {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatalf("workerstest: %v", err)
	}
	t.Cleanup(server.Shutdown)
	k := &Kit{
		t:        t,
		server:   server,
		policies: map[string]policy.Policy{},
		handlers: map[string]workers.Handler{},
		changed:  make(chan struct{}),
		starts:   map[string][]workers.Job{},
		ends:     map[string][]queue.Event{},
		reported: map[string]int{},
	}
	if k.broker, err = jet.NewBroker(k.Connect(), jet.Options{}); err != nil {
		t.Fatalf("workerstest: %v", err)
	}
	k.producer = k.broker.NewProducer(jet.ProducerOptions{})
	if err := k.broker.Setup(t.Context()); err != nil {
		t.Fatalf("workerstest: %v", err)
	}
	for _, p := range policies {
		k.SetPolicy(p)
	}
	stop, err := k.broker.Events().Listen("*", ">", k.heard)
	if err != nil {
		t.Fatalf("workerstest: %v", err)
	}
	t.Cleanup(stop)
	return k
}

// Connect returns a connection, closed at the end of the test.
func (k *Kit) Connect() *nats.Conn {
	k.t.Helper()
	nc, err := k.server.Connect(nats.MaxReconnects(-1))
	if err != nil {
		k.t.Fatalf("workerstest: %v", err)
	}
	k.t.Cleanup(nc.Close)
	return nc
}

// Broker gives access to queues, policies and dead letters.
func (k *Kit) Broker() *workers.Broker { return k.broker }

// SetPolicy stores a policy with defaults, even while jobs run.
func (k *Kit) SetPolicy(p policy.Policy) {
	k.t.Helper()
	p = p.WithDefaults()
	if problems := p.Validate(); len(problems) > 0 {
		k.t.Fatalf("workerstest: policy %s: %v", p.Name, problems)
	}
	if _, err := store.New(k.broker, nil).Put(k.t.Context(), p); err != nil {
		k.t.Fatalf("workerstest: %v", err)
	}
	if err := k.broker.Apply(k.t.Context(), p); err != nil {
		k.t.Fatalf("workerstest: %v", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.policies[p.Name] = p
}

func (k *Kit) policy(name string) (p policy.Policy, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, known = k.policies[name]
	return p, known
}

// Auditor has what was observed of all starts.
//
//	Breaches() []Breach   // broken limits, which print as sentences
//	Figures() []Figure    // observations of all limits
type Auditor = audit.Auditor

// Audit observes all starts, and fails the test at its end if they broke a limit.
func (k *Kit) Audit() *Auditor {
	k.t.Helper()
	auditor := audit.New(k.broker, audit.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- auditor.Run(ctx) }()
	select {
	case <-auditor.Ready():
	case <-time.After(Patience):
		k.t.Errorf("workerstest: the auditor knew no policies within %v", Patience)
	}
	k.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			k.t.Errorf("workerstest: auditor: %v", err)
		}
		for _, b := range auditor.Breaches() {
			k.t.Errorf("%s, key %s: %s", b.Policy, b.Key.Raw(), b)
		}
	})
	return auditor
}

// Handle registers a policy's handler; a nil one succeeds. Call it before the first [Kit.Start].
func (k *Kit) Handle(policy string, handle workers.Handler) {
	if handle == nil {
		handle = func(context.Context, workers.Job) error { return nil }
	}
	k.handlers[policy] = handle
}

// Start runs another drainer with the registered handlers, until stop or the end of the test.
// [Kit.Publish] starts the first one.
func (k *Kit) Start() (stop func()) {
	k.t.Helper()
	k.drainer.Do(func() {})
	return k.start()
}

func (k *Kit) start() (stop func()) {
	k.t.Helper()
	drainer, err := workers.New(k.Connect(),
		workers.Options{Lease: time.Second, Grace: time.Second})
	if err != nil {
		k.t.Fatalf("workerstest: %v", err)
	}
	for name, handle := range k.handlers {
		drainer.Handle(name, k.recording(handle))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- drainer.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			k.t.Errorf("workerstest: drainer: %v", err)
		}
	})
	k.t.Cleanup(stop)
	return stop
}

func (k *Kit) recording(handle workers.Handler) workers.Handler {
	return func(ctx context.Context, job workers.Job) error {
		k.mu.Lock()
		k.starts[job.Policy] = append(k.starts[job.Policy], job)
		k.note()
		k.mu.Unlock()
		return handle(ctx, job)
	}
}

func (k *Kit) heard(policy string, e queue.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, heard{policy, e, time.Now()})
	switch e.Type {
	case queue.EventStarted:
		k.reported[policy]++
		k.note()
	case queue.EventDone, queue.EventDead, queue.EventCancelled:
		k.ends[policy] = append(k.ends[policy], e)
		k.note()
	}
}

func (k *Kit) note() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// Publish submits n jobs with one body, and waits until all are accepted. key is unencoded.
func (k *Kit) Publish(policy, key string, body []byte, n int) {
	k.t.Helper()
	for i := range n {
		if err := k.TryPublish(policy, key, body); err != nil {
			k.t.Fatalf("workerstest: job %d of %d: %v", i+1, n, err)
		}
	}
}

// TryPublish submits one job and returns why it was refused; see [jet.ErrFull].
func (k *Kit) TryPublish(policy, key string, body []byte) error {
	k.t.Helper()
	k.drainer.Do(func() { k.start() })
	encoded, err := queue.EncodeKey(key)
	if err != nil {
		return err
	}
	p, known := k.policy(policy)
	if !known {
		return fmt.Errorf("there is no policy %q", policy)
	}
	_, err = k.producer.Publish(k.t.Context(), jet.Submission{
		Policy: policy, Key: encoded, Body: body, Admitted: p.Door(),
	})
	return err
}

// Wait waits until n jobs of a policy have ended since the test began, and returns these events.
func (k *Kit) Wait(policy string, n int) []queue.Event {
	k.t.Helper()
	if _, known := k.policy(policy); !known {
		k.t.Fatalf("workerstest: there is no policy %q", policy)
	}
	var ends []queue.Event
	k.until("%d of %d jobs of %s have ended", policy, func() (int, int) {
		ends = slices.Clone(k.ends[policy])
		return len(ends), n
	})
	return ends
}

// until waits until count, called under the lock, returns as many as it wants.
func (k *Kit) until(what, policy string, count func() (n, want int)) {
	k.t.Helper()
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	for {
		k.mu.Lock()
		changed := k.changed
		n, want := count()
		k.mu.Unlock()
		if n >= want {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			k.t.Fatalf("workerstest: "+what+" after %v", n, want, policy, Patience)
		}
	}
}

// Jobs returns the attempts of a bucket that handlers have run, in order. key is unencoded; an
// empty one selects all buckets.
func (k *Kit) Jobs(policy, key string) []workers.Job {
	k.mu.Lock()
	jobs := slices.Clone(k.starts[policy])
	k.mu.Unlock()
	if key != "" {
		jobs = slices.DeleteFunc(jobs, func(j workers.Job) bool { return j.Key.Raw() != key })
	}
	slices.SortFunc(jobs, func(a, b workers.Job) int { return a.Started.Compare(b.Started) })
	return jobs
}

// AssertRate fails the test if a bucket started more than promised: jobs by their costs in any
// window T of a second or more, peak·(T + 2 ms) + burst, and the units of each limit, settled by
// the actual costs. An empty key checks each bucket. Limits on all keys together always count. It
// judges all starts so far by the policies' last [Kit.SetPolicy], without overrides.
func (k *Kit) AssertRate(policy, key string) {
	k.t.Helper()
	p, known := k.policy(policy)
	if !known || !p.Paced() {
		k.t.Fatalf("workerstest: there is no policy %q that paces its jobs", policy)
	}
	told := map[string]bool{}
	for _, b := range k.broken(policy) {
		of := b.Key.Raw()
		if together(p, b.Window.Limit) {
			of = "all keys"
		} else if key != "" && of != key {
			continue
		}
		if about := b.Window.Limit + " " + of; !told[about] {
			told[about] = true
			k.t.Errorf("workerstest: %s/%s: %s", policy, of, b)
		}
	}
}

func together(p policy.Policy, limit string) bool {
	return limit == "outflow_total" || slices.ContainsFunc(p.Limits, func(l policy.Limit) bool {
		return l.Name == limit && (l.Together() || l.Shared != "")
	})
}

func shared(p policy.Policy, limit string) bool {
	return slices.ContainsFunc(p.SharedLimits(), func(l policy.Limit) bool {
		return l.Shared == limit
	})
}

// broken judges the events in their order, because settled costs make room for later starts.
func (k *Kit) broken(of string) (broken []audit.Breach) {
	k.t.Helper()
	k.until("%d of %d starts of %s were reported", of, func() (n, want int) {
		return k.reported[of], len(k.starts[of])
	})
	judge, set := audit.NewJudge(math.MaxInt), inforce.Entries{}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, p := range k.policies {
		set[name] = &inforce.Entry{Policy: p}
	}
	judge.Follow(set, time.Now())
	for _, h := range k.events {
		for _, b := range judge.Heard(h.policy, h.Event, h.at) {
			if limit := b.Window.Limit; b.Policy == of ||
				shared(k.policies[of], limit) && shared(k.policies[b.Policy], limit) {
				broken = append(broken, b)
			}
		}
	}
	return broken
}

// CheckRate returns an error if ordered starts exceed peak·(T + 2 ms) + burst in any window T of a
// second or more. peak is in starts per second, by default 1.25 % above the outflow
// ([policy.DefaultPeak]).
func CheckRate(starts []time.Time, peak float64, burst int64) error {
	for i := range starts {
		for j := i; j < len(starts); j++ {
			window := max(time.Second, starts[j].Sub(starts[i]))
			if n := j - i + 1; float64(n) > peak*(window.Seconds()+0.002)+float64(burst) {
				return fmt.Errorf("%d starts within %v, at a peak of %v/s", n, window, peak)
			}
		}
	}
	return nil
}
