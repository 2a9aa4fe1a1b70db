package valve

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/claimant"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/keyqueue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/walk"
)

// Part is a partition that this drainer owns or has owned.
type Part struct {
	handle.Partition
	v     *Valve
	Epoch uint64
	state partitionState
	holding
	stream
	legacy
	acknowledged

	crashes map[uint64]string // last crashed holder, by job
	// last reports of running jobs
	progress map[uint64]string
	records  map[uint64]uint64 // revisions of attempt records, by job
	unnoted  unnoted
	edits    edits
	unique   uniques

	Quiesced bool // starts no more jobs
	Changed  bool
	// of running jobs, once surrendered
	holder     string
	Unreported int // outcomes for the next owner, once surrendered
}

type holding struct {
	buckets map[job.Key]*bucket
	list    walk.List[*bucket] // the same
	jobs    map[uint64]*heldJob
	calls   map[string]*heldJob // by callers' ids
	callSeq uint64
	ended   claimant.Names // calls whose end was reported
	open    claimant.Names // calls that left without an answer, and hold units
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

type legacy struct {
	// of a takeover after a crash, or 0
	crashedAt  pace.Instant
	crash      *crash // nil: no unknown starts
	restsUntil pace.Instant
	inherited  map[uint64]*inheritedJob
	through    int64
	// inherited runs elsewhere that have not arrived, and may use concurrency
	unseen      int
	unseenUntil pace.Instant // when they no longer count
}

type acknowledged struct {
	// time of storage by sequence (0: judge by through)
	finished map[uint64]int64
	recent   []finishedJob
	stale    int // entries of recent beyond finishedFor
}

type partitionState uint8

const (
	partitionOpening partitionState = iota // its backlog is being opened
	partitionLive
	// outcomes go to the successor
	partitionSurrendered
	partitionLost // outcomes have no effect
)

type inheritedJob struct {
	holder  string
	crashed string // a dead holder
	record  record.Attempt
	saved   bool // has an attempt record
	outcome *record.Outcome
}

func (in *inheritedJob) runs() bool { return in.holder != "" }

type finishedJob struct {
	seq    uint64
	stored int64
	at     pace.Instant
}

const (
	// staleFor bounds the time until a backlog redelivers a finished job.
	staleFor = 100 * time.Millisecond
	// finishedFor is the same for a reopened backlog: the stream's leader applies acknowledgements
	// later than the consumer confirms them, by seconds after an outage.
	finishedFor = 30 * time.Second
	// mostFinished is half a minute's finished jobs at 4,000 a second.
	mostFinished = 1 << 17
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

func (p *acknowledged) finish(seq uint64, stored int64, now pace.Instant) {
	p.stale = max(p.stale, len(p.recent)-mostFinished)
	for p.stale < len(p.recent) && now.Since(p.recent[p.stale].at) > finishedFor {
		p.stale++
	}
	if p.stale > len(p.recent)/2 {
		p.recent = append(p.recent[:0], p.recent[p.stale:]...)
		p.stale = 0
	}
	p.recent = append(p.recent, finishedJob{seq, stored, now})
}

func (p *acknowledged) finishedLately(seq uint64, stored int64, now pace.Instant) bool {
	for _, f := range slices.Backward(p.recent[p.stale:]) {
		if f.seq == seq || now.Since(f.at) > staleFor {
			return f.seq == seq && f.stored == stored
		}
	}
	return false
}

// done reports whether a job was acknowledged before this backlog was opened, and is not a restored
// stream's other job of its sequence (law 3).
func (p *Part) done(seq uint64, stored int64) bool {
	at, known := p.finished[seq]
	return known && (at == stored || at == 0 && !p.newer(stored))
}

func (p *Part) newer(stored int64) bool { return p.through != 0 && stored > p.through }

// tellsThrough returns a record's Through; 0 while inherited state of unknown age may remain.
func (p *Part) tellsThrough() int64 {
	if p.through == 0 && p.sweeping && len(p.inherited)+len(p.finished) > 0 {
		return 0
	}
	return p.newest
}
