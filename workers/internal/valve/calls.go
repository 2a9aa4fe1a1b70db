package valve

import (
	"fmt"
	"math"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/calls"
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
func (p *Part) Hear(c job.Claim, reply func(job.Turn), now pace.Instant) {
	if c.Op == job.OpClaim {
		p.claim(&c, reply, now)
	} else {
		reply(p.hearReport(&c, now))
	}
}

func (p *Part) claim(c *job.Claim, reply func(job.Turn), now pace.Instant) {
	moved := job.Turn{State: job.TurnMoved, Partitions: p.v.Policy.Partitions}
	if p.Quiesced || p.state > partitionLive || c.Partitions != p.v.Policy.Partitions {
		reply(moved)
		return
	}
	if why := p.v.neverPasses(c); why != "" {
		reply(job.Turn{State: job.TurnRefused, Reason: job.RefusedNever, Error: why})
		return
	}
	wait := time.Duration(min(max(c.WaitMS, 0), longestCall.Milliseconds())) * time.Millisecond
	k, is := p.calls.Hear(c)
	switch {
	case is == calls.Old:
		return
	case is == calls.Ended: // a late copy
		reply(job.Turn{State: job.TurnGone})
		return
	case is == calls.Early:
		reply(moved)
		return
	case is == calls.Runs: // it asked again, so it cannot have begun
		p.v.giveBack(k.Of, now)
	case is == calls.Waits && k.State() == claimant.Waiting && !k.Of.Bucket.paused:
		// Callers ask only whether their owner lives, and may be thousands: answer without a walk.
		k.Reply, k.N = reply, c.N
		p.calls.Take(k, claimant.Ask, min(k.Ends, now.Add(callSilence)))
		at := p.v.View(now).expectSlots(0, p.v.without(k.Of.Bucket), k.Takes)
		t := job.Turn{State: job.TurnWaiting, StartMS: millisTo(at, now)}
		if _, down := p.v.health.Down(k.Of.Bucket.Target); down {
			t.Reason = job.RefusedDown
		}
		reply(t)
		return
	}
	isNew := is != calls.Waits
	if isNew {
		k = p.newCall(c, now)
	}
	b := k.Of.Bucket
	b.changed()
	b.unchoose()
	at := p.v.View(now).expectCall(k, false)
	if isNew || b.paused {
		if refused := p.v.refuses(k, at, wait, now); refused != nil {
			reply(*refused)
			p.v.giveBack(k.Of, now)
			return
		}
	}
	k.Reply, k.N, k.Ends = reply, c.N, now.Add(wait+callGrace)
	if at <= now.Add(ahead) {
		p.calls.Take(k, claimant.Claim, min(k.Ends, now.Add(claimFor)))
	} else {
		p.calls.Take(k, claimant.Ask, min(k.Ends, now.Add(callSilence)))
		reply(job.Turn{State: job.TurnWaiting, StartMS: millisTo(at, now)})
	}
}

func (p *Part) newCall(c *job.Claim, now pace.Instant) *claimer {
	b := p.bucket(c.Key, now)
	j := newJob(b)
	k := p.calls.Add(c, j, b.calls(), now)
	j.call, j.Front, j.Stored = k, keyqueue.Alone, p.v.wall.at(k.Came)
	j.Key, j.Seq, j.Priority = b.queue.Key, k.Seq, k.Priority
	j.Cost, j.Costs = k.Takes.Job, k.Takes.Named
	p.v.texts.memory.calls++
	return k
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

func (v *Valve) refuses(k *claimer, at pace.Instant, most time.Duration,
	now pace.Instant) *job.Turn {

	b := k.Of.Bucket
	t := &job.Turn{State: job.TurnRefused, RetryMS: unknownRoom.Milliseconds()}
	probe, down := v.health.Down(b.Target)
	in := max(0, probe.Since(now))
	switch {
	case b.paused:
		t.Reason = job.RefusedPaused
	case v.texts.memory.calls > mostCalls, b.callers.Len() >= int(v.Policy.Capacity):
		t.Reason, t.RetryMS = job.RefusedFull, v.turnAway(k, most, t.RetryMS, now)
	case down && (in > most || b.callers.Len() > 0):
		if t.Reason = job.RefusedDown; !v.health.Probing(b.Target) { // a probe may end at any time
			t.RetryMS = max(in.Milliseconds(), t.RetryMS)
		}
	case at < pace.Never && at > now.Add(most):
		t.Reason = job.RefusedLate
		t.RetryMS = v.turnAway(k, most, ceilMillis(at.Since(now)-most), now)
	default:
		return nil
	}
	return t
}

// grant answers a call that starts, with a lease if its end affects a limit, or while the target is
// in trouble.
func (v *Valve) grant(j *heldJob) *Grant {
	b, k := j.Bucket, j.call
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
		p.calls.Take(k, claimant.Pass, now.Add(v.leaseOf(k))):
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
		p.hearReport(c, now)
	}
}

// unused refunds a call that did not begin, except its slot of the peak, because later starts were
// checked after it.
func (l *startLimits) unused(j *heldJob, now pace.Instant) record.Outcome {
	l.account(j, record.Outcome{Kind: record.OutcomeReturned}, true, now)
	if b := j.Bucket; b.pace != nil {
		b.clock.Due = b.clock.Due.Add(-pace.Times(j.Cost, b.pace.Interval))
	}
	return record.Outcome{Kind: record.OutcomeUncounted}
}

// giveBack ends a call that did not begin.
func (v *Valve) giveBack(j *heldJob, now pace.Instant) {
	switch {
	case !j.Bucket.Part.calls.Settles(j.call):
	case j.stage == stageRunning:
		v.settle(j, v.unused(j, now), now)
	default:
		v.stock.dropCall(j)
	}
}

// hearReport handles a caller's report. A call without a lease, or of a crashed owner, is unknown
// here; its report still pauses its bucket, and its progress counts it again.
func (p *Part) hearReport(c *job.Claim, now pace.Instant) job.Turn {
	switch k, is := p.calls.Hear(c); {
	case is == calls.Old:
	case is == calls.Early:
		k.Report = c
	case c.Op != job.OpSettle:
		if !p.goesOn(k, is, c, now) && c.RetryAfterMS <= 0 {
			return job.Turn{State: job.TurnGone}
		}
	case is == calls.Ended:
	case c.Status != job.SettledReturned:
		p.ends(k, is, c, now)
	case k != nil:
		p.v.giveBack(k.Of, now)
	}
	return job.Turn{State: job.TurnSettled}
}

// goesOn renews a lease, and reports whether there is one.
func (p *Part) goesOn(k *claimer, is calls.Heard, c *job.Claim, now pace.Instant) bool {
	b := p.bucket(c.Key, now)
	p.v.coolDown(b, record.Pause(c.RetryAfterMS), now)
	counts := b.concurrency > 0 || p.v.Policy.CountsArrivals()
	if is == calls.Unknown && counts && p.v.texts.memory.calls < mostCalls {
		k = p.adopt(c, now)
	}
	if k == nil || is == calls.Ended || !p.calls.GoesOn(k, c, now.Add(p.v.leaseOf(k))) {
		return false
	}
	p.v.awaits(k.Of, now)
	if c.Op == job.OpAnswered {
		p.v.answer(k.Of, now, now)
	}
	return true
}

// ends applies the outcome of a call that runs, perhaps by another owner's start.
func (p *Part) ends(k *claimer, is calls.Heard, c *job.Claim, now pace.Instant) {
	if is == calls.Waits { // as a late copy of its claim says
		p.v.giveBack(k.Of, now)
	}
	if is != calls.Runs {
		k = p.adopt(c, now)
	} else if c.Status == job.SettledUnreached {
		p.v.unused(k.Of, now)
	}
	o, err := record.Settled(c.Settlement, p.v.wall.reading(now).Wall)
	if err != nil {
		o.Kind = record.OutcomeFailed // it has ended, and must not hold its place
	}
	p.calls.Report(k, now)
	if (o.Answer != record.AnswerNone || !p.v.lingers(k, o, now)) && p.calls.Settles(k) {
		p.v.settle(k.Of, o, now)
	}
}

// lingers keeps a call running, with its outcome, while its request may arrive without an answer:
// for the longest delay from its end. A pause begins at once.
func (s *settings) lingers(k *claimer, o record.Outcome, ended pace.Instant) bool {
	b, delay, pause := k.Of.Bucket, time.Duration(s.Policy.MaxDelay), o.RetryAfter
	if pause > 0 {
		o.RetryAfter = max(1, pause-delay)
	}
	if !s.Policy.CountsArrivals() || !b.Part.calls.Lingers(k, o, ended.Add(delay)) {
		return false
	}
	s.coolDown(b, pause, ended)
	return true
}

// adopt counts a running call that another owner's start began. If it left without an answer, it
// continues to hold its units.
func (p *Part) adopt(c *job.Claim, now pace.Instant) *claimer {
	k := p.newCall(c, now)
	j := k.Of
	j.stage, j.holder, k.Leased = stageRunning, "elsewhere", c.Op != job.OpSettle
	j.Bucket.runs(1)
	j.Bucket.callers.Running++
	if p.calls.Held(k) {
		p.v.adoptRun(j, late{cost: k.Takes, ends: true, answers: true}, now)
	}
	return k
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
	v.stock.dropCall(j)
}

// leaveCall is for a running call whose end will be reported elsewhere, to an owner that is told if
// it holds units. What it holds of limits that stay is held for another timeout.
func (v *Valve) leaveCall(j *heldJob, now pace.Instant) {
	holds := v.holds(j)
	v.account(j, record.Outcome{Kind: record.OutcomeReturned}, false, now)
	v.awaits(j, now)
	if holds {
		j.Bucket.Part.calls.Leave(j.call, now)
	}
}

func (p *Part) leaveCalls() {
	for _, k := range p.calls.All() {
		if k.State() == claimant.Running {
			p.v.leaveCall(k.Of, p.v.acted)
		}
		p.calls.Take(k, claimant.Leave, pace.Never)
		if k.Reply != nil {
			k.Reply(job.Turn{State: job.TurnMoved, Partitions: p.v.Policy.Partitions})
		}
		p.v.stock.dropCall(k.Of)
	}
	for _, b := range p.buckets {
		if b.callers != noCallers {
			b.callers.Leave()
		}
	}
}
