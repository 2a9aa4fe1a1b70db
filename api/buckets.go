package api

import (
	"time"
)

// Bucket is a queue of a policy's jobs, one per key. Most of its fields are missing if no drainer
// answers for its partition.
type Bucket struct {
	Key       string `json:"key"`
	Partition int    `json:"partition"`
	Depth     int    `json:"depth"` // accepted jobs: waiting, delayed and running
	*BucketState
	Hold
	// what it holds, why its next job does not start, and when a job accepted now would: a sentence
	// whose subject is the bucket
	Why string `json:"why,omitempty"`
	// partitions whose drainer did not answer
	Unanswered []int `json:"unanswered,omitempty"`
}

// BucketState is the part of a bucket's state that its drainer knows.
type BucketState struct {
	Waiting int `json:"waiting"` // could start if the rate allowed
	Delayed int `json:"delayed"` // backing off, or not due
	// jobs at a worker, and calls with a lease or started within 250 ms
	Running      int     `json:"running"`
	Calls        int     `json:"calls,omitempty"`         // calls waiting for a permit
	CallsRunning int     `json:"calls_running,omitempty"` // calls among `running`
	Outflow      float64 `json:"outflow,omitempty"`       // configured starts per second
	// within T ≥ 1 s, at most peak × (T + 0.002) + burst starts
	Peak    float64 `json:"peak,omitempty"`
	Burst   int64   `json:"burst,omitempty"`
	Adapted float64 `json:"adapted,omitempty"` // adaptive limit in starts per second
	Rate    float64 `json:"rate"`              // starts per second over about 5 s
	// over a minute, or three intervals of a slower outflow
	RateMinute float64 `json:"rate_1m,omitempty"`
	// how much starts were delayed beyond the outflow in the last minute, in ms by cause: a value
	// of `blocked_by`, `limit` or `processor`
	LateMS map[string]int64 `json:"late_ms,omitempty"`
	// its limits on starts; only for a single bucket
	Limits  []LimitLeft `json:"limits,omitempty"`
	Reading bool        `json:"reading,omitempty"` // a new owner is still reading the queue
	Paused  bool        `json:"paused"`            // the bucket, or its policy
	// remaining pause requested by the target
	ThrottledMS int64 `json:"throttled_ms,omitempty"`
	HeadAgeMS   int64 `json:"head_age_ms,omitempty"` // time since the oldest waiting job was accepted
	// time until a job accepted now would start; null if unknown; with `outflow_total` and more
	// than 1,000 buckets, a conservative estimate
	ETAMS *int64 `json:"eta_ms"`
	// of the last unsuccessful run, until a run succeeds
	LastError string `json:"last_error,omitempty"`
}

// LimitLeft is what is left of a limit on starts.
type LimitLeft struct {
	Name string `json:"name"`
	Left int64  `json:"left"` // units available now
	Most int64  `json:"most"` // the limit's maximum
	// units of requests without an answer, of a limit that counts from it; what is neither left nor
	// open counts. Missing if there are none
	Open int64 `json:"open,omitempty"`
}

// Fill is the use of a bound, in bytes.
type Fill struct {
	Used int64 `json:"used"`
	Max  int64 `json:"max,omitempty"` // missing: not bounded
	// that jobs nearly fill their policy, in words; only of all policies
	Why string `json:"why,omitempty"`
}

// Buckets is a page of a policy's buckets.
type Buckets struct {
	Buckets []Bucket `json:"buckets"`
	Total   int      `json:"total"`                 // buckets holding jobs or calls
	Next    *int     `json:"next_offset,omitempty"` // missing on the last page
	// partitions whose drainer did not answer
	Unanswered []int `json:"unanswered,omitempty"`
	Bytes      Fill  `json:"bytes,omitzero"` // bytes that the policy's jobs take
}

// PlacedBucket is a bucket of any policy.
type PlacedBucket struct {
	Policy string `json:"policy"`
	Bucket
	Refused int64 `json:"refused,omitempty"` // minimum number of jobs; only with `by=refused`
}

// AllBuckets is the top buckets of all policies.
type AllBuckets struct {
	Buckets []PlacedBucket `json:"buckets"`
	// buckets that hold jobs or calls; with `by=refused`: known ones
	Total int `json:"total"`
	// how long refusals were counted; only with `by=refused`
	WindowMS *int64 `json:"window_ms,omitempty"`
	// jobs per policy, with or without a drainer; not with `by=refused`
	Depths map[string]uint64 `json:"depths,omitzero"`
	// bytes that the jobs of each policy with jobs take; not with `by=refused`
	Bytes map[string]Fill `json:"bytes,omitzero"`
	// partitions without an answer from a drainer, by policy
	Unanswered map[string][]int `json:"unanswered,omitempty"`
}

// Purged is the result of dropping a bucket's jobs.
type Purged struct {
	Key     string `json:"key"`
	Removed int    `json:"removed"`
	More    bool   `json:"more,omitempty"` // time ran out
}

// DeadLetter is a failed job.
type DeadLetter struct {
	ID  uint64 `json:"id"`
	Key string `json:"key"`
	Job string `json:"job"`
	// why the job became a dead letter: `permanent` (retrying cannot help), `attempts` (all
	// attempts failed), `deadline` (passed), `malformed` (invalid headers), `crashed` (its
	// drainer crashed three times)
	Reason     string    `json:"reason"`
	Error      string    `json:"error,omitempty"`
	Attempts   int       `json:"attempts"` // failed attempts, including the last
	AcceptedAt time.Time `json:"accepted_at"`
	DeadAt     time.Time `json:"dead_at"`
	Tags       []string  `json:"tags,omitempty"`
	Size       int       `json:"size"` // of the body, in bytes

	// of a single letter
	Header map[string][]string `json:"header,omitempty"`
	Body   *string             `json:"body,omitempty"` // of a single letter, if it is UTF-8
	Bytes  []byte              `json:"body_base64,omitempty"`
}

// DeadLetters is a page of a policy's dead letters.
type DeadLetters struct {
	Letters []DeadLetter `json:"letters"`
	// the next page's `after`; missing on the last page
	Next      *uint64 `json:"next,omitempty"`
	Discarded uint64  `json:"discarded,omitempty"` // total number dropped to make room
}

// DeadPolicy is a policy with dead letters.
type DeadPolicy struct {
	Policy   string    `json:"policy"` // may be deleted; dead letters outlive their policy
	Letters  uint64    `json:"letters"`
	OldestAt time.Time `json:"oldest_at"` // time of the oldest letter
	NewestAt time.Time `json:"newest_at"`
}

// DeadPolicies is the policies with dead letters.
type DeadPolicies struct {
	Policies []DeadPolicy `json:"policies"`
}

// Replayed is the result of replaying dead letters.
type Replayed struct {
	Replayed int  `json:"replayed"` // letters replayed
	Full     int  `json:"full"`     // letters kept because their buckets are full
	Unfit    int  `json:"unfit"`    // letters kept because they are malformed
	Complete bool `json:"complete"` // false: more remain; repeat the request
}

// Discarded is the result of discarding dead letters.
type Discarded struct {
	Discarded  uint64 `json:"discarded"`
	Incomplete bool   `json:"incomplete,omitempty"` // more letters remain; repeat the request
}
