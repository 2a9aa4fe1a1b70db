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

type stage uint8

const (
	stageWaiting stage = iota // in order
	stageDelayed              // not yet due, or backing off
	stageRunning              // here, or in the process of its holder
	stageSaving
	stageBurying
	stageAcking // its acknowledgement is not confirmed
	stageGone   // no longer in the stream
)

type heldJob struct {
	job.Arrived
	Bucket *bucket

	stage      stage
	generation uint8 // of its last delivery
	raised     bool  // formerly deep
	text
	trials

	// the other process that runs it or crashed; of a waiting job, a process that may still report
	holder  string
	mark    int64 // its lane's arrived slots when it came
	front   int64 // larger if moved to the front later; 0: not moved
	came    int64 // see arrivals
	expires pace.Instant
	at      pace.Instant // of its timer

	call *claimer // nil: a stored job

	charged *charged

	inBucket, inTimers int // −1 outside of both; inBucket is in ready or later
}

type text struct {
	fetching bool
	counted  bool // its large body is held or being read
	headless bool // its headers are not held either
	keyed    bool // if headless: it has an Idempotency-Key
	weight   int32
}

type trials struct {
	noting   bool
	recorded bool // there is an attempt record
	snoozed  bool
	// failures since another job found the target up
	tried   uint16
	snoozes uint16
	doubt
	began     pace.Instant // last start here
	Attempts  int          // those that counted
	crashes   int
	LastError string
	reason    job.Reason
	backoff   time.Duration
}

// doubt counts throttles that may be the job's own fault.
type doubt struct {
	doubts  uint16       // all
	alone   uint16       // the first, and those after other jobs passed
	doubted pace.Instant // the last
}

func (j *heldJob) ref() handle.Ref {
	return handle.Ref{Part: j.Bucket.Part.Partition, Seq: j.Seq, Key: j.Key,
		Stamp: j.Stored.UnixNano()}
}

var oneSlot = quota.Cost{Job: 1}

func (j *heldJob) takes() quota.Cost { return quota.Cost{Job: j.Cost, Named: j.Costs} }

// ordinal numbers its next run, by those that counted as attempts or snoozed it.
func (j *heldJob) ordinal() int { return j.Attempts + int(j.snoozes) + 1 }

func (j *heldJob) ran() bool {
	return j.reason != job.ReasonDeadline && j.reason != job.ReasonMalformed
}

// enter also lists begun jobs, for checkpoints.
func (j *heldJob) enter(next stage) {
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

// rank orders a bucket's jobs. Those that found the target down, or were doubtfully throttled more
// than once, go last, those that operators moved to the front first, the rest by priority, then by
// sequence (law 4). With a priority step, a job counts as having arrived one step earlier per
// level.
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
	tried := j.tried + max(j.doubts, 1) - 1
	return rank{tried, j.front, j.Bucket.placeOf(j.Priority, j.came), j.Seq}
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

// rerank applies a change of the step. No job starts until pending final checks, which use the old
// order, are over.
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

type bucket struct {
	// Fields read by full scans come first, for cache locality.
	*limits
	*near
	key             job.Key
	held            int
	deep, deepLater int32
	waiting         int64
	turns           float64 // virtual time: see order

	Part  *Part
	clock pace.Clock
	lanes []lane
	cool  pace.Instant // end of the target's pause

	inList int
	since  pace.Instant // when it became active or last started a job
	nextAt pace.Instant // in the schedule
	index  int32
	spot   spot
	awake  bool // an inactive bucket earns burst credit
}

// near is the state of a bucket with jobs in memory. Others share an empty one, which saves 300
// bytes.
type near struct {
	ready   heap.Heap[orderedJob] // wait for a slot
	later   heap.Heap[laterJob]
	running int // against concurrency, in any process
	passing passing
	heldBy  string // a start limit

	callers *callers

	last      *Ticket // the last start
	undecided undecided
	stalled   bool // a start was returned; no job starts until all are decided
	noting    int  // crashes being recorded; other jobs wait

	throttles int          // in a row
	passed    pace.Instant // start of the last job or call that was done
	target    *suspicion   // nil: no failures
	learnt    *learnt
	used      *quota.Set   // of the start limits
	fresh     pace.Instant // when to check whether usage counts
	allowed   allowed
	trial     *quota.Trial

	// units of named costs in its ready jobs, beyond their slots
	named map[string]int64

	rate      pace.Average
	minute    pace.Average
	late      lateness
	lastError string

	bodies int
	raised int // ready jobs that were deep
}

// nothingNear is shared and read-only.
var nothingNear = &near{callers: noCallers}

func newBucket(p *Part, key job.Key, l *limits) *bucket {
	return &bucket{key: key, Part: p, limits: l, near: nothingNear}
}

// own returns the bucket's private near, for writing.
func (b *bucket) own() *near {
	if b.near == nothingNear {
		b.near = &near{callers: noCallers}
	}
	return b.near
}

// lane counts slots of one priority.
type lane struct {
	priority int
	waiting  int64  // ready and deep
	arrived  int64  // so far
	trail    *trail // nil: priorities have no step
	line     deep.Line
	later    deep.Line // delayed jobs; 0 without them
}

type trail struct {
	newest int64
	marks  []trailMark
}

type trailMark struct{ at, arrived int64 }

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

// until returns a lower bound of the waiting slots that had arrived by an instant.
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

// countWaiting counts a job that waits for a slot; sign −1 removes it.
func (b *bucket) countWaiting(cost int64, named map[string]int64, sign int64) {
	b.waiting += sign * cost
	for name, n := range named {
		if b.named == nil {
			b.own().named = map[string]int64{}
		}
		if b.named[name] += sign * (n - cost); b.named[name] == 0 {
			delete(b.named, name)
		}
	}
}

// slotsBefore counts the slots before a waiting job: a lower bound once later jobs of its priority
// have started.
func (b *bucket) slotsBefore(j *heldJob) (slots int64) {
	if j.front > 0 {
		return 0
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
	return min(b.callers.Slots, b.callers.perJob*(jobs+1))
}

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
	by    string
}

// allowed is a job that limits allow to start, briefly, because JetStream's clock may change.
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

// runs counts jobs that begin, or with −1 one that ends.
func (b *bucket) runs(n int) {
	b.own().running += n
	b.changed()
}

// notes counts crashes that are being recorded.
func (b *bucket) notes(n int) {
	b.own().noting += n
	b.Part.noting += n
	b.changed()
}

func (b *bucket) busy() int {
	return b.running - b.callers.running
}

func (b *bucket) down() bool { return b.target != nil && b.target.open }

// learnt lowers the rate to a target's apparent limit, and never raises it (law 2).
type learnt struct {
	adapt.State
	under *limits
}

type spot uint8

const (
	spotNone spot = iota
	spotSched
	spotUnread
	spotDue // it lacks a worker
	spotCaller
	spotChanged // see changed
	spotPlacing
)

// scheduledBucket copies the next start, to save cache misses.
type scheduledBucket struct {
	*bucket
	at pace.Instant
}

func (b scheduledBucket) Before(c scheduledBucket) bool {
	return b.at < c.at || b.at == c.at && b.key < c.key
}
func (b scheduledBucket) Moved(i int) { b.index = int32(i) }

// dueBucket orders buckets that compete for workers.
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

const mostSpread = 250 * time.Millisecond

// spread returns a fraction of limit by the key's hash, because buckets must not start together.
func spread(key job.Key, limit time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(key))
	return time.Duration(float64(limit) * float64(h.Sum32()) / (1 << 32))
}

// Place implements [walk.Item].
func (b *bucket) Place() *int { return &b.inList }
