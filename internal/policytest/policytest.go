// Package policytest has the policies of tests that care about little but their queues.
package policytest

import (
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

// Paced is a leaking bucket with a queue, which starts ten jobs a second.
func Paced(name string, capacity int64, partitions int) policy.Policy {
	return policy.Policy{Name: name,
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: capacity,
			Outflow: algorithms.Rate{Count: 10, Per: time.Second}},
		Partitions: partitions}
}

// Door is a door policy with a queue, which lets ten jobs a minute in.
func Door(name string, capacity int64, partitions int) policy.Policy {
	return policy.Policy{Name: name,
		Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 10,
			Window: policy.Duration(time.Minute)},
		Queue: &policy.Queue{Capacity: capacity}, Partitions: partitions}
}
