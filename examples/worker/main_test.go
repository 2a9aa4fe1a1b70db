package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/brokertest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

func TestWorker(t *testing.T) {
	_, nc := brokertest.Start(t, embedded.Options{})
	broker := brokertest.Open(t, nc, policy.Policy{Name: "mail",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 10,
			Outflow: algorithms.Rate{Count: 20, Per: time.Second}}})
	for _, body := range []string{`{"to":"ann@example.com"}`, `no JSON`,
		`{"to":"bob@example.com"}`} {
		if _, err := nc.Request("penstock.jobs.mail.customer-1", []byte(body),
			waittest.Patience()); err != nil {
			t.Fatal(err)
		}
	}

	type result struct {
		job string
		err error
	}
	results := make(chan result, 10)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- work(ctx, nc, "mail", func(ctx context.Context, job workers.Job) error {
			err := send(ctx, job)
			results <- result{job.ID, err}
			return err
		})
	}()
	got := map[string]error{}
	for range 3 {
		select {
		case r := <-results:
			if _, again := got[r.job]; again {
				t.Errorf("%s ran twice", r.job)
			}
			got[r.job] = r.err
		case err := <-ended:
			t.Fatalf("the worker ended: %v", err)
		case <-time.After(waittest.Patience()):
			t.Fatalf("only %v ran", got)
		}
	}
	if got["mail:1"] != nil || got["mail:2"] == nil || got["mail:3"] != nil {
		t.Errorf("results: %v", got)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the worker ended with %v", err)
		}
	case <-time.After(waittest.Patience()):
		t.Fatal("the worker did not stop")
	}
	if depth, err := broker.Depth(t.Context(), "mail"); depth != 0 || err != nil {
		t.Errorf("%d jobs are left, %v", depth, err)
	}
}

func TestHandlerEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := send(ctx, workers.Job{Body: []byte(`{"to":"ann@example.com"}`)}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
}
