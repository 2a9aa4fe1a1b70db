package core

import (
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Event is an input of the core.
type Event interface {
	apply(c *Core, now pace.Instant)
}

// Handle applies an event, before [Core.Decide].
func (c *Core) Handle(e Event, now pace.Instant) { e.apply(c, now) }

type (
	// Connected reports a new or lost connection to NATS.
	Connected struct {
		Up      bool
		Most    int // bytes of a record; 0: unchanged
		Resting map[handle.Partition]bool
	}
	// Storing reports that nothing can be stored, or that it can again.
	Storing struct{ Fails bool }
	// Synced reports that all initial records and policies were delivered.
	Synced struct{}
	// Jumped reports that the wall clock jumped against this process's clock.
	Jumped struct{}
	// Stopped reports that the process is to end.
	Stopped struct{}
)

type (
	// Written is the result of a write: its revision; 0 after a conflict, or if it is unknown.
	Written struct {
		Put      Put
		Revision uint64
	}
	// Found is the result of a read.
	Found struct {
		Put    Put
		Record Record
	}
	Watched struct {
		Table  Table
		Key    string
		Record Record
	}
	// Configured has changed policies by name; nil: removed, or without a queue.
	Configured map[string]*QueuePolicy
	// Overridden is a key's override; a zero one removes it.
	Overridden struct {
		Policy   string
		Key      queue.Key
		Override inforce.Override
	}
)

type (
	Unopened struct {
		Opening
		Streamless bool
	}
	// Broken reports that a backlog lost its position.
	Broken struct {
		Part  handle.Partition
		Epoch uint64
	}
	// Arrived are delivered jobs.
	Arrived struct {
		Part  handle.Partition
		Epoch uint64
		Jobs  []job.Arrived
		Stray bool
		Swept bool
	}
	// Confirmed are confirmed acknowledgements.
	Confirmed struct {
		Part handle.Partition
		Seqs []uint64
	}
)

type (
	// Finished is a run's outcome; see [Finish].
	Finished struct {
		Policy  string
		Run     uint64
		Outcome record.Outcome
	}
	// Answered reports that the answer to a run's request had begun at an instant, read after it.
	Answered struct {
		Policy string
		Run    uint64
		At     pace.Instant
	}
	// Paused reports the pause of a run's bucket before the run's outcome.
	Paused struct {
		Policy string
		Run    uint64
		For    time.Duration
	}
	// Fetched are jobs' texts.
	Fetched []Text
	Text    = valve.Text
	// Saved reports the end of an attempt record's write.
	Saved struct{ valve.Save }
	// Buried reports a stored dead letter.
	Buried struct{ handle.Ref }
	Noted  struct{ valve.Ending }
	// Delivered reports that an outcome reached the new owner, or is no longer needed.
	Delivered struct{ Report record.Report }
)

type (
	// Offered is an offer's result, after its claim.
	Offered struct {
		Policy string
		Result crew.Offered
	}
	Claimed struct {
		Policy string
		crew.Claim
	}
	// Asked is a question to a partition's owner.
	Asked struct {
		Part     handle.Partition
		Question job.Question
		Reply    func(job.Answer)
	}
	// Heard is a claim to a partition's owner.
	Heard struct {
		Part  handle.Partition
		Claim job.Claim
		Reply func(job.Turn)
	}
)
