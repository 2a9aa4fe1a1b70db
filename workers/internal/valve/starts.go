package valve

import (
	"slices"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Advance starts what may start at now in the line of the valve, if that is before the fence: what
// it starts has to pass its last check before it. By the next one this process may be another
// drainer, whose lease says nothing of what its former self owned.
//
// The order matters. Time-outs come first, for what ends makes room. Then those that have become
// due are placed, and all that are due compete. Local workers come before those elsewhere, which
// cost two messages more. Bodies are read last, when it is known who could not start for want of a
// worker.
func (v *Valve) Advance(now, fence pace.Instant) {
	for _, v := range v.line.valves {
		v.arrange(now, fence)
	}
	if now >= fence {
		return
	}
	if len(v.line.valves) > 1 {
		v.line.start(now)
	}
	for _, v := range v.line.valves {
		for b := v.next(now); b != nil; b = v.next(now) {
			v.startBy(b, here, now)
		}
		v.lookBack()
		if !v.blocked {
			v.serve(now)
		}
		v.noteLeft(v.blocked, now)
		v.readAhead(now)
	}
	for _, v := range v.line.valves {
		if len(v.due)+len(v.unread) == 0 {
			v.totalAwake = false
		}
		if !v.contested(now) {
			v.turns = v.mostTurns // all begin anew
		}
		v.offer(now)
	}
	v.line.rest(now)
}

// arrange does what comes before any start.
func (v *Valve) arrange(now, fence pace.Instant) {
	for len(v.timers) > 0 && v.timers[0].at <= now {
		v.timeout(v.timers.Remove(0).heldJob, now)
	}
	v.lapse(now)
	v.open, v.fence = now < fence, fence
	v.refuseLate(now, !v.open)
	if !v.open {
		return
	}
	v.acted = now
	for len(v.sched) > 0 && v.sched[0].at <= now {
		v.place(v.sched[0].bucket, now)
	}
	v.gateAt, v.blocked = pace.Never, false
}

// next is the bucket whose turn it is to get a local worker; nil: none gets one now.
func (v *Valve) next(now pace.Instant) *bucket {
	for len(v.due) > 0 {
		if v.blocked = !v.admits(now); v.blocked || v.Free() <= 0 {
			return nil
		}
		b := v.nextDue(v.mayTakeWorker)
		if v.mayTakeWorker(b) {
			return b
		}
		if !v.takesTurns() {
			return nil // the others run more
		}
		v.unplace(b)
		v.overlooked = append(v.overlooked, b)
	}
	return nil
}

// lookBack has those compete again whose turn it was, but which ran too much to get a local worker.
func (v *Valve) lookBack() {
	for _, b := range v.overlooked {
		b.spot = spotDue
		v.due.Push(dueBucket{b})
	}
	v.overlooked = v.overlooked[:0]
}

// here is the claim of a local worker.
const here = -1

// startBy starts the head of a bucket whose turn it is, unless it has to wait after all: here, or
// by a claim of a worker elsewhere.
func (v *Valve) startBy(b *bucket, claim int, now pace.Instant) {
	switch c := &v.claims; {
	case !v.stillWithin(b, now):
	case claim == here:
		v.start(b, now, false)
	default:
		worker := c.held[claim].Worker
		c.held = slices.Delete(c.held, claim, claim+1)
		v.out.Elsewhere = append(v.out.Elsewhere, Elsewhere{v.start(b, now, true), worker})
	}
}

// admits reports whether a bucket that is due may start a job, as far as the breaker and the rate
// of all buckets together go.
//
// Both go by one clock for all buckets, so when the answer is no it is no for all of them. What
// else may hold jobs back belongs here or in place, and into what asks for itself: wanted, held,
// expectBucket, competes and room.
func (v *Valve) admits(now pace.Instant) bool {
	if v.breaker.open {
		if at := v.breaker.due(); at > now {
			v.gateAt = at
			return false
		}
	}
	if v.total != nil && !v.totalAwake {
		v.totalAwake = true
		v.total.Wake(&v.totalClock, now)
	}
	if at, _ := v.nextTurn(now); at > now {
		v.gateAt = at
		return false
	}
	if v.spent() {
		v.gateAt = now.Add(askAgain)
		return false
	}
	return true
}

// start gives the head of a bucket to a worker.
//
// The clocks are moved on now, as planned, and not only when the last check has passed, or the next
// bucket would be decided by a clock that does not know of this start. What comes back gives its
// slots back.
func (v *Valve) start(b *bucket, now pace.Instant, remote bool) Run {
	due := b.nextAt
	j := b.ready[0].heldJob
	v.detach(j)
	j.enter(stageRunning)
	j.began, j.holder = now, ""
	b.own().running++
	b.Part.Changed = true
	v.given++
	t := b.ticket(j, v.fence)
	v.charge(j, t, now)
	r := Run{Ref: j.ref(), Stored: j.Stored, Header: j.Header, Body: j.Body,
		Cost: j.Cost, Costs: j.Costs, Attempt: j.Attempts + 1, Crashes: j.crashes, Due: due,
		Number: v.given, Shadow: v.try(j, now), Ticket: t}
	v.runs[r.Number] = run{heldJob: j, attempt: r.Attempt, remote: remote}
	if v.total != nil {
		r.Due = max(due, v.total.Next(&v.totalClock))
		r.total = &v.totalClock
		v.total.Take(r.total, now, j.Cost)
	}
	v.takeTurn(b, j, t, now)
	if v.breaker.open {
		v.breaker.probe = j
		r.Due = max(r.Due, v.breaker.at)
	}
	if b.down() {
		b.target.probe = j
	}
	v.noteStart(b, now)
	if b.pace != nil {
		b.pace.Take(&b.clock, now, j.Cost)
	}
	b.since = now
	b.own().rate.Count(b.pace, now)
	b.own().minute.CountMinute(b.pace, now)
	if remote {
		v.claims.running++
	} else {
		v.Busy++
		v.out.Starts = append(v.out.Starts, r)
	}
	v.place(b, now)
	return r
}

// timeout acts on a job whose timer went off.
func (v *Valve) timeout(j *heldJob, now pace.Instant) {
	switch {
	case j.stage == stageRunning: // in a process that did not report in time
		holder := j.holder
		v.settle(j, record.Outcome{Seq: j.Seq, Kind: record.OutcomeReturned}, now)
		j.holder = holder // what it reports late is heard until the job starts anew
	case j.expires <= now:
		v.detach(j)
		v.bury(j, job.ReasonDeadline, "it waited longer than it may")
		v.place(j.Bucket, now)
	default:
		v.detach(j)
		v.makeReady(j, now)
	}
}

// Idle reports whether nothing comes of an Advance until the valve is told something: it has no
// jobs, and waits for none. One in a line of several is never idle, since their turns go on.
func (v *Valve) Idle() bool {
	if len(v.line.valves) > 1 || len(v.runs)+len(v.claims.held)+v.claims.offering > 0 ||
		v.Wake(true) != pace.Never {
		return false
	}
	for _, p := range v.parts {
		if len(p.jobs)+len(p.inherited)+p.deep.Len()+p.unseen > 0 {
			return false
		}
	}
	return true
}

// Rested tells a valve that was idle when it could last have started jobs.
func (v *Valve) Rested(until pace.Instant) { v.acted = max(v.acted, until) }

// Wake is when advance has something to do next, never when only another event can change that.
//
// While starts are not allowed only timers count: deadlines pass all the same, and what is due
// waits for the fence.
func (v *Valve) Wake(open bool) pace.Instant {
	at := pace.Never
	if len(v.timers) > 0 {
		at = v.timers[0].at
	}
	at = min(at, v.lapsesAt())
	if open && len(v.sched) > 0 {
		at = min(at, v.sched[0].at)
	}
	if open {
		at = min(at, v.gateAt, v.claims.wake())
	}
	return at
}
