package valve

import (
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Actions collects the work that valves request, until the caller performs it.
type Actions struct {
	Starts    []Run           // give to a worker, or let the caller begin
	Elsewhere []Elsewhere     // give to workers in other processes
	Refusals  []string        // remote workers whose claim found no job
	Acks      []handle.Ref    // acknowledge, with confirmation
	Fetches   []handle.Ref    // read the body
	Saves     []Save          // write the attempt record, then call saved
	Burials   []Burial        // store the dead letter, then call buried
	Forgets   []Forgotten     // delete the attempt record
	Done      []Ending        // record that a job with an Idempotency-Key is done, without waiting
	Endings   []Ending        // record how a job with an Idempotency-Key ended, then acknowledge it
	Cancelled []Seen          // dropped by an operator
	Accepted  []Seen          // seen for the first time since they were stored
	Breakers  []Turned        // opened or closed
	Adapted   []Adapted       // rates lowered
	Offers    []string        // policies that need remote workers
	Reports   []record.Report // send to the new owner of a partition
	Vanished  int             // number of jobs removed from the stream by others
}

// Reset empties the lists, keeping the memory of long ones.
func (a *Actions) Reset() {
	clear(a.Starts)
	clear(a.Elsewhere)
	clear(a.Acks)
	clear(a.Accepted)
	*a = Actions{Starts: a.Starts[:0], Elsewhere: a.Elsewhere[:0], Acks: a.Acks[:0],
		Accepted: a.Accepted[:0]}
}

// Seen is a job with its headers, if held here.
type Seen struct {
	handle.Ref
	Header map[string][]string
	Reason string // of a job that was cancelled by another one
}

// Run is a job given to a worker. Its final check happens outside of the loop.
type Run struct {
	handle.Ref
	Stored  time.Time
	Header  map[string][]string
	Body    []byte
	Cost    int64 // of its bucket's rate, in slots
	Costs   map[string]int64
	Attempt int          // 1 is the first
	Crashes int          // number of owner crashes while it ran
	Due     pace.Instant // when the job could have started
	Number  uint64       // sequence number among the policy's runs here
	// delays that shadow limits would have caused
	Shadow map[string]time.Duration
	Call   *Grant // nil: it is a stored job
	*Ticket
}

// Elsewhere is a run for the remote worker that made a claim.
type Elsewhere struct {
	Run    Run
	Worker string // the subject on which it listens
}

// Ending is how a job with an Idempotency-Key ended, for its duplicates.
type Ending struct {
	handle.Ref
	job.Ended
	Headless bool   // its checksum is only in the headers of the stored job
	asked    uint64 // number of the question whose answer waits for this record; 0: none
}

// Save requests that an attempt record be written.
type Save struct {
	handle.Ref
	Record   record.Attempt
	Revision uint64 // of the replaced record, then its own; 0: none
}

// Forgotten is an attempt record to delete.
type Forgotten struct {
	handle.Ref
	Revision uint64 // 0: any
}

// Adapted reports that a target's apparent limit lowered a bucket's rate.
type Adapted struct {
	handle.Ref         // of the throttled job
	PerSecond  float64 // the new rate
}

// Burial is a job to be stored as a dead letter.
type Burial struct {
	handle.Ref
	Stored   time.Time
	Header   map[string][]string
	Body     []byte
	Lean     bool // Body was left out
	Headless bool // Header was left out
	Attempts int  // attempts that counted
	Reason   job.Reason
	Detail   string
}

// Turned reports that a breaker opened or closed, and the job that caused it.
type Turned struct {
	handle.Ref
	Open  bool
	All   bool   // the breaker over all buckets
	Error string // the job's error
}
