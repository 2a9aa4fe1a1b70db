package job

import "time"

// The values of [State.State].
const (
	Waiting   = "waiting"   // for its bucket's turn
	Delayed   = "delayed"   // backing off after a failure, or not due yet
	Running   = "running"   // a worker has it
	Finishing = "finishing" // it has ended, the acknowledgement is not confirmed yet
)

// What keeps a job from starting, or a bucket from starting its next job.
const (
	BlockedByRate         = "rate"                // of its bucket
	BlockedByLimit        = "limit:"              // on starts; its name follows
	BlockedByTotalRate    = "total_rate"          // of all buckets together
	BlockedByConcurrency  = "concurrency"         // as many of the bucket's jobs run as may
	BlockedByPaused       = "paused"              // the bucket, by an operator
	BlockedByPolicyPaused = "policy_paused"       // its whole policy
	BlockedByThrottled    = "throttled_by_target" // the target asked for a pause
	// the target is down: one job at a time probes it
	BlockedByBreaker   = "breaker"
	BlockedByBackoff   = "backoff"    // its last attempt failed
	BlockedByNotBefore = "not_before" // its submitter wants it later
	BlockedByNoWorker  = "no_worker"  // no drainer or worker runs it
	// all workers are busy, or the bucket has as many as it may have
	BlockedByWorkersBusy = "workers_busy"
	BlockedByNoDrainer   = "no_drainer" // its partition has no owner; reported by admitters
	// a write is pending (the drainer's lease, a job's end, or a checkpoint without which nothing
	// more starts under limits), or the queue is being read
	BlockedByStorage = "storage"
)

// LateByProcessor marks lateness without another cause: the drainer had no processor time when the
// starts were due.
const LateByProcessor = "processor"

// LateByLimit marks lateness caused by a limit on starts although the outflow would allow the
// starts.
const LateByLimit = "limit"

// BucketState is the state of a bucket at its valve.
type BucketState struct {
	Key   Key `json:"key"`
	Depth int `json:"depth"` // accepted jobs: waiting, delayed and running
	// jobs that could start as soon as the rate allows
	Waiting int `json:"waiting"`
	Delayed int `json:"delayed"` // jobs that back off or are not due yet
	// jobs that a worker has, and calls that run under a lease
	Running int `json:"running"`
	Calls   int `json:"calls,omitempty"` // calls that wait for a start: see Call
	// calls among Running
	CallsRunning int `json:"calls_running,omitempty"`
	// configured starts per second; missing: unpaced
	Outflow float64 `json:"outflow,omitempty"`
	// of law 2: starts in any T of a second or more are at most peak·(T + 2 ms) + burst
	Peak  float64 `json:"peak,omitempty"`
	Burst int64   `json:"burst,omitempty"`
	// learnt starts per second, below the target's limit; missing: as configured
	Adapted    float64 `json:"adapted,omitempty"`
	Rate       float64 `json:"rate"`              // starts per second over the last seconds
	RateMinute float64 `json:"rate_1m,omitempty"` // and over the last minute
	// milliseconds by which starts were delayed in the last minute beyond the outflow, by cause: a
	// BlockedBy constant, LateByLimit or LateByProcessor
	LateMS map[string]int64 `json:"late_ms,omitempty"`
	// remaining units of the limits on its starts; only for a single bucket, not in lists
	Limits []LimitLeft `json:"limits,omitempty"`
	// Reading: the valve is new and still reads the stored jobs, so the counts are too low.
	Reading bool `json:"reading,omitempty"`
	// by an operator: the bucket, or its whole policy
	Paused bool `json:"paused"`
	// milliseconds until the pause that the target asked for ends
	ThrottledMS int64 `json:"throttled_ms,omitempty"`
	// milliseconds since the oldest waiting job was accepted
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
}

// Hold is what keeps a job from starting, or a bucket from starting its next job.
type Hold struct {
	// By is one of the BlockedBy constants; empty when nothing holds it, or nothing waits.
	By    string     `json:"blocked_by,omitempty"`
	Until *time.Time `json:"until,omitempty"` // by the drainer's clock; nil: unknown
}

// State is the state of a job at its valve. Its start is unknown while it is paused or held by
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
	Edit *Edit `json:"edit,omitempty"` // its changes from the stored job; nil: none
}

// ExpectedStart is the current estimate of a job's start.
type ExpectedStart struct {
	Seq   uint64 `json:"seq"`
	Known bool   `json:"known"` // false: the valve has not seen the job, or cannot tell
	// milliseconds from now; 0 for a job that has started or finished
	DelayMS int64 `json:"delay_ms"`
	// Position is the number of jobs of its bucket that start before it, assuming equal costs; 0
	// unless it waits for its turn.
	Position int `json:"position,omitempty"`
	// Depth is the number of jobs in its bucket, itself included; 0 unless it waits for its turn.
	Depth    int    `json:"depth,omitempty"`
	Progress string `json:"progress,omitempty"` // the latest report of its run
}
