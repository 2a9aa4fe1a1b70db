package job

import "time"

// The values of [State.State].
const (
	Waiting   = "waiting"
	Delayed   = "delayed" // backing off, or not due
	Running   = "running"
	Finishing = "finishing" // its acknowledgement is not confirmed
)

// What holds a job or a bucket back.
const (
	BlockedByRate         = "rate"
	BlockedByLimit        = "limit:"      // its name follows
	BlockedByTotalRate    = "total_rate"  // of all buckets
	BlockedByConcurrency  = "concurrency" // of the bucket
	BlockedByPaused       = "paused"      // the bucket
	BlockedByPolicyPaused = "policy_paused"
	BlockedByThrottled    = "throttled_by_target"
	// except one probe at a time
	BlockedByBreaker   = "breaker"
	BlockedByBackoff   = "backoff" // after a failed attempt
	BlockedByNotBefore = "not_before"
	BlockedByNoWorker  = "no_worker"
	// or the bucket's share of them
	BlockedByWorkersBusy = "workers_busy"
	BlockedByNoDrainer   = "no_drainer" // of the partition; reported by admitters
	// a pending write (the lease, a job's end, a checkpoint), nothing can be stored, or the queue
	// is being read
	BlockedByStorage = "storage"
)

// LateByProcessor: the drainer had no processor time.
const LateByProcessor = "processor"

// LateByLimit: a limit on starts, while the outflow would allow them.
const LateByLimit = "limit"

type BucketState struct {
	Key   Key `json:"key"`
	Depth int `json:"depth"`
	// could start if the rate allowed
	Waiting int `json:"waiting"`
	Delayed int `json:"delayed"` // backing off, or not due
	// with the calls that run
	Running int `json:"running"`
	Calls   int `json:"calls,omitempty"` // that wait: see Call
	// of Running
	CallsRunning int `json:"calls_running,omitempty"`
	// starts per second; missing: unpaced
	Outflow float64 `json:"outflow,omitempty"`
	// in any T ≥ 1 s at most peak·(T + 2 ms) + burst start
	Peak  float64 `json:"peak,omitempty"`
	Burst int64   `json:"burst,omitempty"`
	// learnt starts per second; missing: as configured
	Adapted    float64 `json:"adapted,omitempty"`
	Rate       float64 `json:"rate"`              // starts per second, over seconds
	RateMinute float64 `json:"rate_1m,omitempty"` // over a minute
	// lateness of the last minute by a BlockedBy cause, LateByLimit or LateByProcessor
	LateMS map[string]int64 `json:"late_ms,omitempty"`
	// of a single bucket only
	Limits []LimitLeft `json:"limits,omitempty"`
	// Reading: the owner is new and has not read all jobs.
	Reading bool `json:"reading,omitempty"`
	// the bucket or its policy
	Paused bool `json:"paused"`
	// to the end of the target's pause
	ThrottledMS int64 `json:"throttled_ms,omitempty"`
	// age of the oldest waiting job
	HeadAgeMS int64 `json:"head_age_ms,omitempty"`
	// milliseconds to the start of a job accepted now; nil: see State
	ETAMS *int64 `json:"eta_ms"`
	Hold
	// of the last unsuccessful run, until a run succeeds
	LastError string `json:"last_error,omitempty"`
}

// LimitLeft holds the units of a limit on starts available now, and their maximum.
type LimitLeft struct {
	Name string `json:"name"`
	Left int64  `json:"left"`
	Most int64  `json:"most"`
	// Open are the units of requests without an answer, of a limit that counts from it. The others
	// that are neither left nor open count.
	Open int64 `json:"open,omitempty"`
}

// Hold is the cause that keeps a job from starting.
type Hold struct {
	// By is one of the BlockedBy constants; empty if the job is free, or no job waits.
	By    string     `json:"blocked_by,omitempty"`
	Until *time.Time `json:"until,omitempty"` // by the drainer's clock; nil: unknown
}

// State is a job's state at its valve. Its start is unknown while it is paused or held by
// concurrency.
type State struct {
	Seq uint64 `json:"seq"` // in the policy's stream
	Key Key    `json:"key"`
	// [Waiting], [Delayed], [Running] or [Finishing]
	State string `json:"state"`
	// jobs of its bucket that start before it; nil unless it waits
	Position *int `json:"position"`
	// calls that wait in its bucket, and have nine of ten starts
	Calls int `json:"calls,omitempty"`
	// milliseconds to its start; nil if unknown
	ETAMS      *int64    `json:"eta_ms"`
	Attempts   int       `json:"attempts"`             // that failed
	LastError  string    `json:"last_error,omitempty"` // of the last failed attempt
	AcceptedAt time.Time `json:"accepted_at"`          // by the server's clock
	Progress   string    `json:"progress,omitempty"`   // the latest report of its run
	Hold
	Edit *Edit `json:"edit,omitempty"` // changes to the stored job; may be nil
}

// ExpectedStart is the current estimate of a job's start.
type ExpectedStart struct {
	Seq   uint64 `json:"seq"`
	Known bool   `json:"known"` // false: the valve has not seen the job, or cannot tell
	// milliseconds from now; 0 for a job that has started or finished
	DelayMS int64 `json:"delay_ms"`
	// Position is the number of jobs of its bucket that start before it, at equal costs; 0 unless
	// it waits for its turn.
	Position int `json:"position,omitempty"`
	// Depth is the number of jobs in its bucket, including it; 0 unless it waits for its turn.
	Depth    int    `json:"depth,omitempty"`
	Progress string `json:"progress,omitempty"` // the latest report of its run
}
