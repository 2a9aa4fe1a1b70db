package workers

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// stage is where a held job is on its way from the stream to its acknowledgement.
type stage uint8

const (
	stageWaiting stage = iota // in its bucket, in order
	stageDelayed              // not yet due, or backing off
	stageRunning              // here or, when it has a holder, in another process
	stageSaving               // its failed attempt or its crash is being recorded; then it backs off
	stageBurying              // its dead letter is being stored
	stageAcking               // its acknowledgement is on the way, until it is confirmed
	stageGone                 // no longer in the stream
)

// job is one stored job of a partition that this drainer owns.
type job struct {
	queue.Arrived
	bucket *bucket

	stage      stage
	generation uint8   // of the backlog that delivered it last
	fetching   bool    // its body is being read
	counted    bool    // its body is held or being read while it waits, and is not small
	noting     bool    // its crash is being recorded
	recorded   bool    // it has an attempt record to delete
	tried      uint16  // times that it found its target down since a job of its bucket found it up
	began      instant // its last start here
	attempts   int     // that counted
	crashes    int
	lastError  string
	reason     Reason // while its dead letter is being stored

	holder  string        // who runs it, when that is another process; while it waits: who did, and may still report; or crashed, while that is recorded
	mark    int64         // its lane's arrived slots when it came
	expires instant       // deadline or largest age
	at      instant       // while in the valve's timers: when to look at it
	backoff time.Duration // while saving: how long it waits afterwards

	inBucket, inTimers int // heap indices, −1 outside; inBucket is that in ready or in later
}

// ran reports whether a job that is being buried had started; one that had not can be judged again by anybody.
func (j *job) ran() bool { return j.reason != ReasonDeadline && j.reason != ReasonMalformed }

// enter moves a job to another stage. Checkpoints list what has begun, four times a second, and must not look for it among
// a million that wait.
func (j *job) enter(next stage) {
	switch was, is := j.stage.begun(), next.begun(); {
	case is && !was:
		j.bucket.part.begun[j.Seq] = j
	case was && !is:
		delete(j.bucket.part.begun, j.Seq)
	}
	j.stage = next
}

// begun reports whether a job in this stage has started and has no recorded outcome yet.
func (s stage) begun() bool { return s == stageRunning || s == stageSaving || s == stageBurying }

// orderedJob orders the jobs of a bucket: by priority, then as they were accepted. A retried job is older than those behind it
// and so goes before them. Who found the target down goes behind who did not, until somebody finds it up.
type orderedJob struct{ *job }

func (j orderedJob) before(k orderedJob) bool {
	if j.tried != k.tried {
		return j.tried < k.tried
	}
	if j.Priority != k.Priority {
		return j.Priority > k.Priority
	}
	return j.Seq < k.Seq
}
func (j orderedJob) moved(i int) { j.inBucket = i }

// laterJob orders the jobs of a bucket that may not start yet by when that changes.
type laterJob struct{ *job }

func (j laterJob) before(k laterJob) bool { return timedJob(j).before(timedJob(k)) }
func (j laterJob) moved(i int)            { j.inBucket = i }

// timedJob orders the jobs of a valve by when to look at them.
type timedJob struct{ *job }

func (j timedJob) before(k timedJob) bool { return j.at < k.at || j.at == k.at && j.Seq < k.Seq }
func (j timedJob) moved(i int)            { j.inTimers = i }

// bucket is one key's jobs and clock.
type bucket struct {
	// What walks look at stands together.
	*limits
	key     queue.Key
	held    int              // jobs in any stage
	ready   heap[orderedJob] // the jobs that wait for a slot
	waiting int64            // their slots
	turns   float64          // taken under the total outflow, by weight

	part    *partition
	clock   clock
	later   heap[laterJob] // the jobs that back off or are not due yet
	lanes   []lane
	running int // jobs that hold concurrency, wherever they run

	last      *turn // the last start, which the next one follows
	undecided undecided
	stalled   bool // one of those came back: nothing starts before all of them are decided
	noting    int  // jobs whose crash is being recorded; those behind them wait

	cool      instant    // until when the target asked for a pause
	throttles int        // pauses in a row
	target    *suspicion // nil: nothing speaks against it

	rate      float32 // starts per second, averaged over all time before rateAt
	rateAt    instant // of its last start; 0: never
	rateSince instant // before the first one that it counts
	lastError string  // of the last run that did not end well, until one does

	bodies int     // how many of its jobs are counted
	inList int     // its place in the partition's list, −1 once it is forgotten
	awake  bool    // it has work and may run it; asleep it earns burst credit
	since  instant // when it last woke or started a job
	spot   spot
	index  int     // in the heap that spot names
	nextAt instant // while in the valve's schedule: when to look at it
}

// lane counts the slots of a bucket's jobs of one priority, so that nobody has to walk the queue to tell how long it is. A
// job takes as many slots as it costs.
type lane struct {
	priority int
	waiting  int64 // of the jobs in ready
	arrived  int64 // of all that have come
}

func (b *bucket) lane(priority int) *lane {
	for i := range b.lanes {
		if b.lanes[i].priority == priority {
			return &b.lanes[i]
		}
	}
	b.lanes = append(b.lanes, lane{priority: priority})
	return &b.lanes[len(b.lanes)-1]
}

// slotsBefore is how many slots go to others before a waiting job, its own not among them: exact while those of its
// priority that came after it wait, else less than it could be.
func (b *bucket) slotsBefore(j *job) (slots int64) {
	for _, l := range b.lanes {
		switch {
		case l.priority > j.Priority:
			slots += l.waiting
		case l.priority == j.Priority:
			slots += max(0, l.waiting-j.Cost-(l.arrived-j.mark))
		}
	}
	return slots
}

// slotsFor is how many slots go to others before a job of a priority that comes now.
func (b *bucket) slotsFor(priority int) (slots int64) {
	for _, l := range b.lanes {
		if l.priority >= priority {
			slots += l.waiting
		}
	}
	return slots
}

// blocked reports whether the bucket starts nothing, however long one waits for its clock.
func (b *bucket) blocked() bool { return b.paused || b.concurrency > 0 && b.running >= b.concurrency }

type spot uint8

const (
	spotNone   spot = iota
	spotSched       // its next start lies ahead
	spotUnread      // there is no room for the body of its head
	spotDue         // it may start a job as soon as a worker is free
)

// scheduledBucket orders the buckets of a valve by when their next job may start. It says itself
// when that is: where there are many buckets, to compare some must not fetch them from memory.
type scheduledBucket struct {
	*bucket
	at instant // its nextAt
}

func (b scheduledBucket) before(c scheduledBucket) bool {
	return b.at < c.at || b.at == c.at && b.key < c.key
}
func (b scheduledBucket) moved(i int) { b.index = i }

// dueBucket orders the buckets that compete for workers: under a total outflow fewest turns taken first, else fewest
// running, then longest due.
type dueBucket struct{ *bucket }

func (b dueBucket) before(c dueBucket) bool {
	if b.turns != c.turns {
		return b.turns < c.turns
	}
	if b.running != c.running {
		return b.running < c.running
	}
	return b.nextAt < c.nextAt || b.nextAt == c.nextAt && b.key < c.key
}
func (b dueBucket) moved(i int) { b.index = i }

// partition is a share of a policy's buckets that this drainer owns or has owned.
type partition struct {
	policy  string
	number  int
	epoch   uint64
	state   partitionState
	buckets map[queue.Key]*bucket
	list    []*bucket // the same, for walks
	walks   []*walk   // that are under way
	bodies  int64     // as of the valve
	jobs    map[uint64]*job
	begun   map[uint64]*job   // those of them that run, wherever, or whose outcome is being recorded
	crashes map[uint64]string // by job that counts any: whose was the last
	records map[uint64]uint64 // revisions of attempt records, by job that has one

	fresh    bool // what the predecessor left was not taken over yet
	broken   bool // its backlog lost its way and must be opened anew
	unopened bool // its backlog could not be opened in this epoch
	quiesced bool // it starts no jobs any more, because this drainer leaves

	undecided undecided // of all its buckets
	noting    int       // likewise
	unseen    int       // inherited jobs that run elsewhere and have not arrived: they hold concurrency somewhere …

	unseenUntil instant // … until then, for they may be gone

	holder     string    // once surrendered: of the jobs that it left running, as the successor knows them
	created    time.Time // of its stream, once known
	generation uint8
	highest    uint64 // largest sequence that arrived
	last       uint64 // sequence of the stream when the backlog was opened: what is after it was added since
	sweeping   bool   // until all that was stored by then has arrived

	// What the predecessor left, until the jobs arrive.
	crashedAt instant // when a crashed owner's partition was taken over; 0 after a planned handover
	inherited map[uint64]*inheritedJob
	finished  map[uint64]struct{} // acknowledged a moment ago: deliveries of them are stale
	recent    []finishedJob
	stale     int // so many of recent are older than finishedFor

	checkpointed checkpointState
}

type partitionState uint8

const (
	partitionOpening     partitionState = iota // owned, its backlog is being opened
	partitionLive                              // owned, jobs start
	partitionSurrendered                       // handed over: outcomes are reported to the successor
	partitionLost                              // another took it: outcomes have no effect
)

type inheritedJob struct {
	holder  string
	crashed string // who ran it and crashed
	record  attemptRecord
	dueIn   time.Duration // of backoff, from the takeover
	saved   bool          // there is an attempt record
	outcome *outcome
}

// runs reports whether the job runs in another process, or did.
func (in *inheritedJob) runs() bool { return in.holder != "" }

type finishedJob struct {
	seq uint64
	at  instant
}

const (
	// staleFor is how long the backlog can still deliver a finished job again: on three nodes a place stays taken up to 5 ms
	// after its acknowledgement.
	staleFor = 100 * time.Millisecond
	// finishedFor is how long a backlog that is opened anew may deliver one. A confirmed acknowledgement says that the
	// consumer has it. The job is removed when the server that leads the stream has applied that too: seconds later where
	// that server was away, and never where the consumer is deleted before.
	finishedFor = 30 * time.Second
	// mostFinished is how many of them a partition remembers: those of half a minute at 4,000 a second.
	mostFinished = 1 << 17
)

// finish remembers a confirmed acknowledgement for finishedFor.
func (p *partition) finish(seq uint64, now instant) {
	p.stale = max(p.stale, len(p.recent)-mostFinished)
	for p.stale < len(p.recent) && now.since(p.recent[p.stale].at) > finishedFor {
		p.stale++
	}
	if p.stale > len(p.recent)/2 {
		p.recent = append(p.recent[:0], p.recent[p.stale:]...)
		p.stale = 0
	}
	p.recent = append(p.recent, finishedJob{seq, now})
}

// finishedLately reports whether a job is among those whose acknowledgement was confirmed a moment ago.
func (p *partition) finishedLately(seq uint64, now instant) bool {
	for _, f := range slices.Backward(p.recent[p.stale:]) {
		if f.seq == seq || now.since(f.at) > staleFor {
			return f.seq == seq
		}
	}
	return false
}

// mostSpread is the most that spread is asked for.
const mostSpread = 250 * time.Millisecond

// spread is the part of limit that the key's hash picks, so that many buckets do not start together after a
// crash or an outage.
func spread(key queue.Key, limit time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(key))
	return time.Duration(float64(limit) * float64(h.Sum32()) / (1 << 32))
}
