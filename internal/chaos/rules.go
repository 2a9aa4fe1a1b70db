//go:build unix

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

type rule struct {
	name       string
	settings   string
	rate       float64 // per second of a bucket; 0: unpaced
	peak       float64
	burst      float64
	arrivals   int // at the target in any second, by its clock; 0: not judged
	total      bool
	capacity   int
	partitions int
	attempts   int
	keys       int
	offered    float64 // per second and key
	calls      float64 // per second and key
	door       bool
}

const attemptTimeout = 5 * time.Second

// rules cover buckets that are never empty, mostly empty, with few slots, with a common rate,
// slower than a lease, unpaced, and with their target's limit. More policies have few jobs.
func rules(policies int) []rule {
	retry := fmt.Sprintf(
		"retry: {max_attempts: 6, backoff: 200ms, max_backoff: 1s, max_cooldown: 2s}, timeout: %v",
		attemptTimeout)
	all := []rule{
		{name: "steady", settings: "algorithm: leaking_bucket, outflow: 8/s, " + retry,
			rate: 8, peak: 8 * policy.DefaultPeak, burst: 1, capacity: 60, partitions: 6,
			attempts: 6, keys: 6, offered: 10, calls: 1},
		{name: "burst",
			settings: "algorithm: leaking_bucket, outflow: 20/s, peak: 21/s, burst: 5, " +
				"concurrency: 3, " +
				"workers: 4, " + retry,
			rate: 20, peak: 21, burst: 5, capacity: 100, partitions: 2, attempts: 6, keys: 3,
			offered: 8, calls: 4},
		{name: "total",
			settings: "algorithm: leaking_bucket, outflow_total: 15/s, peak_total: 15/s, " +
				retry,
			rate: 15, peak: 15, burst: 1, total: true, capacity: 40, partitions: 1, attempts: 6,
			keys: 4, offered: 4.5, calls: 0.5},
		{name: "slow", settings: "algorithm: leaking_bucket, outflow: 1/4s, " + retry,
			rate: 0.25, peak: 0.25 * policy.DefaultPeak, burst: 1, capacity: 8, partitions: 2,
			attempts: 6, keys: 4, offered: 0.3},
		{name: "door",
			settings: "algorithm: token_bucket, refill: 10/s, queue: {capacity: 50}, " + retry,
			capacity: 50, partitions: 2, attempts: 6, keys: 2, offered: 4, door: true},
		{name: "strict",
			settings: "algorithm: leaking_bucket, limits: [{algorithm: sliding_log, limit: 10, " +
				"window: 1s, count_from: answer}], " + retry,
			arrivals: 10, capacity: 60, partitions: 1, attempts: 6, keys: 1, offered: 6, calls: 6},
	}
	for i := len(all); i < policies; i++ {
		all = append(all, rule{name: fmt.Sprintf("rare-%d", i),
			settings: "algorithm: leaking_bucket, outflow: 8/s, " + retry,
			rate:     8, peak: 8 * policy.DefaultPeak, burst: 1, capacity: 60, partitions: 1,
			attempts: 6, keys: 1, offered: 1.0 / 60})
	}
	return all
}

const alwaysBusy = "steady"

func configuration(rules []rule, lease time.Duration, target string) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"nats: {replicas: 3}\ndrain: {lease: %v}\nlog: {format: json}\ngrace: 15s\npolicies:\n",
		lease)
	for _, r := range rules {
		capacity := fmt.Sprintf("capacity: %d, ", r.capacity)
		if r.door {
			capacity = "capacity: 20, "
		}
		fmt.Fprintf(&b, "  - {name: %s, %s%s, partitions: %d, target: {http: {url: %q}}}\n",
			r.name, capacity, r.settings, r.partitions, target)
	}
	return b.String()
}

func (h *history) partition(b bucket) int {
	names, err := jet.NewNames("")
	if err != nil {
		panic(err)
	}
	for _, r := range h.rules {
		if r.name == b.policy {
			subject := names.Jobs(b.policy, queue.Key(b.key))
			if r.door {
				subject = names.Admitted(b.policy, queue.Key(b.key))
			}
			return job.Partition(subject, r.partitions)
		}
	}
	return -1
}
