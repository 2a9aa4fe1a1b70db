package valve

import (
	"time"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/calls"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/keyqueue"
	"github.com/penstock-mq/penstock/workers/internal/walk"
)

// Part is a partition that this drainer owns or has owned.
type Part struct {
	handle.Partition
	v      *Valve
	agenda *agenda // the valve's
	Epoch  uint64
	state  partitionState
	holding
	stream
	legacy inheritance.Legacy

	// last reports of running jobs
	progress map[uint64]string
	edits    inheritance.Edits
	unique   uniques

	Checkpoints inheritance.Checkpoints
	Quiesced    bool // starts no more jobs
	// of running jobs, once surrendered
	holder     string
	Unreported int // outcomes for the next owner, once surrendered
}

type holding struct {
	buckets map[queue.Key]*bucket
	list    walk.List[*bucket] // the same
	jobs    map[uint64]*heldJob
	calls   calls.Calls[*heldJob]
	deep    *keyqueue.Store[*heldJob]
	// running anywhere, or with an outcome being recorded
	begun     map[uint64]*heldJob
	stages    [stageGone + 1]int
	undecided undecided
	noting    int
}

type stream struct {
	created    time.Time
	generation uint8  // of the backlog
	highest    uint64 // that has arrived
	last       uint64
	sweeping   bool
	// latest storage of a received or inherited job
	newest int64
}

type partitionState uint8

const (
	partitionOpening partitionState = iota // its backlog is being opened
	partitionLive
	// outcomes go to the successor
	partitionSurrendered
	partitionLost // outcomes have no effect
)

func (p *Part) Owned() bool { return p.state <= partitionLive }

func (p *Part) Lost() bool { return p.state == partitionLost }

func (p *Part) Live() bool { return p.state == partitionLive }

func (p *Part) Buckets() int { return len(p.buckets) }

// Stream returns the stream's creation time in Unix ns; 0: unknown.
func (p *Part) Stream() int64 {
	if p.created.IsZero() {
		return 0
	}
	return p.created.UnixNano()
}

func (p *Part) Held(name handle.Ref) *heldJob {
	if j := p.jobs[name.Seq]; j != nil && j.Stored.UnixNano() == name.Stamp {
		return j
	}
	return nil
}
