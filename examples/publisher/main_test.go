package main

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/brokertest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestPublisherShowsAcknowledgementsAndRefusals(t *testing.T) {
	_, nc := brokertest.Start(t, embedded.Options{})
	brokertest.Open(t, nc, policy.Policy{Name: "small",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 2,
			Outflow: algorithms.Rate{Count: 1, Per: time.Second}}})

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
	err := publish(t.Context(), nc, "penstock.jobs.unknown.customer-1", 1, &out)
	if err == nil || !strings.Contains(err.Error(), "no such policy") {
		t.Errorf("publishing to an unknown policy: %v", err)
	}
}
