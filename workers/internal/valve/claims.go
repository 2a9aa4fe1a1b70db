package valve

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/calls"
	"github.com/penstock-mq/penstock/workers/internal/claimant"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

type claimer = claimant.Claimant[*heldJob]

const (
	// claimFor leaves time for the answer to a caller's claim, whose window began before the claim.
	claimFor = 30 * time.Millisecond
	// ahead is the time before a start when it is offered.
	ahead = 20 * time.Millisecond

	// mostCalled bounds the offers and claims of an unpaced bucket, and of a policy with turns.
	mostCalled = 32
)

// Fits reports whether a job that is due, or soon will be, is in no excepted bucket.
func (v *Valve) Fits(except []queue.Key, now pace.Instant) bool {
	v.placeChanged(now)
	excepted, soon := crew.SetOf(except), v.acted.Add(crew.HoldFor)
	takes := func(b *bucket) bool { return !excepted[b.queue.Key] }
	return len(except) == 0 || v.agenda.firstDue(0, takes) != nil ||
		slices.ContainsFunc(v.agenda.sched[:min(len(v.agenda.sched), mostLooks)],
			func(b scheduledBucket) bool {
				return b.nextAt <= soon && b.queue.Len() > 0 && takes(b.bucket)
			})
}

// Offered takes the result of an offer to workers elsewhere. Jobs that find no worker leave their
// turns to calls.
func (v *Valve) Offered(result crew.Offered, now pace.Instant) {
	v.Crew.Offered(result, now)
	if !v.Crew.Declined || v.texts.memory.calls == 0 {
		return
	}
	v.placeChanged(now)
	for _, b := range slices.Clone(v.agenda.due) {
		if b.callers.Len() > 0 {
			b.changed()
		}
	}
}

// offer offers starts that are near, except those of calls in buckets without turns: see summon.
func (v *Valve) offer(now pace.Instant) {
	turns, next := v.nearTurns(now)
	for _, b := range v.agenda.callers[:min(turns, mostCalled, len(v.agenda.callers))] {
		b.Part.calls.Offer(b.callers.Chosen, now)
	}
	if v.Crew.Rests(next, now) {
		return
	}
	switch jobs := v.Crew.Free() <= 0 || len(v.agenda.due) > 0; {
	case len(v.agenda.due) > 0 && (v.health.All.Open || v.takesTurns()):
	case jobs && !v.health.All.Open:
		turns, next = v.agenda.nearStarts(now)
	default:
		turns = 0
	}
	for range v.Crew.Offer(turns, next) {
		v.out.Offers = append(v.out.Offers, v.Policy.Name)
	}
}

// nearTurns returns the number of starts that are near, where all buckets share them, and when it
// may grow.
func (v *Valve) nearTurns(now pace.Instant) (n int, next pace.Instant) {
	if len(v.agenda.due)+len(v.agenda.callers) == 0 || !v.health.All.Open && !v.takesTurns() {
		return 0, pace.Never
	}
	v.admits(now)
	switch at := max(now, v.all.Until); {
	case at > now.Add(ahead):
		return 0, at.Add(-ahead)
	case v.health.All.Open:
		return 1, pace.Never
	default:
		return within(at, v.turnEvery(), now), pace.Never
	}
}

// within returns the number of starts that are near, one every interval from an instant on.
func within(at pace.Instant, every time.Duration, now pace.Instant) int {
	return 1 + int(now.Add(ahead).Since(max(at, now))/max(every, 1))
}

// match returns the first bucket in turn that a worker's claim fits, and that claim; nil: none.
func (v *Valve) match() (b *bucket, by *claimer) {
	fits := func(b *bucket) bool {
		for by = range v.Crew.Claims().All() {
			if !by.Except[b.queue.Key] {
				return true
			}
		}
		return false
	}
	if v.Crew.Claims().Len() > 0 {
		b = v.agenda.nextDue(v.health.All.Open, fits)
	}
	if b != nil {
		fits(b)
	}
	return b, by
}

// refuse tells a worker that it gets no job for its claim.
func (v *Valve) refuse(k *claimer, e claimant.Event) {
	if v.Crew.Claimants.Take(k, e, pace.Never) {
		v.out.Refusals = append(v.out.Refusals, k.Worker)
	}
}

// silent handles a claimant from which the valve heard nothing in time.
func (v *Valve) silent(k *claimer, now pace.Instant) {
	j, c := k.Of, &v.Crew.Claimants
	switch {
	case k.Worker != "":
		v.refuse(k, claimant.Silence)
		return
	case k.State() == claimant.Running:
		o := record.Outcome{Kind: record.OutcomeUncounted}
		if k.Ending != nil {
			o = *k.Ending
		}
		if k.Ending != nil || !v.lingers(k, o, k.Until()) {
			c.Take(k, claimant.Silence, pace.Never)
			v.settle(j, o, now)
		}
		return
	}
	for k.Until() <= now && c.Take(k, claimant.Silence, min(k.Ends, now.Add(callSilence))) {
	}
	if k.State() == claimant.Ended {
		v.stock.dropCall(j)
	}
	j.Bucket.changed()
}

// noCallers is shared and read-only.
var noCallers = &calls.Line[*heldJob]{}

func (b *bucket) calls() *calls.Line[*heldJob] {
	if b.callers == noCallers {
		b.own().callers = &calls.Line[*heldJob]{}
	}
	return b.callers
}

func (b *bucket) unchoose() {
	if k := b.callers.Chosen; k != nil {
		b.callers.Chosen = nil
		b.queue.Remove(&k.Of.Job)
	}
}

// choose makes the next call the head of the ready jobs, where code for heads applies to it. Jobs
// that no worker would take leave their starts to calls.
func (b *bucket) choose(workers bool, wall int64) {
	b.unchoose()
	overdue := b.queue.Overdue(job.MaxPriority, wall)
	if k := b.callers.Choose(workers && b.queue.Len() > 0, overdue); k != nil {
		b.queue.Push(&k.Of.Job)
	}
}

func (b *bucket) callNext() bool { return b.callers.Chosen != nil }

// planCall is plan for a call, which is offered its turn shortly before.
func (v *Valve) planCall(b *bucket, at, now pace.Instant) {
	c := b.callers
	if v.health.All.Open {
		at = max(at, v.health.All.Due())
	}
	claimed := c.Chosen.State() == claimant.Claiming
	if soon := at.Add(-ahead); soon > now && !claimed {
		v.agenda.schedule(b, b.tunedAt(soon, now))
		return
	}
	if !v.takesTurns() {
		b.summon(at, now)
	}
	switch {
	case !claimed && !v.takesTurns(): // placed again by the caller's answer or silence
	case at > now:
		v.agenda.schedule(b, b.tunedAt(at, now))
	default:
		v.agenda.compete(b, at, spotCaller)
	}
}

// summon offers their turns to the calls whose starts are near; the first one's is at an instant.
func (b *bucket) summon(at, now pace.Instant) {
	n := mostCalled
	if b.pace != nil {
		n = min(n, within(at, b.pace.Interval, now))
	}
	if b.concurrency > 0 {
		n = min(n, b.concurrency-b.Running)
	}
	for n -= b.callers.Near(); n > 0 && b.callers.Next() != nil; n-- {
		b.Part.calls.Offer(b.callers.Next(), now)
	}
}

// turnAway returns the time in ms after which a refused call may come back, or what it is while
// that is unknown. Calls that were refused earlier come back earlier, so each is told its own turn.
// That is when half of its wait is left: the bucket does not run dry, and a late forecast does not
// refuse it again.
func (v *Valve) turnAway(k *claimer, most time.Duration, unknown int64, now pace.Instant) int64 {
	wait := millisTo(v.View(now).expectCall(k, true), now)
	if wait == nil {
		return unknown
	}
	again := max(*wait-most.Milliseconds()/2, 1)
	k.Of.Bucket.callers.SendAway(k, now.Add(time.Duration(again)*time.Millisecond))
	return again
}
