package core

import (
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Event is something that happened, which the core is told. Events are values, which name what the
// core keeps by handles: a history of them can be written down. Two hold functions, which whoever
// writes it down leaves out: a question's answer, and work on one that was done aside.
type Event interface {
	apply(c *Core, now pace.Instant)
}

// Handle takes an event. What is to be done about it is decided by [Core.Decide].
func (c *Core) Handle(e Event, now pace.Instant) { e.apply(c, now) }

// Of the process and its connection.
type (
	// Connected is that the connection to NATS is up, or lost.
	Connected struct {
		Up   bool
		Most int // bytes of a record there; 0: as many as before
	}
	// Synced is that the first state of all records and policies was told.
	Synced struct{}
	// Jumped is that the wall clock jumped against this process's own.
	Jumped struct{}
	// Stopped is that the process is to end.
	Stopped struct{}
)

// Of records, policies and overrides.
type (
	// Written is how the write of a record ended.
	Written struct {
		Put      Put
		Result   putResult
		Revision uint64
	}
	// Found is what a read of a record found.
	Found struct {
		Put    Put // that made the read necessary
		Record Record
	}
	// Watched is a record that a watch delivered.
	Watched struct {
		Table  Table
		Key    string
		Record Record
	}
	// Configured is which policies have queues.
	Configured struct{ Policies []QueuePolicy }
	// Overridden is what a key of a policy obeys; the zero override takes that away.
	Overridden struct {
		Policy   string
		Key      job.Key
		Override policy.Override
	}
)

// Of the backlogs of partitions; takeover.go has Opened.
type (
	// Unopened is that a backlog could not be opened.
	Unopened struct {
		Opening
		Streamless bool
	}
	// Broken is that a backlog lost its way.
	Broken struct {
		Part  handle.Partition
		Epoch uint64
	}
	// Arrived is jobs that a backlog delivered, in their order.
	Arrived struct {
		Part  handle.Partition
		Epoch uint64
		Jobs  []job.Arrived
	}
	// Swept is that everything has arrived that was stored when a backlog was opened.
	Swept struct {
		Part  handle.Partition
		Epoch uint64
	}
	// Strayed is jobs that lie outside the partitions, which come in no order with others.
	Strayed struct {
		Part  handle.Partition
		Epoch uint64
		Jobs  []job.Arrived
	}
	// Confirmed is acknowledgements that the server has confirmed.
	Confirmed struct {
		Part handle.Partition
		Seqs []uint64
	}
)

// Of single jobs.
type (
	// Finished is the outcome of a run: see [Run.Finished].
	Finished struct {
		Policy  string
		Run     uint64 // its number
		Outcome record.Outcome
	}
	// Fetched is the bodies and the headers of jobs.
	Fetched []Text
	// Text is that of one job.
	Text struct {
		handle.Ref
		Body      []byte
		Header    map[string][]string
		Gone      bool  // from the stream: somebody else removed it
		Malformed error // it turned out to be none
	}
	// Saved is that the write of an attempt record is at its end.
	Saved struct{ valve.Save }
	// Buried is that a dead letter is stored.
	Buried struct{ handle.Ref }
	// Noted is that it is noted how a job ended.
	Noted struct{ valve.Ending }
	// Delivered is that a report reached the partition's new owner, or that nobody waits for it.
	Delivered struct{ Report record.Report }
)

// Of workers elsewhere, and of others who ask.
type (
	// Offered is the end of an offer to workers elsewhere; the claim that it led to came before.
	Offered struct {
		Policy string
		Result valve.OfferResult
	}
	// Claimed is that a worker elsewhere waits for a job.
	Claimed struct {
		Policy string
		valve.Claim
	}
	// Refused is that a worker elsewhere has room, but not for a bucket.
	Refused struct {
		Policy string
		Key    job.Key
	}
	// Asked is a question to the owner of a partition. It is answered now or while questions are
	// worked on.
	Asked struct {
		Part     handle.Partition
		Question job.Question
		Reply    func(job.Answer)
	}
	// Worked is that the part of a question is done that could be worked on elsewhere.
	Worked struct{ valve.Aside }
)
