package job

import "time"

// What a [State] can say.
const (
	Waiting   = "waiting"   // for its bucket's turn
	Delayed   = "delayed"   // backing off after a failure, or not due yet
	Running   = "running"   // a worker has it
	Finishing = "finishing" // it has ended, the acknowledgement is not confirmed yet
)

// What keeps a job from starting, or a bucket from starting its next one.
const (
	HeldByRate         = "rate"          // of its bucket
	HeldByLimit        = "limit:"        // on starts; its name follows
	HeldByTotalRate    = "total_rate"    // of all buckets together
	HeldByConcurrency  = "concurrency"   // as many of the bucket's jobs run as may
	HeldByPaused       = "paused"        // the bucket, by an operator
	HeldByPolicyPaused = "policy_paused" // its whole policy
	HeldByCooling      = "cooling"       // the target asked for a pause
	// the target is down: one job at a time looks whether it is back
	HeldByBreaker   = "breaker"
	HeldByBackoff   = "backoff"    // its last attempt failed
	HeldByNotBefore = "not_before" // its submitter wants it later
	HeldByNoWorker  = "no_worker"  // nobody has workers for it
	// all workers have jobs, or as many of this bucket as it may have
	HeldByWorkersBusy = "workers_busy"
	HeldByNoDrainer   = "no_drainer" // nobody owns its partition; said by admitters
	// the drainer's lease, or what the job came to, or a checkpoint without which nothing more
	// starts under limits, is not written yet, or the queue is being read
	HeldByStorage = "storage"
)

// LateByProcessor is what makes starts late that nothing else does: the drainer had no processor
// when they were due.
const LateByProcessor = "processor"

// LateByLimit is what makes starts late that a limit on starts holds back although the outflow
// would let them begin.
const LateByLimit = "limit"

// BucketState is how a bucket stands at its valve.
type BucketState struct {
	Key   Key `json:"key"`
	Depth int `json:"depth"` // accepted jobs: waiting, delayed and running
	// jobs that could start as soon as the rate allows
	Waiting int `json:"waiting"`
	Delayed int `json:"delayed"` // jobs that back off or are not due yet
	Running int `json:"running"` // jobs that a worker has
	// starts per second that are configured; missing: unpaced
	Outflow float64 `json:"outflow,omitempty"`
	// of law 2: starts in any T of a second or more are at most peak·(T + 2 ms) + burst
	Peak  float64 `json:"peak,omitempty"`
	Burst int64   `json:"burst,omitempty"`
	// starts per second that it has learnt to keep below the target's limit; missing: as configured
	Adapted    float64 `json:"adapted,omitempty"`
	Rate       float64 `json:"rate"`              // starts per second over the last seconds
	RateMinute float64 `json:"rate_1m,omitempty"` // and over the last minute
	// by how many milliseconds its starts became later in the last minute than its outflow allowed,
	// by what: some HeldBy constant, LateByLimit or LateByProcessor
	LateMS map[string]int64 `json:"late_ms,omitempty"`
	// what is left of the limits on its starts; of one bucket alone, and not in lists
	Limits []LimitLeft `json:"limits,omitempty"`
	// Reading: the valve is new, and still reads what waits, so that it knows too few jobs.
	Reading bool `json:"reading,omitempty"`
	// by an operator: the bucket, or its whole policy
	Paused bool `json:"paused"`
	// milliseconds until the pause that the target asked for ends
	CoolingMS int64 `json:"cooling_ms,omitempty"`
	// milliseconds since the oldest waiting job was accepted
	HeadAgeMS int64 `json:"head_age_ms,omitempty"`
	// milliseconds to the start of a job accepted now; nil: see State
	ExpectMS *int64 `json:"expect_ms"`
	Hold
	// of the last run that did not end well, until one does
	LastError string `json:"last_error,omitempty"`
}

// LimitLeft is how many units of a limit on starts may start now, and how many may at most.
type LimitLeft struct {
	Name string `json:"name"`
	Left int64  `json:"left"`
	Most int64  `json:"most"`
}

// Hold is what keeps a job from starting, or a bucket from starting its next one.
type Hold struct {
	// By is one of the HeldBy constants; empty when nothing does, or nothing waits.
	By    string     `json:"held_by,omitempty"`
	Until *time.Time `json:"until,omitempty"` // by the drainer's clock; nil: nobody can tell
}

// State is how a job stands at its valve. Nobody can tell its start while it is paused or held by
// concurrency.
type State struct {
	Seq uint64 `json:"seq"` // in the policy's stream
	Key Key    `json:"key"`
	// [Waiting], [Delayed], [Running] or [Finishing]
	State string `json:"state"`
	// jobs of its bucket that start before it; nil unless it waits
	Position *int `json:"position"`
	// milliseconds to its start; nil while nobody can tell
	ExpectMS   *int64    `json:"expect_ms"`
	Attempts   int       `json:"attempts"`             // that failed
	LastError  string    `json:"last_error,omitempty"` // of the last failed attempt
	AcceptedAt time.Time `json:"accepted_at"`          // by the server's clock
	Hold
	Edit *Edit `json:"edit,omitempty"` // how it differs from what is stored; nil: it does not
}

// ExpectedStart says when a job will start as things stand.
type ExpectedStart struct {
	Seq   uint64 `json:"seq"`
	Known bool   `json:"known"` // false: the valve has not seen the job, or cannot tell
	// milliseconds from now; 0 for a job that has started or finished
	DelayMS int64 `json:"delay_ms"`
	// Position is how many jobs of its bucket start before it, as if all had the same cost; 0
	// unless it waits for its turn.
	Position int `json:"position,omitempty"`
	// Depth is how many jobs its bucket holds, itself included; 0 unless it waits for its turn.
	Depth int `json:"depth,omitempty"`
}
