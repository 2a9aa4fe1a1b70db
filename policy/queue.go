package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
)

func (q Queue) MarshalJSON() ([]byte, error) {
	if q.Off {
		return []byte("false"), nil
	}
	return json.Marshal(struct {
		Capacity int64 `json:"capacity"`
	}{q.Capacity})
}

func (q *Queue) UnmarshalJSON(data []byte) error {
	type fields Queue
	switch {
	case string(data) == "false":
		*q = Queue{Off: true}
		return nil
	case data[0] == '{' || string(data) == "null":
		return json.Unmarshal(data, (*fields)(q))
	}
	return fmt.Errorf("%s: want false or {capacity: N}", data)
}

// HasQueue reports whether jobs wait in a stream.
func (p Policy) HasQueue() bool {
	if p.Algorithm == LeakingBucket {
		return p.Queue == nil || !p.Queue.Off
	}
	return p.Queue != nil && !p.Queue.Off
}

// Paced reports whether jobs start at an outflow: a leaking bucket with a queue.
func (p Policy) Paced() bool { return p.Algorithm == LeakingBucket && p.HasQueue() }

// Meter reports whether checks are answered with a delay: a leaking bucket without a queue.
func (p Policy) Meter() bool { return p.Algorithm == LeakingBucket && !p.HasQueue() }

// Door reports whether the policy decides at once; see [Policy.HasQueue] for one that also queues.
func (p Policy) Door() bool { return p.Algorithm != LeakingBucket }

// QueueCapacity is the most jobs in a bucket; 0: no queue.
func (p Policy) QueueCapacity() int64 {
	switch {
	case !p.HasQueue():
		return 0
	case p.Algorithm == LeakingBucket:
		return p.Capacity
	default:
		return p.Queue.Capacity
	}
}

// DefaultJobs is the default of the most jobs over all buckets.
const DefaultJobs = 1_000_000

// QueueJobs is the most jobs over all buckets; 0: no queue.
func (p Policy) QueueJobs() int64 {
	if !p.HasQueue() {
		return 0
	}
	return cmp.Or(p.MaxJobs, max(DefaultJobs, p.QueueCapacity()))
}

func (p Policy) decider() string {
	if p.Algorithm == "" && len(p.Limits) > 0 {
		return "limits"
	}
	return string(p.Algorithm)
}
