package valve

import (
	"time"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/claimant"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Advance starts the jobs that may start at now in the valve's line, until fence.
//
// Timeouts come first, because ended jobs make room; local workers precede remote ones, which cost
// two more messages; bodies are read last, when it is known which buckets lack a worker.
func (v *Valve) Advance(now, fence pace.Instant) {
	for _, v := range v.line.valves {
		v.arrange(now, fence)
	}
	if now >= fence {
		return
	}
	v.line.start(now)
	for _, v := range v.line.valves {
		v.noteLeft(now)
		v.readAhead(now)
		v.placeChanged(now)
	}
	for _, v := range v.line.valves {
		if v.agenda.competing() == 0 {
			v.total.Rest()
		}
		if !v.contested(now) {
			v.turns.Rest()
		}
		v.offer(now)
	}
	v.line.rest(now)
}

func (v *Valve) arrange(now, fence pace.Instant) {
	for j := v.agenda.timedOut(now); j != nil; j = v.agenda.timedOut(now) {
		v.timeout(j, now)
	}
	for k := v.Crew.Claimants.Silent(now); k != nil; k = v.Crew.Claimants.Silent(now) {
		v.silent(k, now)
	}
	v.lapse(now)
	v.placeChanged(now)
	v.open, v.fence = now < fence, fence
	if !v.open {
		for k := v.Crew.Claims().First(); k != nil; k = v.Crew.Claims().First() {
			v.refuse(k, claimant.Leave)
		}
		return
	}
	v.acted = now
	v.agenda.come(now)
	v.placeChanged(now)
	v.all = gates.Hold{}
}

// next returns the bucket that starts next, and the worker's claim for it, or nil for a call or a
// local worker.
func (v *Valve) next(now pace.Instant) (b *bucket, by *claimer) {
	v.placeChanged(now)
	if len(v.agenda.due)+len(v.agenda.callers) == 0 || !v.admits(now) {
		return nil, nil
	}
	jobs := v.takesTurns() && (v.Crew.Free() > 0 || v.Crew.Claims().Len() > 0)
	if b = v.agenda.caller(jobs); b == nil && v.Crew.Free() > 0 {
		able := func(b *bucket) bool { return v.Crew.MayTake(b.busy()) }
		b = v.agenda.nextDue(v.health.All.Open, able)
	}
	if b == nil {
		return v.match()
	}
	return b, nil
}

func (v *Valve) admits(now pace.Instant) bool {
	v.total.Wake(now)
	v.all = v.holdOfAll(&v.health, now)
	return v.all.Until <= now
}

// start gives a bucket's head to a claimant, or if that is nil to a local worker, unless it is a
// call. Clocks advance at once; a returned job gives its slots back.
func (v *Valve) start(b *bucket, by *claimer, now pace.Instant) {
	if !v.stillWithin(b, now) {
		return
	}
	due, worker := b.nextAt, ""
	j := b.queue.Head()
	v.stock.detach(j)
	switch {
	case j.call != nil:
		j.stage = stageRunning
		v.Crew.Claimants.Take(j.call, claimant.Start, pace.Never)
	case by != nil:
		worker = by.Worker
		fallthrough
	default:
		j.enter(stageRunning)
	}
	j.began, j.holder = now, ""
	b.runs(1)
	b.Part.Checkpoints.Changed = true
	t := b.ticket(j, min(v.fence, v.gates.Quiet.Begins(now)))
	v.charge(j, t, now)
	r := Run{Ref: j.ref(), Stored: j.Stored, Header: j.Header, Body: j.Body,
		Cost: j.Cost, Costs: j.Costs, Attempt: j.Attempts + 1, Crashes: j.crashes, Due: due,
		Number: v.Crew.Begin(j, j.Attempts+1, by, j.call != nil), Shadow: v.try(j, now),
		Worker: worker, Ticket: t}
	r.total = &v.total.Clock
	r.Due = max(due, v.total.Next().Until)
	v.total.Take(j.Cost, now)
	v.taken = v.line.turns.Take(v.taken, j.Cost, v.weight())
	v.takeTurn(b, j.Cost)
	v.health.Started(b.Target, j, now)
	if v.health.All.Open {
		r.Due = max(r.Due, v.health.All.At)
	}
	v.Losses.Started(&b.own().Late, b.pace, &b.clock, b.nextAt, now)
	b.pace.Take(&b.clock, now, j.Cost)
	b.since = now
	b.own().rate.Count(b.pace, pace.Few, now)
	b.own().minute.Count(b.pace, time.Minute, now)
	if b.callers.Started(j.call != nil); j.call != nil {
		r.Call = v.grant(j)
	}
	v.out.Starts = append(v.out.Starts, r)
}

func (v *Valve) timeout(j *heldJob, now pace.Instant) {
	switch {
	case j.stage == stageRunning:
		holder := j.holder
		v.settle(j, record.Outcome{Seq: j.Seq, Kind: record.OutcomeReturned}, now)
		j.holder = holder // a late report counts until the job restarts
	case j.expires <= now:
		v.stock.detach(j)
		v.out.bury(j, queue.ReasonDeadline, "it waited longer than allowed")
	default:
		v.stock.detach(j)
		v.stock.makeReady(j, now)
	}
}

// Idle reports whether Advance has no work until the next event.
func (v *Valve) Idle() bool {
	if len(v.line.valves) > 1 || !v.Crew.Idle() ||
		v.Wake(true) != pace.Never {
		return false
	}
	for _, p := range v.parts {
		if len(p.jobs)+p.legacy.Len()+p.deep.Len() > 0 {
			return false
		}
	}
	return true
}

func (v *Valve) Rested(until pace.Instant) { v.acted = max(v.acted, until) }

// Wake returns when Advance next has work without an event.
func (v *Valve) Wake(open bool) pace.Instant {
	at := min(v.agenda.wake(open), v.lapsesAt(), v.Crew.Wake(open))
	if len(v.agenda.marked) > 0 {
		at = min(at, v.acted)
	}
	if open && v.all.Until > v.acted {
		at = min(at, v.all.Until)
	}
	return at
}
