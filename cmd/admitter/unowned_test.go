package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/workers"
)

// The log and a metric report within seconds that jobs have no drainer, and when they have one
// again.
func TestJobsThatNoDrainerOwnsAreReported(t *testing.T) {
	t.Parallel()
	p := launch(t, "--config", configure(t, policies)).ready()
	metric := func(want string) func() bool {
		return func() bool {
			_, text := p.get("/metrics")
			return strings.Contains(text, "\n"+want+"\n")
		}
	}
	if status, body := p.post("/v1/jobs/stripe/acme", "pay"); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	eventually(t, "nothing says that no drainer owns stripe",
		metric(`penstock_policy_without_drainer{policy="stripe"} 1`))
	if metric(`penstock_policy_without_drainer{policy="search"} 1`)() {
		t.Error("search has no jobs that could wait")
	}

	nc, err := nats.Connect(p.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	drainer, err := workers.New(nc, workers.Options{OwnAll: true, Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- drainer.Run(ctx) }()
	eventually(t, "nothing says that a drainer owns stripe", func() bool {
		return !metric(`penstock_policy_without_drainer{policy="stripe"} 1`)()
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	p.stop()
	text := p.Log.String()
	for _, want := range []string{"jobs are waiting, but no drainer owns their policy",
		"a drainer owns the policy"} {
		if n := strings.Count(text, want); n < 1 || n > 2 {
			t.Errorf("%d lines %q, want one per condition", n, want)
		}
	}
}
