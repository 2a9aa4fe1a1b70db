package valve

import (
	"hash/fnv"
	"math"
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

// stage is a held job's progress from the stream to its acknowledgement.
type stage uint8

const (
	stageWaiting stage = iota // in its bucket, in order
	stageDelayed              // not yet due, or backing off
	stageRunning              // here, or in another process if it has a holder
	// recording its failed attempt or crash, before it backs off
	stageSaving
	stageBurying // its dead letter is being stored
	stageAcking  // waiting for its acknowledgement to be confirmed
	stageGone    // no longer in the stream
)

// heldJob is one stored job of a partition that this drainer owns.
type heldJob struct {
	job.Arrived
	Bucket *bucket

	stage      stage
	generation uint8 // of the backlog that delivered it last
	raised     bool  // it was deep, and waits for a slot
	text
	trials

	// the other process that runs it; while it waits, one that may still report; while a crash is
	// being recorded, the one that crashed
	holder  string
	mark    int64        // its lane's arrived slots when it came
	front   int64        // larger for later moves to the front; 0: not moved
	came    int64        // its arrival in the partition's order: see arrivals
	expires pace.Instant // deadline or maximum age
	at      pace.Instant // when its timer fires, while in the valve's timers

	call *call // nil: it is a stored job

	charged *charged // while it runs: its charges to limits

	inBucket, inTimers int // heap indices, −1 outside; inBucket is its index in ready or later
}

// text is how much of a job's headers and body is held.
type text struct {
	fetching bool  // its body is being read
	counted  bool  // its large body is held or being read, and counted
	headless bool  // its headers were left out as well, as it was deep
	keyed    bool  // if headless: it has an Idempotency-Key
	weight   int32 // see weigh
}

type trials struct {
	noting   bool // a crash is being recorded
	recorded bool // there is an attempt record to delete
	snoozed  bool // while saving: its run asked for the wait, and no attempt counts
	// how often it found its target down, since a job of its bucket last found it up
	tried     uint16
	began     pace.Instant // its last start here
	Attempts  int          // attempts that counted
	crashes   int
	LastError string
	reason    job.Reason    // while its dead letter is being stored
	backoff   time.Duration // while saving: the wait to follow
}

func (j *heldJob) ref() handle.Ref {
	return handle.Ref{Part: j.Bucket.Part.Partition, Seq: j.Seq, Key: j.Key,
		Stamp: j.Stored.UnixNano()}
}

var oneSlot = quota.Cost{Job: 1}

func (j *heldJob) takes() quota.Cost { return quota.Cost{Job: j.Cost, Named: j.Costs} }

// ran reports whether a job that is being buried had started.
func (j *heldJob) ran() bool {
	return j.reason != job.ReasonDeadline && j.reason != job.ReasonMalformed
}

// enter moves a job to another stage. Checkpoints list the begun jobs, and must not search a
// million waiting ones.
func (j *heldJob) enter(next stage) {
	if j.call != nil {
		j.stage = next
		return
	}
	p := j.Bucket.Part
	switch was, is := j.stage.begun(), next.begun(); {
	case is && !was:
		p.begun[j.Seq] = j
	case was && !is:
		delete(p.begun, j.Seq)
	}
	p.stages[j.stage]--
	p.stages[next]++
	j.stage = next
}

func (s stage) begun() bool { return s == stageRunning || s == stageSaving || s == stageBurying }

type orderedJob struct{ *heldJob }

func (j orderedJob) Before(k orderedJob) bool { return j.rank().before(k.rank()) }
func (j orderedJob) Moved(i int)              { j.inBucket = i }

// rank is the order of a bucket's jobs. Jobs that found the target down go last, until one finds it
// up; jobs that operators moved to the front go first. The rest go by priority, then by sequence
// (law 4). With a priority step, a job instead counts as having arrived one step earlier per level.
type rank struct {
	tried uint16
	front int64
	place int64
	seq   uint64
}

func (j *heldJob) rank() rank {
	if j.call != nil {
		return rank{front: math.MaxInt64, place: -int64(j.Priority), seq: j.Seq}
	}
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

func (b *bucket) placeOf(priority int, came int64) int64 {
	if b.step == 0 {
		return -int64(priority)
	}
	return came - int64(priority)*b.step
}

// rerank reorders jobs after the step has changed. Final checks in progress follow the old order,
// so nothing starts until they are decided.
func (b *bucket) rerank() {
	for i := range b.lanes {
		b.lanes[i].trail = nil
	}
	if b.near != nothingNear {
		b.ready.Retain(func(orderedJob) bool { return true })
		b.stalled = true
	}
}

type laterJob struct{ *heldJob }

func (j laterJob) Before(k laterJob) bool { return timedJob(j).Before(timedJob(k)) }
func (j laterJob) Moved(i int)            { j.inBucket = i }

type timedJob struct{ *heldJob }

func (j timedJob) Before(k timedJob) bool { return j.at < k.at || j.at == k.at && j.Seq < k.Seq }
func (j timedJob) Moved(i int)            { j.inTimers = i }

// bucket holds one key's jobs and clock.
type bucket struct {
	// Fields read by full scans come first, for cache locality.
	*limits
	*near
	key  job.Key
	held int // jobs in any stage
	// jobs that wait for a slot, or for their date
	deep, deepLater int32
	waiting         int64   // slots of all jobs that wait for one
	turns           float64 // virtual time under the total outflow: see Valve.turns

	Part  *Part
	clock pace.Clock
	lanes []lane
	cool  pace.Instant // until when the target asked for a pause

	inList int          // index in the partition's list, −1 once removed
	since  pace.Instant // when it last became active or started a job
	nextAt pace.Instant // its time in the valve's schedule
	index  int32        // in the heap named by spot
	spot   spot
	awake  bool // it has work that may run; an inactive bucket earns burst credit
}

// near is the state of a bucket with jobs in memory. Others share an empty one, which saves 300
// bytes for each key whose jobs are all deep.
type near struct {
	ready   heap.Heap[orderedJob] // jobs that wait for a slot, except deep ones
	later   heap.Heap[laterJob]   // jobs that back off or are not due yet
	running int                   // jobs that count against concurrency, wherever they run
	passing passing
	heldBy  string // the start limit that holds its next job

	callers *callers // calls that wait; nil: there were none

	last      *Ticket // the last start, which the next must follow
	undecided undecided
	stalled   bool // an undecided start was returned: nothing starts until all are decided
	noting    int  // jobs whose crash is being recorded; the jobs behind them wait

	throttles int          // pauses in a row
	target    *suspicion   // nil: no sign of an outage
	learnt    *learnt      // the target's learnt limit; nil: none
	used      *quota.Set   // usage of the start limits; nil: none that counts
	fresh     pace.Instant // when to check again that no usage counts
	allowed   allowed      // the job that the limits allow to start
	trial     *quota.Trial // usage of the shadow limits

	// units of each named cost in its ready jobs, beyond their slots
	named map[string]int64

	rate      pace.Average // of its starts
	minute    pace.Average // rate of starts over a minute
	late      lateness
	lastError string // of the last failed run, until a run succeeds

	bodies int // number of jobs with a counted body
	raised int // number of ready jobs that were deep
}

// nothingNear is the shared, read-only zero value.
var nothingNear = &near{}

func newBucket(p *Part, key job.Key, l *limits) *bucket {
	return &bucket{key: key, Part: p, limits: l, near: nothingNear}
}

// own returns the bucket's private state.
func (b *bucket) own() *near {
	if b.near == nothingNear {
		b.near = &near{}
	}
	return b.near
}

// lane counts the slots of a bucket's jobs of one priority.
type lane struct {
	priority int
	waiting  int64     // slots of ready and deep jobs
	arrived  int64     // slots of all jobs so far
	trail    *trail    // arrival times; nil: priorities have no step
	line     deep.Line // deep jobs that may start; 0: none
	later    deep.Line // deep jobs that are not due yet; 0: none
}

// trail is an approximate record of the arrivals of a lane.
type trail struct {
	newest int64 // the latest arrival
	marks  []trailMark
}

// trailMark is the number of slots that had arrived by an instant.
type trailMark struct{ at, arrived int64 }

// mostMarks bounds the marks of a lane, spread about evenly over time.
const mostMarks = 32

func (b *bucket) came(seq uint64, stored int64) int64 { return b.Part.arrivals.came(seq, stored) }

func (b *bucket) join(j *heldJob) {
	l := b.lane(j.Priority)
	l.arrived += j.Cost
	if j.mark = l.arrived; b.step > 0 {
		l.note(j.came)
	}
}

func (l *lane) note(at int64) {
	if l.trail == nil {
		l.trail = &trail{}
	}
	t := l.trail
	t.newest = max(t.newest, at)
	if l.waiting == 0 {
		t.marks = t.marks[:0]
	}
	if n := len(t.marks); n > 0 && at-t.marks[n-1].at < (t.marks[n-1].at-t.marks[0].at)/mostMarks {
		return
	}
	if len(t.marks) == mostMarks {
		left := l.arrived - l.waiting // approximately: these have started
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

// until returns a lower bound on the waiting slots of a lane that arrived up to an instant.
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

func (b *bucket) queued() int { return len(b.ready) + int(b.deep) }

func (b *bucket) lane(priority int) *lane {
	for i := range b.lanes {
		if b.lanes[i].priority == priority {
			return &b.lanes[i]
		}
	}
	b.lanes = append(b.lanes, lane{priority: priority})
	return &b.lanes[len(b.lanes)-1]
}

func (b *bucket) firstDeep() (first rank, expires int64) {
	for i := range b.lanes {
		l := &b.lanes[i]
		if l.line == 0 {
			continue
		}
		if d, some := b.Part.deep.First(l.line); some {
			r := rank{place: b.placeOf(l.priority, b.came(d.Seq, d.Stored)), seq: d.Seq}
			if first.seq == 0 || r.before(first) {
				first, expires = r, d.Expires
			}
		}
	}
	return first, expires
}

// countNamed adds the named costs of a job that waits for a slot; sign −1 removes them.
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

// slotsBefore counts the slots of stored jobs before a waiting job: exactly while all later jobs of
// its priority wait, else a lower bound.
func (b *bucket) slotsBefore(j *heldJob) (slots int64) {
	if j.front > 0 {
		return 0 // or the few moved to the front after it
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

func (b *bucket) slotsFor(priority int, now int64) (slots int64) {
	now = max(now, b.Part.arrivals.last)
	for i := range b.lanes {
		slots += b.slotsOf(&b.lanes[i], priority, now)
	}
	return slots + b.slotsOfCalls(slots)
}

func (b *bucket) slotsOfCalls(jobs int64) int64 {
	if b.callers == nil {
		return 0
	}
	return min(b.callers.slots, b.callers.perJob*(jobs+1))
}

// slotsOf counts the slots of a lane before a job of a priority and arrival time.
func (b *bucket) slotsOf(l *lane, priority int, came int64) int64 {
	switch latest := came + int64(l.priority-priority)*b.step; {
	case b.step > 0 && latest < b.Part.arrivals.last:
		return l.until(latest)
	case b.step > 0, l.priority >= priority:
		return l.waiting
	}
	return 0
}

type passing struct {
	seq   uint64
	until pace.Instant
	by    string // the limit that holds it
}

// allowed is a job that the limits allow to start, briefly: JetStream's clock may change.
type allowed struct {
	seq   uint64
	until pace.Instant
}

func (b *bucket) passes(now pace.Instant) pace.Instant {
	if b.passing.until > now && len(b.ready) > 0 && b.ready[0].Seq == b.passing.seq {
		return b.passing.until
	}
	return 0
}

func (b *bucket) blocked() bool {
	return b.paused || b.concurrency > 0 && b.running >= b.concurrency
}

// busy returns how many workers run its jobs: calls need none.
func (b *bucket) busy() int {
	if b.callers == nil {
		return b.running
	}
	return b.running - b.callers.running
}

func (b *bucket) down() bool { return b.target != nil && b.target.open }

// learnt is the learnt limit of a bucket's target. It only lowers the rate (law 2).
type learnt struct {
	adapt.State
	under *limits // the limits of its key
}

type spot uint8

const (
	spotNone   spot = iota
	spotSched       // its next start lies ahead
	spotUnread      // its next body does not fit
	spotDue         // it may start a job as soon as a worker is free
	spotCaller      // it may start a call
)

// scheduledBucket orders buckets by their next start, which it copies to save cache misses.
type scheduledBucket struct {
	*bucket
	at pace.Instant // its nextAt
}

func (b scheduledBucket) Before(c scheduledBucket) bool {
	return b.at < c.at || b.at == c.at && b.key < c.key
}
func (b scheduledBucket) Moved(i int) { b.index = int32(i) }

// dueBucket orders the buckets that compete for workers: by turns taken, then by running jobs, then
// by how long they are due.
type dueBucket struct{ *bucket }

func (b dueBucket) Before(c dueBucket) bool {
	if b.turns != c.turns {
		return b.turns < c.turns
	}
	if mine, other := b.busy(), c.busy(); mine != other {
		return mine < other
	}
	return b.nextAt < c.nextAt || b.nextAt == c.nextAt && b.key < c.key
}
func (b dueBucket) Moved(i int) { b.index = int32(i) }

// mostSpread is the largest limit passed to spread.
const mostSpread = 250 * time.Millisecond

// spread returns a fraction of limit by the key's hash, so that buckets do not all start together.
func spread(key job.Key, limit time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(key))
	return time.Duration(float64(limit) * float64(h.Sum32()) / (1 << 32))
}

// Place implements [walk.Item].
func (b *bucket) Place() *int { return &b.inList }
