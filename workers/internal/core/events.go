package core

import (
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Event is an input of the core, which refers to the core's state by handles.
type Event interface {
	apply(c *Core, now pace.Instant)
}

// Handle applies an event. [Core.Decide] then decides on the resulting actions.
func (c *Core) Handle(e Event, now pace.Instant) { e.apply(c, now) }

// Events of the process and its connection.
type (
	// Connected reports that the connection to NATS is up or lost.
	Connected struct {
		Up   bool
		Most int // maximum bytes of a record there; 0: unchanged
		// partitions whose backlogs rest: they cannot have lost deliveries
		Resting map[handle.Partition]bool
	}
	// Synced reports that all initial records and policies were delivered.
	Synced struct{}
	// Jumped reports that the wall clock jumped against this process's clock.
	Jumped struct{}
	// Stopped reports that the process is to end.
	Stopped struct{}
)

// Events of records, policies and overrides.
type (
	// Written is the result of a record's write.
	Written struct {
		Put      Put
		Result   putResult
		Revision uint64
	}
	// Found is the result of a record's read.
	Found struct {
		Put    Put // the write that required the read
		Record Record
	}
	// Watched is a record from a watch.
	Watched struct {
		Table  Table
		Key    string
		Record Record
	}
	// Configured lists the policies that have queues.
	Configured struct{ Policies []QueuePolicy }
	// Overridden is a key's override; the zero override removes it.
	Overridden struct {
		Policy   string
		Key      job.Key
		Override policy.Override
	}
)

// Events of partitions' backlogs; takeover.go has Opened.
type (
	// Unopened reports that a backlog could not be opened.
	Unopened struct {
		Opening
		Streamless bool
	}
	// Broken reports that a backlog lost its position.
	Broken struct {
		Part  handle.Partition
		Epoch uint64
	}
	// Arrived are jobs that a backlog delivered, in their order.
	Arrived struct {
		Part  handle.Partition
		Epoch uint64
		Jobs  []job.Arrived
	}
	// Swept reports that all jobs stored when a backlog was opened have arrived.
	Swept struct {
		Part  handle.Partition
		Epoch uint64
	}
	// Strayed are jobs outside of the partitions, in no order relative to others.
	Strayed struct {
		Part  handle.Partition
		Epoch uint64
		Jobs  []job.Arrived
	}
	// Confirmed are acknowledgements that the server has confirmed.
	Confirmed struct {
		Part handle.Partition
		Seqs []uint64
	}
)

// Events of single jobs.
type (
	// Finished is the outcome of a run: see [Finish].
	Finished struct {
		Policy  string
		Run     uint64 // its number
		Outcome record.Outcome
	}
	// Fetched are the bodies and headers of jobs.
	Fetched []Text
	// Text is the body and headers of one job.
	Text struct {
		handle.Ref
		Body      []byte
		Header    map[string][]string
		Gone      bool  // removed from the stream by another client
		Malformed error // it turned out not to be a job
	}
	// Saved reports the end of an attempt record's write.
	Saved struct{ valve.Save }
	// Buried reports that a dead letter was stored.
	Buried struct{ handle.Ref }
	// Noted reports that a job's end was recorded.
	Noted struct{ valve.Ending }
	// Delivered reports that a report reached the new owner, or is no longer needed.
	Delivered struct{ Report record.Report }
)

// Events of workers in other processes, and of questions.
type (
	// Offered is the result of an offer to remote workers; a resulting claim came before.
	Offered struct {
		Policy string
		Result valve.OfferResult
	}
	// Claimed reports that a remote worker waits for a job.
	Claimed struct {
		Policy string
		valve.Claim
	}
	// Refused reports that a remote worker has room, but not for a bucket.
	Refused struct {
		Policy string
		Key    job.Key
	}
	// Asked is a question to the owner of a partition.
	Asked struct {
		Part     handle.Partition
		Question job.Question
		Reply    func(job.Answer)
	}
)
