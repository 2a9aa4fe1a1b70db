package valve

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/heap"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// agenda says when what happens. A bucket is in one of its heaps, or has changed, or waits for an
// event.
type agenda struct {
	marked  []*bucket // have changed
	sched   heap.Heap[scheduledBucket]
	due     heap.Heap[dueBucket]
	callers heap.Heap[dueBucket]
	unread  heap.Heap[dueBucket] // due soon, without room for a body
	timers  heap.Heap[timedJob]
	lapsed  pace.Instant
}

// changed takes a bucket out of the schedule until placeChanged. Whatever changes a bucket calls
// it; whatever reads the schedule calls placeChanged first.
func (b *bucket) changed() {
	if b.Part.state != partitionLive || b.spot >= spotChanged {
		return
	}
	v := b.Part.v
	v.lift(b)
	b.spot = spotChanged
	v.marked = append(v.marked, b)
}

// placeChanged schedules the next event of each changed bucket.
func (v *Valve) placeChanged(now pace.Instant) {
	for i := 0; i < len(v.marked); i++ {
		b := v.marked[i]
		b.spot = spotPlacing
		v.plan(b, now)
		b.placed()
	}
	clear(v.marked)
	v.marked = v.marked[:0]
}

// placed ends the placing of a bucket, which then waits for an event unless it is in a heap.
func (b *bucket) placed() {
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

// plan schedules a bucket's next event: a start, the reading of a body, or its removal.
func (v *Valve) plan(b *bucket, now pace.Instant) {
	v.choose(b, now)
	for _, t := range v.common {
		if t.first == b {
			t.first = nil
		}
	}
	v.tune(b, now)
	b.cooled(now)
	if b.queue.Len() == 0 {
		b.note(gates.Hold{}, now)
		b.awake = false
		if int(b.held)+b.Running == 0 { // runs of a recreated stream count until they end
			v.forget(b, now)
		}
		return
	}
	if h := gates.Shut.Next(v.view(b, now)); h.Shut() {
		b.note(h, now)
		if b.blocked() {
			b.awake = false
			v.texts.unload(b)
		}
		return
	}
	if b.stalled {
		if b.undecided.any() {
			v.schedule(b, now.Add(time.Millisecond))
			return
		}
		b.stalled, b.last = false, nil
	}
	if !b.awake {
		b.awake, b.since = true, now
		b.turns = max(b.turns, v.turns.Now) // turns are not earned while idle
		if b.pace != nil {
			b.pace.Wake(&b.clock, now)
			if behind := max(0, now.Since(b.clock.Due)); behind != b.Late.Behind {
				b.own().Late.Behind = behind
			}
		}
	}
	if b.queue.Near() > 0 {
		v.surface(b, now)
	}
	h := v.gates.Next(v.view(b, now))
	b.note(h, now)
	b.awake = h.By != gates.ByQuiet // which earns no credit
	if b.callNext() {
		v.planCall(b, h.Until, now)
		return
	}
	at, read := h.Until, readAt(h.Until)
	if read > now {
		v.texts.unload(b)
	}
	head := b.queue.Head()
	switch {
	case head != nil && head.fetching && head.counted:
		return
	case (head == nil || head.Lean) && read > now:
		v.schedule(b, b.tunedAt(read, now))
	case head == nil || head.Lean:
		v.compete(b, at, spotUnread)
	default:
		if read <= now {
			v.readOn(b)
		}
		if at > now {
			v.schedule(b, b.tunedAt(at, now))
			return
		}
		v.compete(b, at, spotDue)
	}
}

// cooled ends a cool-down, without a burst.
func (b *bucket) cooled(now pace.Instant) {
	if b.Cool > now || b.Cool == 0 {
		return
	}
	b.pace.Hold(&b.clock, b.Cool)
	b.Cool = 0
}

// freshAt returns when to check whether usage of limits still counts. Checks are spread, because
// clock windows end for all buckets at once.
func (l *startLimits) freshAt(b *bucket, now pace.Instant) pace.Instant {
	if b.Used != nil && b.fresh <= now {
		in := l.quota.FreshIn(b.Used, l.wall.reading(now))
		b.fresh = now.Add(in + spread(b.queue.Key, min(in/64, time.Second)))
	}
	return b.fresh
}

// mostRates bounds the buckets whose rates are kept while idle.
const mostRates = 10_000

// forget removes an empty bucket once it equals a new one, because its next job must obey its
// clock, cool-down, breaker and turns.
func (v *Valve) forget(b *bucket, now pace.Instant) {
	if b.inList < 0 {
		return
	}
	at := max(b.Cool, b.pace.FreshAt(&b.clock))
	if b.learnt != nil {
		at = max(at, pace.Instant(b.learnt.Until(b.learnt.under.pace.Rate.PerSecond())))
	}
	at = max(at, v.freshAt(b, now))
	if v.candidates != nil {
		at = max(at, now.Add(v.candidates.FreshIn(b.trial, v.wall.reading(now))))
	}
	if b.Target.Down() {
		at = max(at, b.Target.At)
	}
	if len(b.Part.buckets) < mostRates {
		at = max(at, b.rate.Told(b.pace))
	}
	if ahead := b.turns - v.turns.Now; v.takesTurns() && ahead > 0 {
		// Waiting buckets catch up with its turns in about as many starts.
		wait := max(1, ahead*float64(len(v.due))) * float64(v.turnEvery())
		at = max(at, now.Add(time.Duration(min(wait, float64(pace.Forever)))))
	}
	if at > now {
		v.schedule(b, at)
		return
	}
	v.health.Forget(b.Target)
	v.remember(b, nil)
	b.queue.Close()
	v.texts.memory.near -= bucketBytes
	delete(b.Part.buckets, b.queue.Key)
	b.Part.list.Remove(b)
}
