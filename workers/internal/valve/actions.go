package valve

import (
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

type Actions struct {
	Starts    []Run    // for a worker, or for a waiting caller
	Refusals  []string // remote workers whose claims found no job
	Acks      []handle.Ref
	Fetches   []handle.Ref
	Saves     []Save
	Burials   []Burial
	Forgets   []Forgotten
	Done      []Ending // a job with an Idempotency-Key is done: recorded without waiting
	Endings   []Ending // how such a job ended otherwise: recorded before its acknowledgement
	Cancelled []Seen
	Accepted  []Seen // seen for the first time
	Breakers  []Turned
	Adapted   []Adapted
	Offers    []string // names of policies
	Reports   []record.Report
	Vanished  int // jobs that others removed
}

func (a *Actions) Reset() {
	clear(a.Starts)
	clear(a.Acks)
	clear(a.Accepted)
	*a = Actions{Starts: a.Starts[:0], Acks: a.Acks[:0],
		Accepted: a.Accepted[:0]}
}

type Seen struct {
	handle.Ref
	Header map[string][]string
	Reason string // of a cancellation by another job
}

type Run struct {
	handle.Ref
	Stored  time.Time
	Header  map[string][]string
	Body    []byte
	Cost    int64 // in slots of its bucket's rate
	Costs   map[string]int64
	Attempt int // from 1
	Crashes int
	Due     pace.Instant
	Number  uint64 // counts the policy's runs here
	Shadow  map[string]time.Duration
	Call    *Grant // nil: a stored job
	Worker  string // its subject; empty: a local one
	*Ticket
}

// Ending is the end of a job with an Idempotency-Key.
type Ending struct {
	handle.Ref
	job.Ended
	Headless bool // its checksum is in the stored headers only
	asked    *int // how many records a question waits for; nil: none does
}

// Noted reports that the end is recorded.
func (e Ending) Noted() {
	if e.asked != nil {
		*e.asked--
	}
}

type Save struct {
	handle.Ref
	Record   record.Attempt
	Revision uint64 // of the replaced record, then its own; 0 for a new record
}

type Forgotten struct {
	handle.Ref
	Revision uint64 // 0: any
}

type Adapted struct {
	handle.Ref
	PerSecond float64
}

type Burial struct {
	handle.Ref
	Stored   time.Time
	Header   map[string][]string
	Body     []byte
	Lean     bool
	Headless bool
	Attempts int
	Reason   queue.Reason
	Detail   string
}

type Turned struct {
	handle.Ref
	Open  bool
	All   bool
	Error string
}
