package inforce_test

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
)

func full() policy.Policy {
	return policy.Policy{Name: "stripe",
		Rule:       policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 7, Outflow: rate(5)},
		Partitions: 4, Target: &policy.Target{HTTP: &policy.HTTPTarget{URL: "https://example.com"}}}
}

func rate(n int64) algorithms.Rate { return algorithms.Rate{Count: n, Per: time.Second} }

func TestCheckChange(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*policy.Policy)
		want   string
	}{
		{"nothing", func(*policy.Policy) {}, ""},
		{"numbers", func(p *policy.Policy) {
			p.Outflow.Count, p.Capacity, p.Workers, p.Target = 1, 1, 1, nil
		}, ""},
		{"partitions", func(p *policy.Policy) { p.Partitions = 5 },
			"partitions: cannot change from 4 to 5: give the policy a new name"},
		{"partitions by default", func(p *policy.Policy) {
			p.Partitions = 0
		}, "partitions: cannot change from 4 to 1"},
		{"algorithm", func(p *policy.Policy) {
			p.Algorithm, p.Queue = policy.TokenBucket, &policy.Queue{Capacity: 5}
		},
			"algorithm: cannot change from leaking_bucket to token_bucket"},
		{"queue", func(p *policy.Policy) {
			p.Queue = &policy.Queue{Off: true}
		}, "queue: cannot be removed"},
	} {
		before, after := full(), full()
		test.change(&after)
		err := inforce.CheckChange(before, after)
		says := ""
		if err != nil {
			says = err.Error()
		}
		if test.want == "" && err != nil || !strings.HasPrefix(says, test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
	named := full()
	named.Partitions = 0
	if got := inforce.Keeping(named, full()).Partitions; got != 4 {
		t.Errorf("kept %d partitions", got)
	}
	single, total := full(), full()
	single.Partitions = 1
	total.Partitions, total.OutflowTotal = 0, algorithms.Rate{Count: 100, Per: time.Second}
	faster := total
	faster.OutflowTotal.Count, faster.Outflow = 200, algorithms.Rate{}
	for _, change := range [][2]policy.Policy{{single, total}, {total, single}, {total, faster},
		{faster, total}} {
		if err := inforce.CheckChange(change[0], change[1]); err != nil {
			t.Errorf("outflow_total cannot change with one partition: %v", err)
		}
	}
	if err := inforce.CheckChange(full(), inforce.Keeping(total, full())); err == nil ||
		!strings.Contains(err.Error(), "one partition") {
		t.Errorf("outflow_total on four partitions: %v", err)
	}
	meter := full()
	meter.Queue = &policy.Queue{Off: true}
	if err := inforce.CheckChange(meter, full()); err != nil {
		t.Errorf("a queue cannot be added: %v", err)
	}
	calls := full()
	calls.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: policy.CallbackURL}}
	if err := inforce.CheckChange(full(), calls); err != nil {
		t.Errorf("callbacks cannot be added: %v", err)
	}
	if err := inforce.CheckChange(calls, full()); err == nil ||
		!strings.Contains(err.Error(), "callbacks may wait") {
		t.Errorf("the target of callbacks can be removed: %v", err)
	}
}
