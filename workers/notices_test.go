package workers

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

type logged struct {
	t    *testing.T
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.t.Output().Write(p)
	return l.text.Write(p)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func on(kind string, take func(queue.Event)) queue.Sink {
	return queue.SinkFunc(func(e queue.Event) {
		if e.Type == kind {
			take(e)
		}
	})
}

func (l *logged) lines(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			n++
		}
	}
	return n
}

func targetPolicy(name string) policy.Policy {
	p := leaky(name, "1000/s")
	p.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: "http://127.0.0.1:1"}}
	return p
}

func targetOf(run Handler) func(inforce.Entry) (Handler, error) {
	return func(entry inforce.Entry) (Handler, error) {
		if entry.Policy.Target == nil {
			return nil, nil
		}
		return run, nil
	}
}

func TestAHandlerWithoutAQueuePolicyIsReported(t *testing.T) {
	for _, lendOnly := range []bool{false, true} {
		b := newBench(t)
		if _, err := store.New(b.broker, nil).Put(t.Context(), policy.Policy{Name: "door",
			Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 1,
				Window: policy.Duration(time.Minute)}}); err != nil {
			t.Fatal(err)
		}
		log := &logged{t: t}
		var ran seen
		stop := b.drain(Options{WorkerOnly: lendOnly, Logger: log.logger()},
			map[string]Handler{"api": ran.handle, "door": ran.handle})
		b.until("both are told", func() bool {
			return log.lines("level=WARN", "the policy does not exist", "policy=api") == 1 &&
				log.lines("level=WARN", "no queue", "policy=door") == 1
		})
		b.put(leaky("other", "10/s"))
		b.put(leaky("api", "10/s"))
		b.until("the return is told", func() bool {
			return log.lines("level=INFO", "its policy exists now", "policy=api") == 1
		})
		if n := log.lines("handler waiting"); n != 2 {
			t.Errorf("%d lines, want one per condition", n)
		}
		stop()
	}
}

func TestADrainersUnknownPoliciesAreReported(t *testing.T) {
	b := newBench(t, leaky("api", "10/s"))
	log := &logged{t: t}
	b.valve(Options{Policies: []string{"api", "apo"}, Logger: log.logger()})
	b.until("it is told", func() bool {
		return log.lines("level=WARN", "policy to drain", "does not exist", "policy=apo") == 1
	})
	b.put(leaky("apo", "10/s"))
	b.until("the end is told", func() bool {
		return log.lines("level=INFO", "policy to drain exists now", "policy=apo") == 1
	})
	if n := log.lines("policy=api", "policy to drain"); n != 0 {
		t.Errorf("%d lines about a policy that is as it should be", n)
	}
}

func TestCallsThatFailAreOneLineAndOneWhenTheyNoLongerDo(t *testing.T) {
	b := newBench(t)
	log := &logged{t: t}
	d, err := New(b.nc, Options{Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	var answers atomic.Bool
	var ended atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 100 {
		go func() {
			d.retry(ctx, "write", func() error {
				if answers.Load() {
					return nil
				}
				return jet.ErrUnavailable
			})
			ended.Add(1)
		}()
	}
	b.until("it is told", func() bool {
		return log.lines("level=WARN", "still retrying", "what=write") == 1
	})
	b.until("all are among them", func() bool {
		d.struggles.mu.Lock()
		defer d.struggles.mu.Unlock()
		return d.struggles.open == 100
	})
	answers.Store(true)
	b.until("the end is told", func() bool {
		return log.lines("level=INFO", "JetStream operation succeeds again") == 1
	})
	b.until("all have ended", func() bool { return ended.Load() == 100 })
	if n := log.lines("level="); n != 2 {
		t.Errorf("%d lines, want 2", n)
	}
}

func TestAHandlerBesideATargetIsRefusedAndTheTargetRunsAllJobs(t *testing.T) {
	b := newBench(t, targetPolicy("api"))
	log := &logged{t: t}
	var handler, target, lent, offered seen
	b.drain(Options{Logger: log.logger(), Target: targetOf(target.handle)},
		map[string]Handler{"api": handler.handle})
	b.drain(Options{Logger: log.logger(), WorkerOnly: true}, map[string]Handler{"api": lent.handle})
	b.script("api", func(_ *scripted, _ *nats.Msg) {
		_ = offered.handle(context.Background(), Job{})
	})
	b.until("both are refused", func() bool {
		return log.lines("level=WARN", "handler waiting", "has a target", "policy=api") == 2
	})
	b.publish("api", "a", 0, 300)
	b.empty("api")
	if n := len(target.all()); n != 300 {
		t.Errorf("the target ran %d of 300 jobs", n)
	}
	if n := len(handler.all()) + len(lent.all()) + len(offered.all()); n != 0 {
		t.Errorf("others ran, or were offered, %d jobs", n)
	}
}

func TestDrainersLendEachOtherTheirTargets(t *testing.T) {
	p := targetPolicy("api")
	p.Partitions, p.Workers = 1, 2
	b := newBench(t, p)
	release := make(chan struct{})
	var first, second seen
	blocking := func(s *seen) Handler {
		return func(ctx context.Context, job Job) error {
			_ = s.handle(ctx, job)
			<-release
			return nil
		}
	}
	b.drain(Options{Target: targetOf(blocking(&first))}, nil)
	b.drain(Options{Target: targetOf(blocking(&second))}, nil)
	for i := range 4 {
		b.publish("api", string(rune('a'+i)), i, 1)
	}
	b.until("all four run, two in each", func() bool {
		return len(first.all()) == 2 && len(second.all()) == 2
	})
	close(release)
	b.empty("api")
}

func TestJobsWithoutWorkersAreReported(t *testing.T) {
	t.Parallel()
	b := newBench(t, leaky("api", "100/s"))
	log := &logged{t: t}
	var mu sync.Mutex
	var observed []bool
	b.valve(Options{Logger: log.logger(), Sink: on(jet.EventWithoutWorkers, func(e queue.Event) {
		mu.Lock()
		defer mu.Unlock()
		observed = append(observed, e.Value > 0)
	})})
	b.publish("api", "a", 0, 3)
	b.until("it is told", func() bool {
		return log.lines("level=WARN", "the policy has no worker", "policy=api") == 1
	})
	var ran seen
	b.lend(Options{}, map[string]Handler{"api": ran.handle})
	b.empty("api")
	b.until("the end is told", func() bool {
		return log.lines("level=INFO", "has workers again") == 1
	})
	mu.Lock()
	defer mu.Unlock()
	if len(observed) != 2 || !observed[0] || observed[1] {
		t.Errorf("the observer heard %v", observed)
	}
}

func TestAServerWithoutJetStreamIsReported(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true,
		NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(deadline) {
		t.Fatal("the server does not start")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	log := &logged{t: t}
	d, err := New(nc, Options{Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	waittest.Until(t, "it is said", func() bool {
		return log.lines("level=WARN", "JetStream is not usable", "not enabled") > 0
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := log.lines("level=INFO"); n != 0 {
		t.Errorf("%d lines of an outage that did not end", n)
	}
}
