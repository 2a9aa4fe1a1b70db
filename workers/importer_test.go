package workers_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

// These tests use only the package's API, as importers do.

const deadline = 2 * time.Minute

func TestDrainerOutcomes(t *testing.T) {
	ctx, nc, end := serve(policy.Policy{
		Name: "mail",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket,
			Outflow: algorithms.Rate{Count: 1000, Per: time.Second}, Capacity: 100},
		Retry: policy.Retry{MaxAttempts: 3, Backoff: policy.Duration(10 * time.Millisecond),
			MaxBackoff: policy.Duration(20 * time.Millisecond)},
	})
	defer end()
	outcomes := map[string][]int{
		"fails": {1, 2, 3}, "panics": {1, 2}, "nil-error": {1, 2}, "exits": {1, 2},
		"permanent":   {1},
		"throttled":   {1, 1, 1, 1, 1},
		"unavailable": {1, 2}, "fine": {1},
	}
	var mu sync.Mutex
	attempts, finished, ended := map[string][]int{}, map[string]int{}, map[string]int{}
	all := make(chan struct{})
	drainer, err := workers.New(nc, workers.Options{Sink: queue.SinkFunc(func(e queue.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch e.Type {
		case queue.EventDone, queue.EventFailed, queue.EventThrottled, jet.EventUncounted:
			finished[e.Name]++
		}
		switch e.Type {
		case queue.EventDone, queue.EventDead:
			ended[e.Type]++
			if ended["done"]+ended["dead"] == len(outcomes) {
				close(all)
			}
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	drainer.Handle("mail", func(_ context.Context, job workers.Job) error {
		key := job.Key.Raw()
		mu.Lock()
		attempts[key] = append(attempts[key], job.Attempt)
		n := len(attempts[key])
		mu.Unlock()
		switch {
		case key == "fails":
			return errors.New("no")
		case key == "panics" && n == 1:
			panic("oh")
		case key == "nil-error" && n == 1:
			return (*fs.PathError)(nil) // is not nil, and its methods panic
		case key == "exits" && n == 1:
			runtime.Goexit()
		case key == "permanent":
			return workers.Permanent(errors.New("never"))
		case key == "throttled" && n <= 4:
			return workers.RetryAfter(10*time.Millisecond, errors.New("slow down"))
		case key == "unavailable" && n == 1:
			return workers.Unavailable(errors.New("nobody there"))
		}
		return nil
	})
	for key := range outcomes {
		publish(nc, key, "a letter")
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- drainer.Run(ctx) }()
	select {
	case <-all:
	case <-ctx.Done():
		t.Fatal("not every job ended")
	}
	broker, err := jet.NewBroker(nc, jet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "attempt records are gone", func() bool {
		records, err := broker.Tables().Attempts.List(t.Context(), ">")
		return err == nil && len(records) == 0
	})
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for key, want := range outcomes {
		if !slices.Equal(attempts[key], want) {
			t.Errorf("%s: attempts %v, want %v", key, attempts[key], want)
		}
	}
	if got := fmt.Sprint(finished, ended); got !=
		"map[done:6 failed:7 permanent:1 throttled:4] map[dead:2 done:6]" {
		t.Errorf("the observer has heard %s", got)
	}
	js, err := nc.JetStream(nats.MaxWait(deadline))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]queue.Reason{
		"fails": queue.ReasonAttempts, "permanent": queue.ReasonPermanent,
	} {
		m, err := js.GetLastMsg("PENSTOCK_DEAD_mail", "penstock.dead.mail."+key)
		if err != nil {
			t.Fatalf("dead letter of %s: %v", key, err)
		}
		if got := m.Header.Get("Penstock-Dead-Reason"); got != string(want) {
			t.Errorf("%s: dead letter %q, want %q", key, got, want)
		}
	}
}

func TestRunWaitsForNATS(t *testing.T) {
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	url := server.URL()
	server.Shutdown()
	nc, err := nats.Connect(url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ready := make(chan struct{})
	d, err := workers.New(nc, workers.Options{Lease: time.Second, Ready: func() { close(ready) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	if server, err = embedded.Start(embedded.Options{Dir: t.TempDir(),
		Listen: strings.TrimPrefix(url, "nats://")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	select {
	case <-ready:
	case err := <-done:
		t.Fatalf("it ended: %v", err)
	case <-time.After(deadline):
		t.Fatal("it did not become ready")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRunEndsWhileItWaitsForNATS(t *testing.T) {
	nc, err := nats.Connect("nats://127.0.0.1:1", nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	d, err := workers.New(nc, workers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Run(ctx); err != nil {
		t.Error(err)
	}
	nc.Close()
	if d, err = workers.New(nc, workers.Options{}); err == nil {
		err = d.Run(t.Context())
	}
	if !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("on a closed connection: %v", err)
	}
}

func TestLendOnlyEndsWithItsConnection(t *testing.T) {
	_, nc, end := mail()
	defer end()
	ready := make(chan struct{})
	d, err := workers.New(nc, workers.Options{WorkerOnly: true, Ready: func() { close(ready) }})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.Run(t.Context()) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatalf("it ended: %v", err)
	case <-time.After(deadline):
		t.Fatal("it did not become ready")
	}
	if err := d.Health(); err != nil {
		t.Errorf("health of a process that lends: %v", err)
	}
	nc.Close()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a closed connection is no error")
		}
	case <-time.After(deadline):
		t.Fatal("it goes on without a connection")
	}
}
