package valve

import (
	"slices"

	"github.com/penstock-mq/penstock/workers/internal/claimant"
	"github.com/penstock-mq/penstock/workers/internal/heap"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// agenda says when what happens. A bucket is in one of its heaps, or has changed, or waits for an
// event; a job may have a time of its own. What is due when is the valve's to say.
type agenda struct {
	marked  []*bucket // have changed
	sched   heap.Heap[scheduledBucket]
	due     heap.Heap[dueBucket]
	callers heap.Heap[dueBucket]
	unread  heap.Heap[dueBucket] // due soon, without room for a body
	timers  heap.Heap[timedJob]
	lapsed  pace.Instant // when deep jobs whose time has come are looked at
}

// mark takes a bucket that has changed out of its heap, until it is placed.
func (a *agenda) mark(b *bucket) {
	a.lift(b)
	b.spot = spotChanged
	a.marked = append(a.marked, b)
}

// place places each marked bucket by plan, which may mark others. One that plan puts in no heap
// waits for an event.
func (a *agenda) place(plan func(*bucket)) {
	for i := 0; i < len(a.marked); i++ {
		b := a.marked[i]
		b.spot = spotPlacing
		plan(b)
		a.placed(b)
	}
	clear(a.marked)
	a.marked = a.marked[:0]
}

// placed ends the placing of a bucket, which then waits for an event unless it is in a heap.
func (a *agenda) placed(b *bucket) {
	if b.spot == spotPlacing {
		b.spot = spotNone
	}
}

// lift takes a bucket out of its heap. Until placed it cannot change.
func (a *agenda) lift(b *bucket) {
	switch b.spot {
	case spotSched:
		a.sched.Remove(int(b.index))
	case spotDue:
		a.due.Remove(int(b.index))
	case spotUnread:
		a.unread.Remove(int(b.index))
	case spotCaller:
		a.callers.Remove(int(b.index))
	}
	b.spot = spotPlacing
}

func (a *agenda) schedule(b *bucket, at pace.Instant) {
	b.nextAt, b.spot = at, spotSched
	a.sched.Push(scheduledBucket{b, at})
}

// compete puts a bucket that may start into a heap.
func (a *agenda) compete(b *bucket, at pace.Instant, in spot) {
	b.nextAt, b.spot = max(at, b.since), in
	switch in {
	case spotDue:
		a.due.Push(dueBucket{b})
	case spotUnread:
		a.unread.Push(dueBucket{b})
	case spotCaller:
		a.callers.Push(dueBucket{b})
	}
}

// leave removes what is of a partition.
func (a *agenda) leave(p *Part) {
	others := func(b dueBucket) bool { return b.Part != p }
	a.marked = slices.DeleteFunc(a.marked, func(b *bucket) bool { return b.Part == p })
	a.sched.Retain(func(b scheduledBucket) bool { return b.Part != p })
	a.due.Retain(others)
	a.unread.Retain(others)
	a.callers.Retain(others)
	a.timers.Retain(func(j timedJob) bool { return j.Bucket.Part != p })
}

// lookAt sets when a job's time comes.
func (a *agenda) lookAt(j *heldJob, at pace.Instant) {
	j.At = at
	if j.inTimers >= 0 {
		a.timers.Fix(j.inTimers)
	} else {
		a.timers.Push(timedJob{j})
	}
}

// lookAway forgets a job's time.
func (a *agenda) lookAway(j *heldJob) {
	if j.inTimers >= 0 {
		a.timers.Remove(j.inTimers)
	}
}

// timedOut returns and forgets a job whose time has come, or returns nil.
func (a *agenda) timedOut(now pace.Instant) *heldJob {
	if len(a.timers) == 0 || a.timers[0].At > now {
		return nil
	}
	return a.timers.Remove(0).heldJob
}

// come marks the scheduled buckets whose time has come.
func (a *agenda) come(now pace.Instant) {
	for len(a.sched) > 0 && a.sched[0].at <= now {
		a.mark(a.sched[0].bucket)
	}
}

// wake returns when a job's time comes or, if starts are open, that of a scheduled bucket.
func (a *agenda) wake(open bool) pace.Instant {
	at := pace.Never
	if len(a.timers) > 0 {
		at = a.timers[0].At
	}
	if open && len(a.sched) > 0 {
		at = min(at, a.sched[0].at)
	}
	return at
}

// competing counts the buckets that may start, but for a worker, caller or text.
func (a *agenda) competing() int { return len(a.due) + len(a.unread) + len(a.callers) }

// nearStarts returns the number of jobs whose starts are near, and when it may grow.
func (a *agenda) nearStarts(now pace.Instant) (n int, next pace.Instant) {
	n, next = len(a.due), pace.Never
	for _, b := range a.sched[:min(len(a.sched), mostLooks)] {
		switch {
		case b.queue.Near() == 0, b.callNext() && b.queue.Len() == 1:
		case b.nextAt > now.Add(ahead):
			next = min(next, b.nextAt.Add(-ahead))
		case b.pace == nil:
			n++
		default:
			n += min(b.queue.Len(), within(b.nextAt, b.pace.Interval, now))
		}
	}
	return n, next
}

// nextDue returns the able due bucket whose turn it is, or nil. Of probes that is the one that has
// waited longest: a hanging one must not have each.
func (a *agenda) nextDue(probes bool, able func(*bucket) bool) (longest *bucket) {
	if !probes {
		return a.firstDue(0, able)
	}
	for _, b := range a.due {
		if able(b.bucket) && (longest == nil || b.nextAt < longest.nextAt ||
			b.nextAt == longest.nextAt && b.queue.Key < longest.queue.Key) {
			longest = b.bucket
		}
	}
	return longest
}

// firstDue returns the first able due bucket, in the heap below i, or nil.
func (a *agenda) firstDue(i int, able func(*bucket) bool) *bucket {
	switch {
	case i >= len(a.due):
		return nil
	case able(a.due[i].bucket):
		return a.due[i].bucket
	}
	x, y := a.firstDue(2*i+1, able), a.firstDue(2*i+2, able)
	if x == nil || y != nil && (dueBucket{y}).Before(dueBucket{x}) {
		return y
	}
	return x
}

// caller returns the bucket whose call starts next; nil without a claimed one, or if a due job that
// finds a worker goes first.
func (a *agenda) caller(jobs bool) (first *bucket) {
	for _, b := range a.callers[:min(mostCalled, len(a.callers))] {
		if b.callers.Chosen.State() == claimant.Claiming &&
			(first == nil || b.Before(dueBucket{first})) {
			first = b.bucket
		}
	}
	if first != nil && jobs && len(a.due) > 0 && a.due[0].Before(dueBucket{first}) {
		return nil
	}
	return first
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
	return b.at < c.at || b.at == c.at && b.queue.Key < c.queue.Key
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
	return b.nextAt < c.nextAt || b.nextAt == c.nextAt && b.queue.Key < c.queue.Key
}
func (b dueBucket) Moved(i int) { b.index = int32(i) }

type timedJob struct{ *heldJob }

func (j timedJob) Before(k timedJob) bool { return j.At < k.At || j.At == k.At && j.Seq < k.Seq }
func (j timedJob) Moved(i int)            { j.inTimers = i }
