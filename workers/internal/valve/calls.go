package valve

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/claimant"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/keyqueue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A call is a job that is not stored: its caller waits in the bucket for a start, and makes the
// request itself.
//
// Each question claims a start, valid for the claim's window by the caller's clock. Without an
// answer it asks again, which finds the partition's next owner, and states its age, which keeps its
// place there.

const (
	mostCalls = 1 << 16
	// callGrace is the time that the valve waits longer than its caller, at most longestCall.
	callGrace, longestCall = time.Second, 10 * time.Minute
	// callSilence is when a waiting caller, which asks every two seconds, counts as gone.
	callSilence = 10 * time.Second
	longestID   = 64
	// unusedWithin is the lease of a call whose end affects no limit: a late start may be given
	// back.
	unusedWithin = 250 * time.Millisecond
)

type Grant struct {
	reply               func(job.Turn)
	leaseMS, maxDelayMS int64
}

func (g *Grant) Tell() {
	g.reply(job.Turn{State: job.TurnGo, LeaseMS: g.leaseMS, MaxDelayMS: g.maxDelayMS})
}

func (g *Grant) Outcome(passed bool) record.Outcome {
	if !passed {
		return record.Outcome{Kind: record.OutcomeReturned}
	}
	return record.Outcome{Kind: record.OutcomeProgress}
}

// Hear handles a caller's message.
func (v *Valve) Hear(p *Part, c job.Claim, reply func(job.Turn), now pace.Instant) {
	if c.Op == job.OpClaim {
		v.claim(p, &c, reply, now)
	} else {
		reply(v.hearReport(p, &c, now))
	}
}

func (v *Valve) claim(p *Part, c *job.Claim, reply func(job.Turn), now pace.Instant) {
	moved := job.Turn{State: job.TurnMoved, Partitions: v.Policy.Partitions}
	if p.Quiesced || p.state > partitionLive || c.Partitions != v.Policy.Partitions {
		reply(moved)
		return
	}
	if why := v.neverPasses(c); why != "" {
		reply(job.Turn{State: job.TurnRefused, Reason: job.RefusedNever, Error: why})
		return
	}
	wait := time.Duration(min(max(c.WaitMS, 0), longestCall.Milliseconds())) * time.Millisecond
	j := p.calls[c.ID]
	switch {
	case j == nil && p.ended.Has(c.ID): // a late copy
		reply(job.Turn{State: job.TurnGone})
		return
	case j == nil:
	case c.N <= j.call.N:
		return
	case j.call.State() == claimant.Granted:
		reply(moved)
		return
	case j.call.State() == claimant.Running: // it asked again, so it cannot have begun
		v.giveBack(j, now)
		j = nil
	case j.call.State() == claimant.Waiting && !j.Bucket.paused:
		// Callers ask only whether their owner lives, and may be thousands: answer without a walk.
		j.call.Reply, j.call.N = reply, c.N
		v.Crew.Claimants.Take(j.call, claimant.Ask, min(j.call.Ends, now.Add(callSilence)))
		t := job.Turn{State: job.TurnWaiting,
			StartMS: v.expectSlots(0, v.without(j.Bucket), j.takes(), now)}
		if _, down := v.health.Down(j.Bucket.Target); down {
			t.Reason = job.RefusedDown
		}
		reply(t)
		return
	}
	isNew := j == nil
	if isNew {
		j = v.newCall(p, c, now)
		p.callSeq++
		age := time.Duration(min(max(c.AgeMS, 0), time.Duration(now).Milliseconds())) *
			time.Millisecond
		j.Seq = firstCall | uint64((time.Duration(now)-age).Milliseconds())<<20 |
			p.callSeq&(1<<20-1)
		j.call.Seq, j.Stored = j.Seq, v.wall.reading(now).Wall.Add(-age)
	}
	b, k := j.Bucket, j.call
	b.changed()
	b.unchoose()
	in := v.expectCall(j, nil, now)
	if isNew || b.paused {
		if refused := v.refuses(j, in, wait, now); refused != nil {
			reply(*refused)
			v.giveBack(j, now)
			return
		}
	}
	k.Reply, k.N, k.Ends = reply, c.N, now.Add(wait+callGrace)
	if in != nil && *in <= ahead.Milliseconds() {
		v.Crew.Claimants.Take(k, claimant.Claim, min(k.Ends, now.Add(claimFor)))
	} else {
		v.Crew.Claimants.Take(k, claimant.Ask, min(k.Ends, now.Add(callSilence)))
		reply(job.Turn{State: job.TurnWaiting, StartMS: in})
	}
}

func (v *Valve) newCall(p *Part, c *job.Claim, now pace.Instant) *heldJob {
	b := p.bucket(c.Key, now)
	j := newJob(b)
	j.Front = keyqueue.Alone
	j.Key, j.Cost, j.Costs = b.queue.Key, max(c.Cost, 1), c.Costs
	j.Priority = min(max(c.Priority, job.MinPriority), job.MaxPriority)
	j.call = claimant.New(j, &b.calls().Queue)
	j.call.ID, j.call.Cost, j.call.Priority = c.ID, j.Cost, j.Priority
	if p.calls == nil {
		p.calls = map[string]*heldJob{}
	}
	p.calls[c.ID] = j
	v.texts.memory.calls++
	return j
}

func (s *settings) neverPasses(c *job.Claim) string {
	if len(c.ID) == 0 || len(c.ID) > longestID || len(c.Costs) > policy.MaxLimits {
		return fmt.Sprintf("want an id of 1 to %d bytes and at most %d costs", longestID,
			policy.MaxLimits)
	}
	for name, n := range c.Costs {
		if n < 1 || n > math.MaxInt32 || len(name) == 0 || len(name) > job.MaxCostName {
			return fmt.Sprintf("%.50s: want a number from 1 to %d", job.CostHeader(name),
				math.MaxInt32)
		}
	}
	return s.impossible(max(c.Cost, 1), c.Costs)
}

// firstCall is the least sequence of a call. Calls are ordered by their first question.
const firstCall = 1 << 63

func (v *Valve) refuses(j *heldJob, wait *int64, most time.Duration,
	now pace.Instant) *job.Turn {

	b := j.Bucket
	t := &job.Turn{State: job.TurnRefused, RetryMS: unknownRoom.Milliseconds()}
	probe, down := v.health.Down(b.Target)
	in := max(0, probe.Since(now))
	switch {
	case b.paused:
		t.Reason = job.RefusedPaused
	case v.texts.memory.calls > mostCalls, b.callers.Len() >= int(v.Policy.Capacity):
		t.Reason = job.RefusedFull
		if turn := v.turnAway(j, most, now); turn != nil {
			t.RetryMS = *turn
		}
	case down && (in > most || b.callers.Len() > 0):
		if t.Reason = job.RefusedDown; !v.health.Probing(b.Target) { // a probe may end at any time
			t.RetryMS = max(in.Milliseconds(), t.RetryMS)
		}
	case wait != nil && *wait > most.Milliseconds():
		t.Reason, t.RetryMS = job.RefusedLate, *wait-most.Milliseconds()
		if turn := v.turnAway(j, most, now); turn != nil {
			t.RetryMS = *turn
		}
	default:
		return nil
	}
	return t
}

// expectCall returns the ms until a call starts, after those in the bucket and away; nil:
// unpredictable.
func (v *Valve) expectCall(j *heldJob, away []absent, now pace.Instant) *int64 {
	b, calls := j.Bucket, &group{of: j.Bucket}
	for _, other := range away {
		calls.add(other.takes)
	}
	for k := range b.callers.All() {
		if k.Precedes(j.call) {
			calls.add(k.Of.takes())
		}
	}
	slots := calls.slots
	if b.queue.Waiting() > 0 {
		slots += (slots + b.callers.inRow) / b.callers.perJob
	}
	at, down := v.health.Down(b.Target)
	if !down {
		return v.expectSlots(slots, calls, j.takes(), now)
	}
	if at = max(at, v.holdOf(b, now).Until); slots > 0 || at == pace.Never {
		return nil
	}
	ms := ceilMillis(max(0, at.Since(now)))
	return &ms
}

// grant answers a call that starts, with a lease if its end affects a limit, or while the target is
// in trouble.
func (v *Valve) grant(j *heldJob) *Grant {
	b, k := j.Bucket, j.call
	b.callers.inRow++
	b.callers.running++
	k.Leased = b.concurrency > 0 || v.quota != nil || len(v.common) > 0 ||
		v.health.Troubled(b.Target) || b.Throttles > 0 || b.lastError != ""
	g := &Grant{reply: k.Reply, maxDelayMS: ceilMillis(time.Duration(v.Policy.MaxDelay))}
	if k.Leased {
		g.leaseMS = v.leaseOf(k).Milliseconds()
	}
	return g
}

// leaseOf returns the time to the next report of a running call.
func (s *settings) leaseOf(k *claimer) time.Duration {
	if !k.Leased {
		return unusedWithin
	}
	return time.Duration(s.Policy.Timeout)
}

func (v *Valve) decided(j *heldJob, o record.Outcome, now pace.Instant) {
	p, k := j.Bucket.Part, j.call
	switch {
	case p.state > partitionLive && o.Kind == record.OutcomeReturned:
		v.account(j, o, true, now)
		return
	case p.state > partitionLive:
		v.leaveCall(j, now)
		return
	case o.Kind == record.OutcomeProgress &&
		v.Crew.Claimants.Take(k, claimant.Pass, now.Add(v.leaseOf(k))):
		if !k.Leased {
			k.Reply = nil
		}
	default:
		if o.Kind == record.OutcomeProgress { // it began as its partition left
			v.leaveCall(j, now)
		}
		p.Checkpoints.Changed = true
		v.settle(j, o, now)
	}
	if c := k.Report; c != nil {
		k.Report = nil
		v.hearReport(p, c, now)
	}
}

// unused refunds a call that did not begin, except its slot of the peak, because later starts were
// checked after it.
func (v *Valve) unused(j *heldJob, now pace.Instant) record.Outcome {
	v.account(j, record.Outcome{Kind: record.OutcomeReturned}, true, now)
	if b := j.Bucket; b.pace != nil {
		b.clock.Due = b.clock.Due.Add(-pace.Times(j.Cost, b.pace.Interval))
	}
	return record.Outcome{Kind: record.OutcomeUncounted}
}

// giveBack ends a call that did not begin.
func (v *Valve) giveBack(j *heldJob, now pace.Instant) {
	switch {
	case j == nil || !v.Crew.Claimants.Take(j.call, claimant.Settle, pace.Never):
	case j.stage == stageRunning:
		v.settle(j, v.unused(j, now), now)
	default:
		v.dropCall(j)
	}
}

// hearReport handles a caller's report. A call without a lease, or of a crashed owner, is unknown
// here; its report still pauses its bucket, and its progress counts it again.
func (v *Valve) hearReport(p *Part, c *job.Claim, now pace.Instant) job.Turn {
	j, settled := p.calls[c.ID], job.Turn{State: job.TurnSettled}
	switch {
	case j != nil && (c.N < j.call.N || j.call.State() == claimant.Granted):
		if c.N >= j.call.N {
			j.call.Report = c
		}
	case c.Op != job.OpSettle:
		if !v.goesOn(p, j, c, now) && c.RetryAfterMS <= 0 {
			return job.Turn{State: job.TurnGone}
		}
	case c.Status == job.SettledReturned:
		v.giveBack(j, now)
	default:
		v.ends(p, j, c, now)
	}
	return settled
}

// goesOn renews a lease, and reports whether there is one.
func (v *Valve) goesOn(p *Part, j *heldJob, c *job.Claim, now pace.Instant) bool {
	b := p.bucket(c.Key, now)
	v.coolDown(b, record.Pause(c.RetryAfterMS), now)
	counts := b.concurrency > 0 || v.Policy.CountsArrivals()
	if j == nil && counts && v.texts.memory.calls < mostCalls && !p.ended.Has(c.ID) {
		j = v.adopt(p, c, now)
	}
	event := claimant.Progress
	if c.Op == job.OpAnswered {
		event = claimant.Answered
	}
	if j == nil || p.ended.Has(c.ID) ||
		!v.Crew.Claimants.Take(j.call, event, now.Add(v.leaseOf(j.call))) {
		return false
	}
	j.call.Ending = nil
	v.awaits(j, now)
	if event == claimant.Answered {
		j.call.Answers = true
		v.answer(j, now, now)
	}
	return true
}

// ends applies the outcome of a call that runs, perhaps by another owner's start.
func (v *Valve) ends(p *Part, j *heldJob, c *job.Claim, now pace.Instant) {
	if p.ended.Has(c.ID) {
		return
	}
	if j != nil && j.stage == stageWaiting { // as a late copy of its claim says
		v.giveBack(j, now)
		j = nil
	}
	if j == nil {
		j = v.adopt(p, c, now)
	} else if c.Status == job.SettledUnreached {
		v.unused(j, now)
	}
	o, err := record.Settled(c.Settlement, v.wall.reading(now).Wall)
	if err != nil {
		o.Kind = record.OutcomeFailed // it has ended, and must not hold its place
	}
	switch {
	case o.Answer == record.AnswerNone && v.lingers(j, o, now):
		p.ended.Add(c.ID, now)
	case v.Crew.Claimants.Take(j.call, claimant.Settle, pace.Never):
		v.settle(j, o, now)
		p.ended.Add(c.ID, now)
	}
}

// lingers keeps a call running, with its outcome, while its request may arrive without an answer:
// for the longest delay from its end. A pause begins at once.
func (v *Valve) lingers(j *heldJob, o record.Outcome, ended pace.Instant) bool {
	delay := time.Duration(v.Policy.MaxDelay)
	until := ended.Add(delay)
	if !v.Policy.CountsArrivals() || j.call.Answers ||
		!v.Crew.Claimants.Take(j.call, claimant.Progress, until) {
		return false
	}
	if o.RetryAfter > 0 {
		v.coolDown(j.Bucket, o.RetryAfter, ended)
		o.RetryAfter = max(1, o.RetryAfter-delay)
	}
	o.Answer = record.AnswerSeen // as of then
	j.call.Ending = &o
	return true
}

// adopt counts a running call that another owner's start began. If it left without an answer, it
// continues to hold its units.
func (v *Valve) adopt(p *Part, c *job.Claim, now pace.Instant) *heldJob {
	j := v.newCall(p, c, now)
	j.stage, j.holder, j.call.Leased = stageRunning, "elsewhere", c.Op != job.OpSettle
	j.Bucket.runs(1)
	j.Bucket.callers.running++
	if p.open.Take(c.ID) {
		v.adoptRun(j, late{cost: j.takes(), ends: true, answers: true}, now)
	}
	return j
}

func (v *Valve) endCall(j *heldJob, o record.Outcome, now pace.Instant) {
	b := j.Bucket
	switch o.Kind {
	case record.OutcomeDone:
		b.own().Throttles = 0
	case record.OutcomeThrottled:
		v.throttle(j, o.RetryAfter, j.began > 0, now)
	case record.OutcomeFailed, record.OutcomePermanent:
		j.LastError = o.Error
		switch {
		case !o.Unavailable:
		case j.call.Leased:
			v.down(j, gates.MostSuspectJobs, now)
		case b.Target == nil: // successes without leases go unreported, so later calls get leases
			b.own().Target = &gates.Target{}
		}
	}
	v.dropCall(j)
}

func (v *Valve) dropCall(j *heldJob) {
	v.detach(j)
	delete(j.Bucket.Part.calls, j.call.ID)
	v.texts.memory.calls--
	j.stage = stageGone
}

// leaveCall is for a running call whose end will be reported elsewhere, to an owner that is told if
// it holds units. What it holds of limits that stay is held for another timeout.
func (v *Valve) leaveCall(j *heldJob, now pace.Instant) {
	holds := v.holds(j)
	v.account(j, record.Outcome{Kind: record.OutcomeReturned}, false, now)
	v.awaits(j, now)
	if holds {
		j.Bucket.Part.open.Add(j.call.ID, now)
	}
}

func (v *Valve) leaveCalls(p *Part) {
	for _, id := range slices.Sorted(maps.Keys(p.calls)) { // a seed must reproduce a run
		j := p.calls[id]
		if j.call.State() == claimant.Running {
			v.leaveCall(j, v.acted)
		}
		v.Crew.Claimants.Take(j.call, claimant.Leave, pace.Never)
		if j.call.Reply != nil {
			j.call.Reply(job.Turn{State: job.TurnMoved, Partitions: v.Policy.Partitions})
		}
		v.dropCall(j)
	}
	for _, b := range p.buckets {
		if b.callers != noCallers {
			b.own().callers = &callers{running: b.callers.running, perJob: callsPerJob}
		}
	}
}
