package valve

import (
	"slices"
	"sort"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/deep"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/walk"
)

// Part is a share of a policy's buckets that this drainer owns or has owned.
type Part struct {
	handle.Partition
	Epoch   uint64
	state   partitionState
	buckets map[job.Key]*bucket
	list    walk.List[*bucket] // the same
	bodies  int64              // as of the valve
	near    int64              // as of the valve's memory
	jobs    map[uint64]*heldJob
	deep    *deep.Store[deepLane] // those that wait, and are not near
	// those of them that run, wherever, or whose outcome is being recorded
	begun   map[uint64]*heldJob
	burying int               // of these
	acking  int               // jobs that are finished, and not confirmed yet
	crashes map[uint64]string // by job that counts any: whose was the last
	records map[uint64]uint64 // revisions of attempt records, by job that has one

	Quiesced bool // it starts no jobs any more, because this drainer leaves

	undecided undecided // of all its buckets
	noting    int       // likewise
	// inherited jobs that run elsewhere and have not arrived: they hold concurrency somewhere …
	unseen int

	unseenUntil pace.Instant // … until then, for they may be gone

	// once surrendered: of the jobs that it left running, as the successor knows them
	holder     string
	created    time.Time // of its stream, once known
	generation uint8
	highest    uint64 // largest sequence that arrived
	// sequence of the stream when the backlog was opened: what is after it was added since
	last     uint64
	sweeping bool // until all that was stored by then has arrived

	// What the predecessor left, until the jobs arrive. when a crashed owner's partition was taken
	// over; 0 after a planned handover
	crashedAt pace.Instant

	restsUntil pace.Instant // buckets whose clock was not handed over start nothing before
	inherited  map[uint64]*inheritedJob
	through    int64 // as in [handover], of what is inherited
	// when the newest job was stored that has come, or is inherited: likewise
	newest   int64
	arrivals arrivals
	// acknowledged a moment ago, when they were stored, 0: by through. Deliveries of them are stale
	finished map[uint64]int64
	recent   []finishedJob
	stale    int // so many of recent are older than finishedFor

	// Changed is set when a job starts or ends: for checkpoints.
	Changed bool
	unnoted unnoted
	edits   edits
	crash   *crash // nil: nothing is unknown of what was started
}

type partitionState uint8

const (
	partitionOpening partitionState = iota // owned, its backlog is being opened
	partitionLive                          // owned, jobs start
	// handed over: outcomes are reported to the successor
	partitionSurrendered
	partitionLost // another took it: outcomes have no effect
)

type inheritedJob struct {
	holder  string
	crashed string // who ran it and crashed
	record  record.Attempt
	dueIn   time.Duration // of backoff, from the takeover
	saved   bool          // there is an attempt record
	outcome *record.Outcome
}

// runs reports whether the job runs in another process, or did.
func (in *inheritedJob) runs() bool { return in.holder != "" }

type finishedJob struct {
	seq    uint64
	stored int64 // Unix ns
	at     pace.Instant
}

const (
	// staleFor is how long the backlog can still deliver a finished job again: on three nodes a
	// place stays taken up to 5 ms after its acknowledgement.
	staleFor = 100 * time.Millisecond
	// finishedFor is how long a backlog that is opened anew may deliver one. A confirmed
	// acknowledgement says that the consumer has it. The job is removed when the server that leads
	// the stream has applied that too: seconds later where that server was away, and never where
	// the consumer is deleted before.
	finishedFor = 30 * time.Second
	// mostFinished is how many of them a partition remembers: those of half a minute at 4,000 a
	// second.
	mostFinished = 1 << 17
)

// arrivals tell when the jobs of a partition came, in Unix ns: when the stream stored them, but no
// earlier than those before them. Stamps are of the stream's leader, so they step back with its
// clock, and to that of another server; yet among equal priorities places are to be in the order of
// sequences (law 4).
//
// A new owner does not know the stamps of jobs that are gone, so to it some came earlier, by as
// much as the clock stepped back at most. Equal priorities keep their order also then.
type arrivals struct {
	seq   uint64 // of the last job
	last  int64  // when it came
	flats []flat // in the order of their jobs
}

// flat is a run of jobs of which none came earlier than the one before them, whatever their stamps.
type flat struct {
	from, until uint64
	at          int64
}

// mostFlats is how many a partition remembers: of more, the first two become one, whose jobs count
// as having come with the last of them.
const mostFlats = 100

// came is when a job came that the stream stored at an instant; one that is new comes now.
func (a *arrivals) came(seq uint64, stored int64) int64 {
	if seq > a.seq {
		return a.comes(seq, stored)
	}
	i := sort.Search(len(a.flats), func(i int) bool { return a.flats[i].until >= seq })
	if i < len(a.flats) && a.flats[i].from <= seq {
		return max(stored, a.flats[i].at)
	}
	return stored
}

func (a *arrivals) comes(seq uint64, stored int64) int64 {
	a.seq = seq
	if stored >= a.last {
		a.last = stored
		return stored
	}
	if n := len(a.flats); n > 0 && a.flats[n-1].at == a.last {
		a.flats[n-1].until = seq
		return a.last
	}
	if len(a.flats) == mostFlats {
		a.flats[1].from = a.flats[0].from
		a.flats = slices.Delete(a.flats, 0, 1)
	}
	a.flats = append(a.flats, flat{seq, seq, a.last})
	return a.last
}

// Owned reports whether this drainer owns the partition.
func (p *Part) Owned() bool { return p.state <= partitionLive }

// Lost reports whether another took it, so that what ends of it has no effect any more.
func (p *Part) Lost() bool { return p.state == partitionLost }

// Live reports whether jobs of it start.
func (p *Part) Live() bool { return p.state == partitionLive }

// Buckets is how many buckets it has.
func (p *Part) Buckets() int { return len(p.buckets) }

// Stream tells the partition's stream from others of its name, 0 while it is not known.
//
// Names come back and sequences begin at 1 again; the instant at which a stream was made is all
// that tells two apart.
func (p *Part) Stream() int64 {
	if p.created.IsZero() {
		return 0
	}
	return p.created.UnixNano()
}

// Held returns the job that a name stands for; nil: it is not held any more.
func (p *Part) Held(name handle.Ref) *heldJob {
	if j := p.jobs[name.Seq]; j != nil && j.Stored.UnixNano() == name.Stamp {
		return j
	}
	return nil
}

// finish remembers a confirmed acknowledgement for finishedFor.
func (p *Part) finish(seq uint64, stored int64, now pace.Instant) {
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

// finishedLately reports whether a job is among those whose acknowledgement was confirmed a moment
// ago.
//
// It goes back from the latest, because nearly all that comes again was finished within
// milliseconds.
func (p *Part) finishedLately(seq uint64, stored int64, now pace.Instant) bool {
	for _, f := range slices.Backward(p.recent[p.stale:]) {
		if f.seq == seq || now.Since(f.at) > staleFor {
			return f.seq == seq && f.stored == stored
		}
	}
	return false
}

// done reports whether the job of a sequence that was stored then is among those that were
// acknowledged before this backlog was opened.
//
// When the job was stored has to be the same, for in a stream that was restored from a backup
// another one may have its sequence, and would be acknowledged unrun (law 3).
func (p *Part) done(seq uint64, stored int64) bool {
	at, known := p.finished[seq]
	return known && (at == stored || at == 0 && !p.newer(stored))
}

// newer reports whether a job was stored later than all of which the predecessor said anything.
func (p *Part) newer(stored int64) bool { return p.through != 0 && stored > p.through }

// tellsThrough is what a record says of that now; while anything may be inherited of which it is
// not known, neither is this.
//
// To tell a later instant than is known would make later owners take new jobs for old ones; to tell
// none makes them believe records as they did before there was this field.
func (p *Part) tellsThrough() int64 {
	if p.through == 0 && p.sweeping && len(p.inherited)+len(p.finished) > 0 {
		return 0
	}
	return p.newest
}
