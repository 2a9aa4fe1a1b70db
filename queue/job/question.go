package job

import (
	"encoding/json"
	"time"
)

// The operations of a [Question].
const (
	OpExpect  = "expect"  // when will these jobs start?
	OpRoom    = "room"    // when will this bucket have room again?
	OpOutcome = "outcome" // this is how a job that was handed over as running ended
	OpWorker  = "worker"  // is a worker elsewhere of use? An error says why not

	OpBuckets = "buckets" // which buckets come first?
	OpBucket  = "bucket"  // how does this bucket stand?
	OpJob     = "job"     // how does this job stand?
	OpJobs    = "jobs"    // how do these jobs stand?
	OpCancel  = "cancel"  // drop this job, unless it runs
	OpEdit    = "edit"    // change this job, unless it runs
	OpPurge   = "purge"   // drop this bucket's jobs, those that run excepted

	OpCall   = "call"   // may this call begin?
	OpSettle = "settle" // this is how a call goes on, or ended
)

// Orders in which buckets can be listed, the largest first.
const (
	ByDepth = "depth"
	ByAge   = "age"  // for how long the job has waited that starts next
	ByLate  = "late" // by how much starts became later in the last minute, but for pauses
	// ByRefused is the number of jobs refused in the last minute. Valves do not know it.
	ByRefused = "refused"
)

// BucketOrders lists every order.
var BucketOrders = []string{ByDepth, ByAge, ByLate, ByRefused}

// MaxExpected bounds the jobs in one question of OpExpect or OpJobs. No job starts while it is
// answered.
const MaxExpected = 512

// Question is a question or command to the owner of a partition.
type Question struct {
	V  int    `json:"v"` // format version; AskValve fills it in
	Op string `json:"op"`
	// stream sequences; OpJob, OpCancel and OpEdit: exactly one; OpExpect, OpJobs: at most
	// MaxExpected
	Jobs []uint64 `json:"jobs,omitempty"`
	// OpRoom, OpBucket, OpPurge, OpCall and OpSettle: the bucket
	Key Key `json:"key,omitempty"`
	// OpRoom, OpCall: of the job in question; its named costs, and its own cost, 1 if it is 0
	Priority int              `json:"priority,omitempty"`
	Cost     int64            `json:"cost,omitempty"`
	Costs    map[string]int64 `json:"costs,omitempty"`
	Unique   string           `json:"unique,omitempty"` // OpRoom: of the job in question
	Limit    int              `json:"limit,omitempty"`  // OpBuckets: most buckets to answer
	// OpBuckets: number of buckets to skip
	Offset int `json:"offset,omitempty"`
	// OpBuckets: ByDepth (default), ByAge or ByLate
	By      string          `json:"by,omitempty"`
	Outcome json.RawMessage `json:"outcome,omitempty"` // OpOutcome: the drainers' own format
	Edit    *Edit           `json:"edit,omitempty"`    // OpEdit
	Call    *Call           `json:"call,omitempty"`    // OpCall, OpSettle
}

// Edit is an operator's change of a job that waits, backs off or is not due yet. Zero fields
// change nothing.
type Edit struct {
	// Run ends the job's backoff or its wait for Penstock-Not-Before: from now on it only waits
	// for its turn.
	Run   bool `json:"run,omitempty"`
	Front bool `json:"front,omitempty"` // before all that its bucket holds
	// Priority and Deadline replace the job's own; the zero time means no deadline.
	Priority *int       `json:"priority,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty"`
}

// Answer is the owner's answer.
type Answer struct {
	V int `json:"v"` // format version; ServeValve fills it in
	// OpExpect: one per job in the question, in that order
	Starts []ExpectedStart `json:"starts,omitempty"`
	// OpRoom: milliseconds until the bucket has room
	DelayMS int64 `json:"delay_ms"`
	// OpRoom: milliseconds until a job accepted now starts; nil: unknown
	StartMS *int64 `json:"start_ms,omitempty"`
	// OpRoom: the job that waits under the question's unique name; 0: none
	Waits uint64 `json:"waits,omitempty"`
	// not empty: the question could not be answered
	Error string `json:"error,omitempty"`

	// OpBucket; all zero except the key for a bucket without jobs
	Bucket  *BucketState  `json:"bucket,omitempty"`
	Buckets []BucketState `json:"buckets,omitempty"` // OpBuckets: in the order asked, then by key
	// OpBuckets: number of buckets of the partition that hold jobs
	Total int `json:"total,omitempty"`
	// OpJob, OpCancel: as it was; OpEdit: as it is; nil for an unknown job
	Job *State `json:"job,omitempty"`
	// OpJobs: the known jobs, in the order asked
	States []State `json:"states,omitempty"`
	// OpEdit: the change is in force and stored; or the partition has too many changes
	Edited bool `json:"edited,omitempty"`
	Full   bool `json:"full,omitempty"`
	// OpCall, OpSettle
	Turn *Turn `json:"turn,omitempty"`
	// OpCancel, OpPurge: number of jobs dropped
	Removed int `json:"removed,omitempty"`
}
