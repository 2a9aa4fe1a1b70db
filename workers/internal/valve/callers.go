package valve

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/heap"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

const (
	callsPerJob = 9 // in a row, before a waiting job
	// mostCalled bounds the offers and claims of an unpaced bucket, and of a policy with turns.
	mostCalled = 32
	// callSilence is when a waiting caller, which asks every two seconds, counts as gone.
	callSilence = 10 * time.Second
)

type callers struct {
	waiting heap.Heap[callJob]
	called  heap.Heap[callJob]
	chosen  *heldJob // head of the ready jobs
	inRow   int64    // calls since the last stored job
	perJob  int64    // calls before the next stored job
	slots   int64
	running int
	away    []absent // refused callers
}

// mostAway bounds the absent callers of a bucket; the others get the time of the last one.
const mostAway = 1 << 12

// absent is a refused caller that will ask again, in a call of its own.
type absent struct {
	back  pace.Instant
	takes quota.Cost
}

func (b *bucket) calls() *callers {
	if b.callers == nil {
		b.own().callers = &callers{perJob: callsPerJob}
	}
	return b.callers
}

// callJob orders calls: claims first.
type callJob struct{ *heldJob }

func (j callJob) Before(k callJob) bool {
	if mine, other := j.call.claim != 0, k.call.claim != 0; mine != other {
		return mine
	}
	return j.rank().before(k.rank())
}
func (j callJob) Moved(i int) { j.inBucket = i }

func (c *callers) len() int {
	n := len(c.waiting) + len(c.called)
	if c.chosen != nil {
		n++
	}
	return n
}

// await queues a call. Place its bucket afterwards.
func (v *Valve) await(j *heldJob, now pace.Instant) {
	b := j.Bucket
	c := b.calls()
	j.enter(stageWaiting)
	if j.call.claim <= now {
		j.call.claim = 0
	}
	j.call.called = j.call.claim != 0
	c.slots += j.Cost
	c.push(j)
	at := min(j.call.ends, now.Add(callSilence))
	if j.call.called {
		at = min(at, j.call.claim)
	}
	v.lookAt(j, at)
}

func (c *callers) push(j *heldJob) {
	if j.call.called {
		c.called.Push(callJob{j})
	} else {
		c.waiting.Push(callJob{j})
	}
}

func (b *bucket) leaves(j *heldJob) {
	c := b.callers
	switch {
	case j.inBucket < 0:
		return
	case c.chosen == j:
		b.unchoose()
		b.leaves(j)
		return
	case j.call.called:
		c.called.Remove(j.inBucket)
	default:
		c.waiting.Remove(j.inBucket)
	}
	c.slots -= j.Cost
}

func (b *bucket) unchoose() {
	if c := b.callers; c != nil && c.chosen != nil {
		j := c.chosen
		c.chosen = nil
		b.ready.Remove(j.inBucket)
		b.countWaiting(j.Cost, j.Costs, -1)
		c.push(j)
	}
}

// overdue reports whether the first stored job has waited a step per level of priority below the
// highest.
func (v *Valve) overdue(b *bucket, now pace.Instant) bool {
	if b.step == 0 || b.queued() == 0 {
		return false
	}
	first, _ := b.firstDeep()
	if len(b.ready) > 0 {
		first = b.ready[0].rank()
	}
	return first.place < b.placeOf(job.MaxPriority, v.wall.at(now).UnixNano())
}

// choose makes the next call the head of the ready jobs, where code for heads applies to it. Every
// tenth start is left to a stored job with a worker, every second one if that is overdue.
func (v *Valve) choose(b *bucket, now pace.Instant) {
	c := b.callers
	if c == nil {
		return
	}
	b.unchoose()
	if c.perJob = callsPerJob; v.overdue(b, now) {
		c.perJob = 1
	}
	if c.len() == 0 ||
		b.queued() > 0 && c.inRow >= c.perJob && (v.Free() > 0 || !v.claims.declined) {
		return
	}
	if len(c.called) > 0 {
		c.chosen = c.called.Remove(0).heldJob
	} else {
		c.chosen = c.waiting.Remove(0).heldJob
	}
	j := c.chosen
	b.ready.Push(orderedJob{j})
	b.countWaiting(j.Cost, j.Costs, 1)
}

func (b *bucket) callNext() bool { return b.callers != nil && b.callers.chosen != nil }

// placeCall is place for a call, which is offered its turn shortly before.
func (v *Valve) placeCall(b *bucket, at, now pace.Instant) {
	c := b.callers
	if v.breaker.open {
		at = max(at, v.breaker.due())
	}
	claimed := c.chosen.call.claim != 0
	if soon := at.Add(-ahead); soon > now && !claimed {
		v.schedule(b, b.tunedAt(soon, now))
		return
	}
	if !v.takesTurns() {
		v.summon(b, at, now)
	}
	switch {
	case !claimed && !v.takesTurns(): // placed again by the caller's answer or silence
	case at > now:
		v.schedule(b, b.tunedAt(at, now))
	default:
		b.nextAt, b.spot = max(at, b.since), spotCaller
		v.callers.Push(dueBucket{b})
	}
}

func (v *Valve) summon(b *bucket, at, now pace.Instant) {
	c, n := b.callers, mostCalled
	if b.pace != nil {
		n = min(n, 1+int(now.Add(ahead).Since(max(at, now))/b.pace.Interval))
	}
	if b.concurrency > 0 {
		n = min(n, b.concurrency-b.running)
	}
	n -= len(c.called)
	if c.chosen.call.called {
		n--
	} else if n > 0 {
		v.offerCall(c.chosen, now)
		n--
	}
	for ; n > 0 && len(c.waiting) > 0; n-- {
		j := c.waiting.Remove(0).heldJob
		v.offerCall(j, now)
		c.push(j)
	}
}

func (v *Valve) offerCall(j *heldJob, now pace.Instant) {
	j.call.called = true
	v.lookAt(j, min(now.Add(ClaimWindow), j.call.ends))
	j.call.reply(job.Turn{State: job.TurnOffer})
}

func (v *Valve) hail(now pace.Instant) {
	v.hailAt = pace.Never
	if len(v.callers) == 0 || !v.takesTurns() {
		return
	}
	at := v.nextTurn(now).until
	if soon := at.Add(-ahead); soon > now {
		v.hailAt = soon
		return
	}
	n := 1 + int(now.Add(ahead).Since(max(at, now))/max(v.turnEvery(), 1))
	for _, b := range v.callers[:min(n, mostCalled, len(v.callers))] {
		if j := b.callers.chosen; !j.call.called {
			v.offerCall(j, now)
		}
	}
}

// caller returns the bucket whose call starts next, or nil without a call or if a due job goes
// first.
func (v *Valve) caller() (first *bucket) {
	for _, b := range v.callers[:min(mostCalled, len(v.callers))] {
		if b.callers.chosen.call.claim != 0 && (first == nil || b.Before(dueBucket{first})) {
			first = b.bucket
		}
	}
	if first != nil && v.takesTurns() && len(v.due) > 0 && v.due[0].Before(dueBucket{first}) &&
		(v.Free() > 0 || len(v.claims.held) > 0) {
		return nil
	}
	return first
}

// againForCalls places buckets whose calls left their turn to a job that finds no worker.
func (v *Valve) againForCalls(now pace.Instant) {
	if v.memory.calls == 0 {
		return
	}
	for _, b := range slices.Clone(v.due) {
		if b.callers != nil && b.callers.len() > 0 {
			v.place(b.bucket, now)
		}
	}
}

// turnAway returns the time in ms after which a refused call may come back; nil: unknown. Calls
// that were refused earlier come back earlier, so each is told its own turn. That is when half of
// its wait is left: the bucket does not run dry, and a late forecast does not refuse it again.
func (v *Valve) turnAway(j *heldJob, most time.Duration, now pace.Instant) *int64 {
	c := j.Bucket.calls()
	c.away = slices.DeleteFunc(c.away, func(a absent) bool { return a.back <= now })
	wait := v.expectCall(j, c.away, now)
	if wait == nil {
		return nil
	}
	again := max(*wait-most.Milliseconds()/2, 1)
	if len(c.away) < mostAway {
		c.away = append(c.away, absent{now.Add(time.Duration(again) * time.Millisecond),
			j.takes()})
	}
	return &again
}
