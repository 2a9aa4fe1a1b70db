package main

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestPublisherShowsAcknowledgementsAndRefusals(t *testing.T) {
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	nc, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	broker, err := queue.NewBroker(nc, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	small := policy.Policy{Name: "small", Algorithm: policy.LeakingBucket, Capacity: 2,
		Outflow: algorithms.Rate{Count: 1, Per: time.Second}}.WithDefaults()
	if err := broker.Apply(t.Context(), small); err != nil {
		t.Fatal(err)
	}

	var out strings.Builder
	if err := publish(t.Context(), nc, "penstock.jobs.small.customer-1", 3, &out); err != nil {
		t.Fatal(err)
	}
	const want = `job 1: accepted, number 1 in PENSTOCK_small
job 2: accepted, number 2 in PENSTOCK_small
job 3: refused: maximum messages per subject exceeded
`
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
	err = publish(t.Context(), nc, "penstock.jobs.unknown.customer-1", 1, &out)
	if err == nil || !strings.Contains(err.Error(), "no such policy") {
		t.Errorf("publishing to an unknown policy: %v", err)
	}
}
