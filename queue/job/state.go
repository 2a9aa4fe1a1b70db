package job

import (
	"time"

	"github.com/penstock-mq/penstock/api"
)

// The values of [State.State].
const (
	Waiting   = "waiting"
	Delayed   = "delayed" // backing off, or not due
	Running   = "running"
	Finishing = "finishing" // its acknowledgement is not confirmed
)

// BucketState is a bucket's state at its valve.
type BucketState struct {
	Key   Key `json:"key"`
	Depth int `json:"depth"`
	api.BucketState
	api.Hold
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
	api.Hold
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
