package job

import (
	"encoding/json"
	"time"
)

// What a [Question] can ask.
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
)

// What buckets can be listed by, the largest first.
const (
	ByDepth = "depth"
	ByAge   = "age"  // for how long the job has waited that starts next
	ByLate  = "late" // by how much starts became later in the last minute, but for pauses
	// ByRefused is by how many jobs were refused in the last minute. Valves do not know that.
	ByRefused = "refused"
)

// BucketOrders are all of these.
var BucketOrders = []string{ByDepth, ByAge, ByLate, ByRefused}

// MaxExpected is how many jobs one question of OpExpect or OpJobs may name. Starts wait while it is
// answered.
const MaxExpected = 512

// Question is what anyone asks or tells the owner of a partition.
type Question struct {
	V  int    `json:"v"` // format version; AskValve fills it in
	Op string `json:"op"`
	// stream sequences; OpJob, OpCancel and OpEdit: exactly one; OpExpect, OpJobs: at most
	// MaxExpected
	Jobs []uint64 `json:"jobs,omitempty"`
	Key  Key      `json:"key,omitempty"` // OpRoom, OpBucket and OpPurge: the bucket
	// OpRoom: of the job whose start is asked for; costs by their names, and its own, 1 if it is 0
	Priority int              `json:"priority,omitempty"`
	Cost     int64            `json:"cost,omitempty"`
	Costs    map[string]int64 `json:"costs,omitempty"`
	Limit    int              `json:"limit,omitempty"` // OpBuckets: most buckets to answer
	// OpBuckets: how many of the first to leave out
	Offset int `json:"offset,omitempty"`
	// OpBuckets: ByDepth, which empty is, too, ByAge or ByLate
	By      string          `json:"by,omitempty"`
	Outcome json.RawMessage `json:"outcome,omitempty"` // OpOutcome: the drainers' own format
	Edit    *Edit           `json:"edit,omitempty"`    // OpEdit
}

// Edit is what an operator wants of a job that waits, backs off or is not due yet. Fields that are
// zero change nothing.
type Edit struct {
	// Run has it wait for its turn from now on, whatever it waits for besides: its backoff, or its
	// Penstock-Not-Before.
	Run   bool `json:"run,omitempty"`
	Front bool `json:"front,omitempty"` // before all that its bucket holds
	// Priority and Deadline take the place of its own; the zero time is no deadline.
	Priority *int       `json:"priority,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty"`
}

// Answer is the owner's answer.
type Answer struct {
	V int `json:"v"` // format version; ServeValve fills it in
	// OpExpect: one for each job asked for, in that order
	Starts []ExpectedStart `json:"starts,omitempty"`
	// OpRoom: milliseconds until the bucket has room
	DelayMS int64 `json:"delay_ms"`
	// OpRoom: milliseconds until a job starts that is accepted now; nil: nobody can tell
	StartMS *int64 `json:"start_ms,omitempty"`
	// not empty: the question could not be answered
	Error string `json:"error,omitempty"`

	// OpBucket; all zero but the key for a bucket without jobs
	Bucket  *BucketState  `json:"bucket,omitempty"`
	Buckets []BucketState `json:"buckets,omitempty"` // OpBuckets: in the order asked, then by key
	// OpBuckets: how many buckets of the partition hold jobs
	Total int `json:"total,omitempty"`
	// OpJob, OpCancel: as it was; OpEdit: as it is; nil for one it does not hold
	Job *State `json:"job,omitempty"`
	// OpJobs: as they are, those that it holds, in the order asked
	States []State `json:"states,omitempty"`
	// OpEdit: the change is in force, and stored; or there are too many of the partition
	Edited bool `json:"edited,omitempty"`
	Full   bool `json:"full,omitempty"`
	// OpCancel, OpPurge: how many jobs were dropped
	Removed int `json:"removed,omitempty"`
}
