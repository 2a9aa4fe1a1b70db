package valve

import (
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Actions is what valves want done. Whoever does it empties the lists.
type Actions struct {
	Starts    []Run           // give to a worker
	Elsewhere []Elsewhere     // give to workers elsewhere
	Refusals  []string        // workers elsewhere for whose claim there is no job
	Acks      []handle.Ref    // acknowledge, with confirmation
	Fetches   []handle.Ref    // read the body
	Saves     []Save          // write the attempt record, then call saved
	Burials   []Burial        // store the dead letter, then call buried
	Forgets   []Forgotten     // delete the attempt record
	Done      []Ending        // note that a job with an Idempotency-Key is done, without waiting
	Endings   []Ending        // note how a job with an Idempotency-Key ended, then acknowledge it
	Cancelled []Seen          // dropped on an operator's word
	Accepted  []Seen          // seen for the first time, since they were stored
	Breakers  []Turned        // opened or closed
	Adapted   []Adapted       // rates that were lowered
	Offers    []string        // policies that need workers elsewhere
	Reports   []record.Report // tell the new owner of a partition
	Asides    []Aside         // work on them anywhere, then call goOn
	Vanished  int             // jobs that were removed from the stream by others
}

// Reset empties the lists and keeps the memory of those that are long.
func (a *Actions) Reset() {
	clear(a.Starts)
	clear(a.Elsewhere)
	clear(a.Acks)
	clear(a.Accepted)
	*a = Actions{Starts: a.Starts[:0], Elsewhere: a.Elsewhere[:0], Acks: a.Acks[:0],
		Accepted: a.Accepted[:0]}
}

// Seen is a job that is told of, with its headers; nil: it has none, or they are in the stream
// alone.
type Seen struct {
	handle.Ref
	Header map[string][]string
}

// Run is a job that is given to a worker, with all that was decided of it: its last check is made
// beside the loop, and by then the job may wait again, or be another owner's.
type Run struct {
	handle.Ref
	Stored  time.Time
	Header  map[string][]string
	Body    []byte
	Cost    int64 // of its bucket's rate, in slots
	Costs   map[string]int64
	Attempt int          // 1 is the first
	Crashes int          // of owners of which it ran
	Due     pace.Instant // when the job could have started
	Number  uint64       // of the policy's runs here
	// by how much limits would have delayed it that hold nothing back
	Shadow map[string]time.Duration
	*Ticket
}

// elsewhere is a run for the worker elsewhere that made a claim.
type Elsewhere struct {
	Run    Run
	Worker string // the subject that it listens to
}

// Ending is how a job with an Idempotency-Key ended, which its repeats are told.
type Ending struct {
	handle.Ref
	job.Ended
	Headless bool   // its sum is not known: it is among the headers of the stored job
	asked    uint64 // number of the question for whose answer it must be noted; 0: there is none
}

// Save asks for an attempt record to be written.
type Save struct {
	handle.Ref
	Record   record.Attempt
	Revision uint64 // of the record that it replaces, and then its own; 0: there is none
}

// Forgotten is an attempt record that is to be deleted.
type Forgotten struct {
	handle.Ref
	Revision uint64 // 0: whatever it is
}

// Adapted tells that a bucket's rate was lowered, below the limit that its target seems to have.
type Adapted struct {
	handle.Ref         // of the job that was throttled
	PerSecond  float64 // the rate of now
}

// Burial is a job that is to become a dead letter.
type Burial struct {
	handle.Ref
	Stored   time.Time
	Header   map[string][]string
	Body     []byte
	Lean     bool // Body was left out
	Headless bool // and Header
	Attempts int  // that counted
	Reason   job.Reason
	Detail   string
}

// Turned tells that a breaker opened or closed, and by which job.
type Turned struct {
	handle.Ref
	Open  bool
	All   bool   // of all buckets
	Error string // that the job met
}
