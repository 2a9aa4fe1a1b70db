package job

import (
	"encoding/json"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/queue"
)

const (
	OpExpect  = "expect"  // when will these jobs start?
	OpRoom    = "room"    // when will this bucket have room again?
	OpOutcome = "outcome" // how a handed-over running job ended

	OpBuckets = "buckets" // which come first?
	OpBucket  = "bucket"  // its state
	OpJob     = "job"     // its state
	OpJobs    = "jobs"    // their states
	OpCancel  = "cancel"  // unless it runs
	OpEdit    = "edit"    // unless it runs
	OpPurge   = "purge"   // drop the bucket's jobs, except running ones
	OpResume  = "resume"  // end the bucket's cool-down, probe its target; without a key: all
)

// Orders of buckets, the largest first.
const (
	ByDepth = "depth"
	ByAge   = "age"  // of the job that starts next
	ByLate  = "late" // lateness gained in the last minute, without pauses
	// refused in the last minute; unknown to valves
	ByRefused = "refused"
)

// BucketOrders are all orders of lists of buckets.
var BucketOrders = []string{ByDepth, ByAge, ByLate, ByRefused}

// MaxExpected bounds the Jobs of OpExpect and OpJobs: no job starts while it is answered.
const MaxExpected = 512

// Question is a question or command to the owner of a partition.
type Question struct {
	V  int    `json:"v"` // set by AskValve
	Op string `json:"op"`
	// sequences: one for OpJob, OpCancel and OpEdit; at most MaxExpected for OpExpect, OpJobs;
	// OpPurge: the last one to drop, or empty
	Jobs []uint64 `json:"jobs,omitempty"`
	// OpRoom, OpBucket, OpPurge, OpResume
	Key queue.Key `json:"key,omitempty"`
	// OpRoom: the job's; a Cost of 0 is 1
	Priority int              `json:"priority,omitempty"`
	Cost     int64            `json:"cost,omitempty"`
	Costs    map[string]int64 `json:"costs,omitempty"`
	Unique   string           `json:"unique,omitempty"` // OpRoom
	Limit    int              `json:"limit,omitempty"`  // OpBuckets
	// OpBuckets
	Offset int `json:"offset,omitempty"`
	// OpBuckets: ByDepth (default), ByAge or ByLate
	By      string          `json:"by,omitempty"`
	Outcome json.RawMessage `json:"outcome,omitempty"` // OpOutcome: in the drainers' own format
	Edit    *Edit           `json:"edit,omitempty"`
}

// Edit changes a job that does not run. Zero fields leave the job's unchanged.
type Edit struct {
	// Run ends the job's backoff or its wait for Penstock-Not-Before.
	Run   bool `json:"run,omitempty"`
	Front bool `json:"front,omitempty"` // of its bucket
	// These replace the job's own; the zero time means no deadline.
	Priority *int       `json:"priority,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty"`
}

// Answer is a valve's answer to a [Question].
type Answer struct {
	V int `json:"v"` // set by ServeValve
	// OpExpect: in the order of the question
	Starts []ExpectedStart `json:"starts,omitempty"`
	// OpRoom: until the bucket has room
	DelayMS int64 `json:"delay_ms"`
	// OpRoom: to the start of a job accepted now; nil: unknown
	StartMS *int64 `json:"start_ms,omitempty"`
	// OpRoom: the job with the unique name, or 0
	Waits uint64 `json:"waits,omitempty"`
	// the question could not be answered
	Error string `json:"error,omitempty"`

	// OpBucket: zero except the key if there are no jobs
	Bucket  *BucketState  `json:"bucket,omitempty"`
	Buckets []BucketState `json:"buckets,omitempty"` // OpBuckets: in order, then by key
	Total   int           `json:"total,omitempty"`
	// OpJob, OpCancel: before; OpEdit: after; nil: unknown
	Job *State `json:"job,omitempty"`
	// OpJobs: the known ones, in the order asked
	States []State `json:"states,omitempty"`
	// OpEdit: the change is stored; there are too many changes
	Edited bool `json:"edited,omitempty"`
	Full   bool `json:"full,omitempty"`
	// OpCancel, OpPurge: jobs dropped
	Removed int `json:"removed,omitempty"`
	// OpResume: cool-downs ended, and stored as such
	Ended int `json:"ended,omitempty"`
	// OpResume: open breakers whose next probe starts now
	Probes int `json:"probes,omitempty"`
	// OpPurge: not finished; ask again with this number for the rest
	More uint64 `json:"more,omitempty"`
}

// The values of [State.State].
const (
	Waiting   = "waiting"
	Delayed   = "delayed" // backing off, or not due
	Running   = "running"
	Finishing = "finishing" // its acknowledgement is not confirmed
)

// BucketState is a bucket's state at its valve.
type BucketState struct {
	Key   queue.Key `json:"key"`
	Depth int       `json:"depth"`
	api.BucketState
	api.Hold
}

// State is a job's state at its valve. Its start is unknown while it is paused or held by
// concurrency.
type State struct {
	Seq uint64    `json:"seq"` // in the policy's stream
	Key queue.Key `json:"key"`
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
