package valve

import (
	"hash/fnv"
	"time"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/adapt"
	"github.com/penstock-mq/penstock/workers/internal/calls"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/keyqueue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
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
	keyqueue.Job[*heldJob]
	Bucket *bucket

	stage      stage
	generation uint8 // of its last delivery
	text
	trials

	// the other process that runs it or crashed; of a waiting job, a process that may still report
	holder  string
	expires pace.Instant

	call *claimer // nil: a stored job

	charged *charged

	inTimers int // or −1
}

func newJob(b *bucket) *heldJob {
	j := &heldJob{Bucket: b, inTimers: -1}
	j.Of = j
	return j
}

// behind returns what it is ordered by first: jobs that found the target down, or were doubtfully
// throttled more than once, go last.
func (j *heldJob) behind() uint16 { return j.tried + max(j.doubts, 1) - 1 }

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
	reason    queue.Reason
	backoff   time.Duration
}

// recall continues the trials of a former owner.
func (t *trials) recall(r record.Attempt, recorded bool) {
	t.Attempts, t.crashes, t.snoozes = r.Attempts, r.Crashes, r.Snoozes
	t.LastError, t.recorded = r.LastError, recorded
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
	return j.reason != queue.ReasonDeadline && j.reason != queue.ReasonMalformed
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

// rerank applies a change of the step. No job starts until pending final checks, which use the old
// order, are over.
func (b *bucket) rerank() {
	b.queue.Reorder()
	if b.near != nothingNear {
		b.stalled = true
	}
}

type bucket struct {
	// Fields read by full scans come first, for cache locality.
	*limits
	*near
	queue keyqueue.Queue[*heldJob]
	turns float64 // virtual time: see gates.Turns

	Part  *Part
	clock pace.Clock

	since  pace.Instant // when it became active or last started a job
	nextAt pace.Instant // in the schedule
	inList int32
	index  int32
	held   int32 // jobs in the stream
	spot   spot
	awake  bool // an inactive bucket earns burst credit
}

// near is the state of a bucket with jobs in memory. Others share an empty one, which saves 300
// bytes.
type near struct {
	gates.State

	callers *calls.Line[*heldJob]

	last      *Ticket // the last start
	undecided undecided
	stalled   bool // a start was returned; no job starts until all are decided

	passed pace.Instant // start of the last job or call that was done
	learnt *learnt
	fresh  pace.Instant // when to check whether usage counts
	trial  *quota.Trial

	rate      pace.Average
	minute    pace.Average
	lastError string

	bodies int
}

// nothingNear is shared and read-only.
var nothingNear = &near{callers: noCallers}

func newBucket(p *Part, key queue.Key, l *limits) *bucket {
	return &bucket{queue: keyqueue.New(key, p.deep), Part: p, limits: l,
		near: nothingNear}
}

// own returns the bucket's private near, for writing.
func (b *bucket) own() *near {
	if b.near == nothingNear {
		b.near = &near{callers: noCallers}
	}
	return b.near
}

// slotsFor counts the slots before a job that arrives now, calls included.
func (b *bucket) slotsFor(priority int, now int64) int64 {
	slots := b.queue.SlotsFor(priority, now)
	return slots + b.slotsOfCalls(slots)
}

func (b *bucket) jobsBefore(j *heldJob) int {
	return b.queue.JobsIn(b.queue.SlotsBefore(&j.Job))
}

func (b *bucket) slotsOfCalls(jobs int64) int64 {
	return b.callers.SlotsBefore(jobs)
}

func (b *bucket) passes(now pace.Instant) pace.Instant {
	if b.Passing.Until <= now || b.queue.Near() == 0 {
		return 0
	}
	return b.Passing.Of(true, b.queue.Head().Seq, now)
}

func (b *bucket) blocked() bool {
	return b.paused || b.concurrency > 0 && b.Running >= b.concurrency
}

// runs counts jobs that begin, or with −1 one that ends.
func (b *bucket) runs(n int) {
	b.own().Running += n
	b.changed()
}

// notes counts crashes that are being recorded.
func (b *bucket) notes(n int) {
	b.own().Noting += n
	b.Part.noting += n
	b.changed()
}

func (b *bucket) busy() int {
	return b.Running - b.callers.Running
}

// learnt lowers the rate to a target's apparent limit, and never raises it (law 2).
type learnt struct {
	adapt.State
	under *limits
}

const mostSpread = 250 * time.Millisecond

// spread returns a fraction of limit by the key's hash, because buckets must not start together.
func spread(key queue.Key, limit time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(key))
	return time.Duration(float64(limit) * float64(h.Sum32()) / (1 << 32))
}

// Place implements [walk.Item].
func (b *bucket) Place() *int32 { return &b.inList }
