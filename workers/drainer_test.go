package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

const ms, second = time.Millisecond, time.Second

var deadline = waittest.Patience()

type bench struct {
	t      *testing.T
	server *embedded.Server
	nc     *nats.Conn
	broker *jet.Broker

	restartable *embedded.Options
	url         string

	onError nats.ErrHandler // nil: nats.go prints errors
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
	if b.broker, err = jet.NewBroker(b.nc, jet.Options{}); err != nil {
		t.Fatal(err)
	}
	b.answered(func() error { return b.broker.Setup(t.Context()) })
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
	b.answered(func() error {
		_, err := store.New(b.broker, nil).Put(b.t.Context(), p)
		return err
	})
	b.answered(func() error { return b.broker.Apply(b.t.Context(), p) })
}

// pause pauses or resumes policy api.
func (b *bench) pause(paused bool) {
	b.t.Helper()
	patch := fmt.Appendf(nil, `{"paused":%t}`, paused)
	b.answered(func() error {
		_, _, err := store.New(b.broker, nil).Change(b.t.Context(), "api",
			store.Change{Act: store.Pull, Edit: func(_ inforce.Entry,
				e *inforce.Entry) (err error) {
				e.Levers, err = e.Levers.Patch(patch, inforce.Lever{})
				return err
			}})
		return err
	})
}

// answered repeats a call until NATS answers; a busy machine may need several.
func (b *bench) answered(call func() error) {
	b.t.Helper()
	var err error
	b.until("NATS answers", func() bool {
		err = call()
		return !errors.Is(err, jet.ErrUnavailable)
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) forget(policy string) {
	b.t.Helper()
	b.until("the policy is gone", func() (gone bool) {
		b.answered(func() (err error) {
			gone, err = store.New(b.broker, nil).Forget(b.t.Context(), policy)
			return err
		})
		return gone
	})
}

func (b *bench) connect() *nats.Conn {
	b.t.Helper()
	var nc *nats.Conn
	var err error
	options := []nats.Option{nats.MaxReconnects(-1)}
	if b.onError != nil {
		options = append(options, nats.ErrorHandler(b.onError))
	}
	if b.url != "" {
		options = append(options, nats.ReconnectWait(50*time.Millisecond))
		nc, err = nats.Connect(b.url, options...)
	} else {
		nc, err = b.server.Connect(options...)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	return nc
}

func (b *bench) publish(policy, key string, from, n int) {
	b.t.Helper()
	b.publishTo(policy, func(int) string { return key }, from, n)
}

func (b *bench) publishTo(policy string, key func(i int) string, from, n int) {
	b.t.Helper()
	js, err := b.nc.JetStream(nats.MaxWait(deadline))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range n {
		if _, err := js.PublishAsync("penstock.jobs."+policy+"."+key(i),
			[]byte(fmt.Sprint(from+i))); err != nil {
			b.t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(deadline):
		b.t.Fatal("publishes were not acknowledged")
	}
}

func (b *bench) drain(o Options, handlers map[string]Handler) (stop func()) {
	b.t.Helper()
	_, stop = b.drainer(o, handlers)
	return stop
}

func (b *bench) drainer(o Options, handlers map[string]Handler) (d *Drainer, stop func()) {
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
	return d, stop
}

func (b *bench) empty(policy string) {
	b.t.Helper()
	b.until("the queue is empty", func() bool {
		n, err := b.broker.Depth(b.t.Context(), policy)
		return err == nil && n == 0
	})
}

func (b *bench) until(what string, done func() bool) {
	b.t.Helper()
	waittest.Until(b.t, what, done)
}

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

// jumps shows the jobs that did not start after the job published before, with their sequences.
func (s *seen) jumps(key queue.Key) (jumps []string) {
	before := -1
	for _, job := range s.all() {
		if job.Key != key {
			continue
		}
		n, _ := strconv.Atoi(string(job.Body))
		if n != before+1 {
			jumps = append(jumps, fmt.Sprintf("%d (%s, started %s) after %d", n, job.ID,
				job.Started.Format("15:04:05.000000"), before))
		}
		before = n
	}
	return jumps
}

func with(p policy.Policy, change func(*policy.Policy)) policy.Policy {
	change(&p)
	return p
}

func total(rate string) policy.Policy {
	p := leaky("mail", rate)
	p.OutflowTotal, p.Outflow = p.Outflow, p.OutflowTotal
	return p
}

func leaky(name, rate string) policy.Policy {
	r, err := algorithms.ParseRate(rate)
	if err != nil {
		panic(err)
	}
	return policy.Policy{Name: name,
		Rule:       policy.Rule{Algorithm: policy.LeakingBucket, Outflow: r, Capacity: 100_000},
		Partitions: 2}
}

func numbers(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

func TestDrainerKeepsRateAndOrder(t *testing.T) {
	b := newBench(t, leaky("api", "100/s"))
	b.publish("api", "a", 0, 250)
	b.publish("api", "b", 0, 120)
	var ran seen
	b.drain(Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))},
		map[string]Handler{"api": ran.handle})
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
		if why := pacetest.Exceeds(starts, 100, 1); why != "" {
			t.Errorf("bucket %s: %s", key, why)
		}
	}
}

func (b *bench) deadLetter(policy, key string) string {
	b.t.Helper()
	return b.letter(policy, key).Get(jet.HeaderDeadReason)
}

func (b *bench) letter(policy, key string) nats.Header {
	b.t.Helper()
	js, err := b.nc.JetStream(nats.MaxWait(deadline))
	if err != nil {
		b.t.Fatal(err)
	}
	m, err := js.GetLastMsg("PENSTOCK_DEAD_"+policy, "penstock.dead."+policy+"."+key)
	if err != nil {
		b.t.Fatalf("dead letter of %s: %v", key, err)
	}
	return m.Header
}

// TestPlannedHandoverLosesAndRepeatsNothing restarts drainers one after the other while jobs run,
// which loses and repeats no job, and counts no attempt.
func TestPlannedHandoverLosesAndRepeatsNothing(t *testing.T) {
	// Another drainer's worker starts a job when its message arrives, on a busy machine after the
	// next ones. So there are enough workers here.
	b := newBench(t, with(leaky("api", "200/s"), func(p *policy.Policy) { p.Workers = 1200 }))
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
				records, err := b.broker.Tables().Drainers.List(t.Context(), ">")
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
			t.Errorf("bucket %s ran %d jobs: %v\nout of order: %v", key, len(got), got,
				ran.jumps(key))
		}
	}
	for _, job := range ran.all() {
		if job.Attempt != 1 {
			t.Errorf("job %s: attempt %d", job.ID, job.Attempt)
		}
	}
}

func (b *bench) owner(key string) (r record.Owner) {
	b.t.Helper()
	b.answered(func() error {
		found, err := b.broker.Tables().Partitions.Read(b.t.Context(), key)
		if errors.Is(err, jet.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = record.Decode(found.Value, &r)
		}
		return err
	})
	return r
}
