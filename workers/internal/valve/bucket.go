package valve

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/adapt"
	"github.com/penstock-mq/penstock/workers/internal/deep"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/heap"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

// stage is where a held job is on its way from the stream to its acknowledgement.
type stage uint8

const (
	stageWaiting stage = iota // in its bucket, in order
	stageDelayed              // not yet due, or backing off
	stageRunning              // here or, when it has a holder, in another process
	// its failed attempt or its crash is being recorded; then it backs off
	stageSaving
	stageBurying // its dead letter is being stored
	stageAcking  // its acknowledgement is on the way, until it is confirmed
	stageGone    // no longer in the stream
)

// heldJob is one stored job of a partition that this drainer owns.
type heldJob struct {
	job.Arrived
	Bucket *bucket

	stage      stage
	generation uint8 // of the backlog that delivered it last
	fetching   bool  // its body is being read
	counted    bool  // its body is held or being read while it waits, and is not small
	headless   bool  // its headers were left out as well: it was deep
	keyed      bool  // of one that is headless: it has an Idempotency-Key
	raised     bool  // it was deep, and waits
	noting     bool  // its crash is being recorded
	recorded   bool  // it has an attempt record to delete
	// times that it found its target down since a job of its bucket found it up
	tried     uint16
	began     pace.Instant // its last start here
	Attempts  int          // that counted
	crashes   int
	LastError string
	reason    job.Reason // while its dead letter is being stored

	// who runs it, when that is another process; while it waits: who did, and may still report; or
	// crashed, while that is recorded
	holder  string
	mark    int64         // its lane's arrived slots when it came
	front   int64         // the larger, the later it was moved to the front; 0: it was not
	came    int64         // by its partition's arrivals
	expires pace.Instant  // deadline or largest age
	at      pace.Instant  // while in the valve's timers: when to look at it
	backoff time.Duration // while saving: how long it waits afterwards

	charge *quota.Charge // while it runs: what its start took of the limits of its bucket
	turn   *turn         // likewise, of those of all

	weight             int32 // see weigh
	inBucket, inTimers int   // heap indices, −1 outside; inBucket is that in ready or in later
}

func (j *heldJob) ref() handle.Ref {
	return handle.Ref{Part: j.Bucket.Part.Partition, Seq: j.Seq, Key: j.Key,
		Stamp: j.Stored.UnixNano()}
}

// ran reports whether a job that is being buried had started; one that had not can be judged again
// by anybody.
func (j *heldJob) ran() bool {
	return j.reason != job.ReasonDeadline && j.reason != job.ReasonMalformed
}

// enter moves a job to another stage. Checkpoints list what has begun, four times a second, and
// must not look for it among a million that wait.
func (j *heldJob) enter(next stage) {
	switch was, is := j.stage.begun(), next.begun(); {
	case is && !was:
		j.Bucket.Part.begun[j.Seq] = j
	case was && !is:
		delete(j.Bucket.Part.begun, j.Seq)
	}
	if j.stage == stageBurying {
		j.Bucket.Part.burying--
	}
	if next == stageBurying {
		j.Bucket.Part.burying++
	}
	if j.stage == stageAcking {
		j.Bucket.Part.acking--
	}
	if next == stageAcking {
		j.Bucket.Part.acking++
	}
	j.stage = next
}

// begun reports whether a job in this stage has started and has no recorded outcome yet.
func (s stage) begun() bool { return s == stageRunning || s == stageSaving || s == stageBurying }

// orderedJob orders the jobs of a bucket: see rank.
type orderedJob struct{ *heldJob }

func (j orderedJob) Before(k orderedJob) bool { return j.rank().before(k.rank()) }
func (j orderedJob) Moved(i int)              { j.inBucket = i }

// rank is what a job is ordered by: its priority, or, where a step of priority is worth a time of
// waiting, when it came, so much earlier as its priority says; then as jobs were accepted. A job
// that found the target down goes behind those that did not, until one finds it up. Operators move
// some to the front.
//
// Place and seq stay as they are while a job waits, is retried or is handed over, so a retried job
// goes before those behind it, and whoever has waited for 18 steps before all that come. Sequences
// are the order in which the stream accepted jobs, so they are law 4's order.
type rank struct {
	tried uint16
	front int64
	place int64
	seq   uint64
}

func (j *heldJob) rank() rank {
	return rank{j.tried, j.front, j.Bucket.placeOf(j.Priority, j.came), j.Seq}
}

func (r rank) before(other rank) bool {
	if r.tried != other.tried {
		return r.tried < other.tried
	}
	if r.front != other.front {
		return r.front > other.front
	}
	if r.place != other.place {
		return r.place < other.place
	}
	return r.seq < other.seq
}

// placeOf is the place of a job of a priority that came at an instant: see arrivals.
func (b *bucket) placeOf(priority int, came int64) int64 {
	if b.step == 0 {
		return -int64(priority)
	}
	return came - int64(priority)*b.step
}

// rerank orders a bucket's jobs anew, after a change of the step. The last checks that are under
// way are made in the order of before: nothing starts until all of them are.
func (b *bucket) rerank() {
	for i := range b.lanes {
		b.lanes[i].trail = nil
	}
	if b.near != nothingNear {
		b.ready.Retain(func(orderedJob) bool { return true })
		b.stalled = true
	}
}

// laterJob orders the jobs of a bucket that may not start yet by when that changes.
type laterJob struct{ *heldJob }

func (j laterJob) Before(k laterJob) bool { return timedJob(j).Before(timedJob(k)) }
func (j laterJob) Moved(i int)            { j.inBucket = i }

// timedJob orders the jobs of a valve by when to look at them.
type timedJob struct{ *heldJob }

func (j timedJob) Before(k timedJob) bool { return j.at < k.at || j.at == k.at && j.Seq < k.Seq }
func (j timedJob) Moved(i int)            { j.inTimers = i }

// bucket is one key's jobs and clock.
type bucket struct {
	// What walks look at stands together.
	*limits
	*near
	key  job.Key
	held int // jobs in any stage
	// of its jobs that are deep, those that wait for a slot, and those that are not due yet
	deep, deepLater int32
	waiting         int64   // the slots of all that wait for one
	turns           float64 // taken under the total outflow, by weight: see valve

	Part  *Part
	clock pace.Clock
	lanes []lane
	cool  pace.Instant // until when the target asked for a pause

	inList int          // its place in the partition's list, −1 once it is forgotten
	since  pace.Instant // when it last woke or started a job
	nextAt pace.Instant // while in the valve's schedule: when to look at it
	index  int32        // in the heap that spot names
	spot   spot
	awake  bool // it has work and may run it; asleep it earns burst credit
}

// near is what a bucket has besides once a job of it is not deep, or has costs by name. Until then
// it shares one that is empty, and [bucket.own] gives it its own: a million keys whose jobs are all
// deep take 300 bytes less each.
type near struct {
	ready   heap.Heap[orderedJob] // the jobs that wait for a slot, those that are deep excepted
	later   heap.Heap[laterJob]   // the jobs that back off or are not due yet
	running int                   // jobs that hold concurrency, wherever they run
	passing passing
	heldBy  string // the limit on starts that holds its next job

	last      *Ticket // the last start, which the next one follows
	undecided undecided
	stalled   bool // one of those came back: nothing starts before all of them are decided
	noting    int  // jobs whose crash is being recorded; those behind them wait

	throttles int          // pauses in a row
	target    *suspicion   // nil: nothing speaks against it
	learnt    *learnt      // of the target's limit; nil: nothing
	used      *quota.Set   // of the limits on starts; nil: nothing that counts
	fresh     pace.Instant // when to look whether that is so again
	allowed   allowed      // what they let start
	trial     *quota.Trial // of those that hold nothing back

	// units of each named cost that its ready jobs take, beyond their cost in slots
	named map[string]int64

	rate      pace.Average // of its starts
	minute    pace.Average // likewise, over a minute
	late      lateness
	lastError string // of the last run that did not end well, until one does

	bodies int // how many of its jobs are counted
	raised int // how many of its ready jobs were deep
}

// nothingNear is what they share. Nothing is ever written to it.
var nothingNear = &near{}

func newBucket(p *Part, key job.Key, l *limits) *bucket {
	return &bucket{key: key, Part: p, limits: l, near: nothingNear}
}

// own is what to write to.
func (b *bucket) own() *near {
	if b.near == nothingNear {
		b.near = &near{}
	}
	return b.near
}

// lane counts the slots of a bucket's jobs of one priority, so that nobody has to walk the queue to
// tell how long it is. A job takes as many slots as it costs.
type lane struct {
	priority int
	waiting  int64     // of the jobs in ready, and of those that are deep
	arrived  int64     // of all that have come
	trail    *trail    // when they came; nil: the bucket's priorities have no step
	line     deep.Line // of those that are deep and may start; 0: there are none
	later    deep.Line // likewise, of those that are not due yet
}

// trail is a rough memory of when the jobs of a lane came.
type trail struct {
	newest int64 // when the last one did
	marks  []trailMark
}

// trailMark says how many slots had arrived when a job came, its own included.
type trailMark struct{ at, arrived int64 }

// mostMarks is how many there are of a lane. They are about evenly spread over the time.
const mostMarks = 32

// came is when a job of the bucket came that the stream stored at an instant.
func (b *bucket) came(seq uint64, stored int64) int64 { return b.Part.arrivals.came(seq, stored) }

// join counts a job as the last of its lane.
func (b *bucket) join(j *heldJob) {
	l := b.lane(j.Priority)
	l.arrived += j.Cost
	if j.mark = l.arrived; b.step > 0 {
		l.note(j.came)
	}
}

// note remembers when a job of the lane came, which has been counted as arrived.
func (l *lane) note(at int64) {
	if l.trail == nil {
		l.trail = &trail{}
	}
	t := l.trail
	t.newest = max(t.newest, at)
	if l.waiting == 0 {
		t.marks = t.marks[:0]
	}
	if n := len(t.marks); n > 0 &&
		at-t.marks[n-1].at < (t.marks[n-1].at-t.marks[0].at)/mostMarks {
		return
	}
	if len(t.marks) == mostMarks {
		left := l.arrived - l.waiting // about: these have started
		t.marks = slices.DeleteFunc(t.marks, func(m trailMark) bool { return m.arrived < left })
	}
	if n := len(t.marks); n == mostMarks {
		for i := range n / 2 {
			t.marks[i] = t.marks[2*i+1]
		}
		t.marks = t.marks[:n/2]
	}
	t.marks = append(t.marks, trailMark{at, l.arrived})
}

// until is how many slots of a lane wait that came up to an instant, or less: by what came between
// two marks, by what came since and does not wait, and by what came before there were marks.
func (l *lane) until(at int64) int64 {
	if l.trail == nil {
		return 0
	}
	if at >= l.trail.newest {
		return l.waiting
	}
	arrived := int64(0)
	for _, m := range l.trail.marks {
		if m.at > at {
			break
		}
		arrived = m.arrived
	}
	return max(0, l.waiting-(l.arrived-arrived))
}

// queued is how many jobs of a bucket wait for a slot.
func (b *bucket) queued() int { return len(b.ready) + int(b.deep) }

// lane returns that of a priority, which it makes when there is none.
func (b *bucket) lane(priority int) *lane {
	for i := range b.lanes {
		if b.lanes[i].priority == priority {
			return &b.lanes[i]
		}
	}
	b.lanes = append(b.lanes, lane{priority: priority})
	return &b.lanes[len(b.lanes)-1]
}

// countNamed counts the named costs of a job that begins to wait for a slot, or takes them away.
func (b *bucket) countNamed(cost int64, named map[string]int64, sign int64) {
	for name, n := range named {
		if b.named == nil {
			b.own().named = map[string]int64{}
		}
		if b.named[name] += sign * (n - cost); b.named[name] == 0 {
			delete(b.named, name)
		}
	}
}

// slotsBefore is how many slots go to others before a waiting job, its own not among them: exact
// while those of its priority that came after it wait, else less than it could be. Where priorities
// have a step, what waits of other ones is told less exactly: see until.
//
// Every publisher is told when its job starts, so this must not take as long as the queue is.
func (b *bucket) slotsBefore(j *heldJob) (slots int64) {
	if j.front > 0 {
		return 0 // or the few that were moved there after it
	}
	for i := range b.lanes {
		l := &b.lanes[i]
		if l.priority == j.Priority {
			slots += max(0, l.waiting-j.Cost-(l.arrived-j.mark))
		} else {
			slots += b.slotsOf(l, j.Priority, j.came)
		}
	}
	return slots
}

// slotsFor is how many slots go to others before a job of a priority that comes now, in Unix ns by
// JetStream's clock.
func (b *bucket) slotsFor(priority int, now int64) (slots int64) {
	now = max(now, b.Part.arrivals.last)
	for i := range b.lanes {
		slots += b.slotsOf(&b.lanes[i], priority, now)
	}
	return slots
}

// slotsOf is how many slots of a lane go before a job of a priority that came at an instant.
func (b *bucket) slotsOf(l *lane, priority int, came int64) int64 {
	switch latest := came + int64(l.priority-priority)*b.step; {
	case b.step > 0 && latest < b.Part.arrivals.last:
		return l.until(latest)
	case b.step > 0, l.priority >= priority:
		return l.waiting
	}
	return 0
}

// passing is until when a bucket lets others pass that cost less than its head.
type passing struct {
	seq   uint64
	until pace.Instant
	by    string // the limit
}

// allowed is the job that the limits let start, and before when: not for long, since JetStream's
// clock may be another then.
type allowed struct {
	seq   uint64
	until pace.Instant
}

// passes is when a bucket wants its turn after all; 0: now.
func (b *bucket) passes(now pace.Instant) pace.Instant {
	if b.passing.until > now && len(b.ready) > 0 && b.ready[0].Seq == b.passing.seq {
		return b.passing.until
	}
	return 0
}

// blocked reports whether the bucket starts nothing, however long one waits for its clock.
func (b *bucket) blocked() bool {
	return b.paused || b.concurrency > 0 && b.running >= b.concurrency
}

// down reports whether the bucket's own breaker is open.
func (b *bucket) down() bool { return b.target != nil && b.target.open }

// learnt is what a bucket has learnt of its target's limit, a third layer over the policy and its
// key's override. It only ever lowers the rate of these, so law 2 holds as without it.
type learnt struct {
	adapt.State
	under *limits // of its key
}

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
	at pace.Instant // its nextAt
}

func (b scheduledBucket) Before(c scheduledBucket) bool {
	return b.at < c.at || b.at == c.at && b.key < c.key
}
func (b scheduledBucket) Moved(i int) { b.index = int32(i) }

// dueBucket orders the buckets that compete for workers: under a total outflow fewest turns taken
// first, else fewest running, then longest due.
type dueBucket struct{ *bucket }

func (b dueBucket) Before(c dueBucket) bool {
	if b.turns != c.turns {
		return b.turns < c.turns
	}
	if b.running != c.running {
		return b.running < c.running
	}
	return b.nextAt < c.nextAt || b.nextAt == c.nextAt && b.key < c.key
}
func (b dueBucket) Moved(i int) { b.index = int32(i) }

// mostSpread is the most that spread is asked for.
const mostSpread = 250 * time.Millisecond

// spread is the part of limit that the key's hash picks, so that many buckets do not start together
// after a crash or an outage.
func spread(key job.Key, limit time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(key))
	return time.Duration(float64(limit) * float64(h.Sum32()) / (1 << 32))
}

// Place implements [walk.Item].
func (b *bucket) Place() *int { return &b.inList }
