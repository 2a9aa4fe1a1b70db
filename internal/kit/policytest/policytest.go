// Package policytest makes policies for tests of queues.
package policytest

import (
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

// Paced returns a leaking bucket with a queue, which starts ten jobs a second.
func Paced(name string, capacity int64, partitions int) policy.Policy {
	return policy.Policy{Name: name,
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: capacity,
			Outflow: algorithms.Rate{Count: 10, Per: time.Second}},
		Partitions: partitions}
}

// Door returns a door policy with a queue, which admits ten jobs a minute.
func Door(name string, capacity int64, partitions int) policy.Policy {
	return policy.Policy{Name: name,
		Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 10,
			Window: policy.Duration(time.Minute)},
		Queue: &policy.Queue{Capacity: capacity}, Partitions: partitions}
}
