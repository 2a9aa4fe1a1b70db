package main

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
)

func TestBanner(t *testing.T) {
	limits := policy.Limits{{Name: "a"}, {Name: "b"}}
	shared := paced("shared")
	shared.OutflowTotal = shared.Outflow
	got := banner("127.0.0.1:1", "nats://127.0.0.1:2", inforce.Entries{
		"api":    {Policy: policy.Policy{Name: "api", Limits: limits}},
		"held":   {Policy: paced("held"), Paused: true},
		"old":    {Policy: paced("old"), Draining: true},
		"shared": {Policy: shared},
		"tokens": {Policy: policy.Policy{Rule: policy.Rule{Algorithm: policy.TokenBucket,
			Refill: paced("").Outflow, Capacity: 5}}},
	})
	for _, want := range []string{
		"http://127.0.0.1:1 and NATS at nats://127.0.0.1:2",
		"http://127.0.0.1:1/console/",
		"2 limits",
		"leaking bucket: 1/s per key, 1 wait  PAUSED: curl -X POST " +
			"http://127.0.0.1:1/v1/resume/held",
		"leaking bucket: 1/s in total, 1 wait per key",
		"token bucket: 1/s per key, bursts of 5",
		"curl -i -d hello http://127.0.0.1:1/v1/jobs/shared/customer-1",
		"curl -i -X POST http://127.0.0.1:1/v1/check/api/customer-1",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("does not say %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "old") {
		t.Errorf("a retired policy is shown:\n%s", got)
	}
	if got := banner("a:1", "b:2", nil); strings.Contains(got, "Try") {
		t.Errorf("without policies there is nothing to try:\n%s", got)
	}
}

func paced(name string) policy.Policy {
	return policy.Policy{Name: name, Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 1,
		Outflow: algorithms.Rate{Count: 1, Per: time.Second}}}
}
