package valve

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/heap"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A call is a job that is not stored: its caller waits in the bucket for a start, and makes the
// request itself.
//
// Like a remote worker, it claims a start by each question, valid for ClaimWindow by its own clock.
// Shortly before its turn it gets an offer, and asks again. Without an answer it also asks, which
// finds the partition's next owner, and states its age, which keeps its place there.
type call struct {
	id     string
	reply  func(job.Turn) // to the caller's last claim
	n      int            // number of that claim
	called bool           // offered its turn, or claims it
	claim  pace.Instant
	ends   pace.Instant // of its wait
	passed bool
	said   *job.Claim    // a report to apply after the final check
	lease  time.Duration // time to the next report while running
	leased bool          // its caller reports the end
}

const (
	// claimFor is shorter than the caller's window, which began earlier.
	claimFor  = 30 * time.Millisecond
	mostCalls = 1 << 16
	// callGrace is the time that the valve waits longer than its caller, at most longestCall.
	callGrace, longestCall = time.Second, 10 * time.Minute
	longestID              = 64
	// unusedWithin is the lease of a call whose end affects no limit: a late start may be given
	// back.
	unusedWithin = 250 * time.Millisecond
)

type Grant struct {
	reply   func(job.Turn)
	leaseMS int64
}

func (g *Grant) Tell() { g.reply(job.Turn{State: job.TurnGo, LeaseMS: g.leaseMS}) }

func (g *Grant) Outcome(passed bool) record.Outcome {
	if !passed {
		return record.Outcome{Kind: record.OutcomeReturned}
	}
	return record.Outcome{Kind: record.OutcomeProgress}
}

func (v *Valve) Call(p *Part, c job.Claim, reply func(job.Turn), now pace.Instant) {
	if p.Quiesced || p.state > partitionLive || c.Partitions != v.Policy.Partitions {
		reply(job.Turn{State: job.TurnMoved, Partitions: v.Policy.Partitions})
		return
	}
	cost := max(c.Cost, 1)
	if why := v.neverPasses(c.ID, cost, c.Costs); why != "" {
		reply(job.Turn{State: job.TurnRefused, Reason: job.RefusedNever, Error: why})
		return
	}
	wait := time.Duration(min(max(c.WaitMS, 0), longestCall.Milliseconds())) * time.Millisecond
	j := p.calls[c.ID]
	if j != nil && j.stage == stageWaiting && !j.call.called && c.N > j.call.n && !j.Bucket.paused {
		// Callers ask only whether their owner lives, and may be thousands: answer without a walk.
		j.call.reply, j.call.n = reply, c.N
		v.lookAt(j, min(j.call.ends, now.Add(callSilence)))
		t := job.Turn{State: job.TurnWaiting,
			StartMS: v.expectSlots(j.Bucket, 0, &group{}, j.takes(), now)}
		if _, down := v.probeOf(j.Bucket); down {
			t.Reason = job.RefusedDown
		}
		reply(t)
		return
	}
	b := p.bucket(c.Key, now)
	defer v.place(b, now)
	switch {
	case j == nil:
	case c.N <= j.call.n:
		return
	case j.stage != stageRunning:
		v.detach(j)
	case !j.call.passed:
		reply(job.Turn{State: job.TurnMoved, Partitions: v.Policy.Partitions})
		return
	default: // it asked again, so it cannot have begun
		v.settle(j, v.unused(j, now), now)
		j = nil
	}
	isNew := j == nil
	if isNew {
		p.callSeq++
		age := time.Duration(min(max(c.AgeMS, 0), time.Duration(now).Milliseconds())) *
			time.Millisecond
		j = &heldJob{Bucket: b, inBucket: -1, inTimers: -1, stage: stageWaiting,
			call: &call{id: c.ID}}
		j.Key, j.Cost, j.Costs = b.key, cost, c.Costs
		j.Priority = min(max(c.Priority, job.MinPriority), job.MaxPriority)
		j.Seq = firstCall | uint64((time.Duration(now)-age).Milliseconds())<<20 |
			p.callSeq&(1<<20-1)
		j.Stored = v.instant(now).Wall.Add(-age)
	}
	in := v.expectCall(j, nil, now)
	if isNew || b.paused {
		if refused := v.refuses(j, in, wait, now); refused != nil {
			reply(*refused)
			if !isNew {
				v.dropCall(j)
			}
			return
		}
		v.keep(p, j)
	}
	j.call.reply, j.call.n, j.call.claim = reply, c.N, 0
	j.call.ends = now.Add(wait + callGrace)
	if in != nil && *in <= ahead.Milliseconds() {
		j.call.claim = now.Add(claimFor)
	} else {
		reply(job.Turn{State: job.TurnWaiting, StartMS: in})
	}
	v.await(j, now)
}

func (v *Valve) keep(p *Part, j *heldJob) {
	if p.calls == nil {
		p.calls = map[string]*heldJob{}
	}
	p.calls[j.call.id] = j
	v.memory.calls++
}

func (v *Valve) neverPasses(id string, cost int64, named map[string]int64) string {
	if len(id) == 0 || len(id) > longestID || len(named) > policy.MaxLimits {
		return fmt.Sprintf("want an id of 1 to %d bytes and at most %d costs", longestID,
			policy.MaxLimits)
	}
	for name, n := range named {
		if n < 1 || n > math.MaxInt32 || len(name) == 0 || len(name) > 32 {
			return fmt.Sprintf("%.50s: want a number from 1 to %d", job.CostHeader(name),
				math.MaxInt32)
		}
	}
	return v.impossible(cost, named)
}

// usable drops negative usage, which would add credit.
func usable(used map[string]int64) map[string]int64 {
	maps.DeleteFunc(used, func(_ string, n int64) bool { return n < 0 })
	for name, n := range used {
		used[name] = min(n, policy.MaxLimit)
	}
	return used
}

// firstCall is the least sequence of a call. Calls are ordered by their first question.
const firstCall = 1 << 63

func (v *Valve) refuses(j *heldJob, wait *int64, most time.Duration,
	now pace.Instant) *job.Turn {

	b := j.Bucket
	t := &job.Turn{State: job.TurnRefused, RetryMS: unknownRoom.Milliseconds()}
	probe, down := v.probeOf(b)
	in := max(0, probe.Since(now))
	switch {
	case b.paused:
		t.Reason = job.RefusedPaused
	case v.memory.calls >= mostCalls, b.callers != nil && b.callers.len() >= int(v.Policy.Capacity):
		t.Reason = job.RefusedFull
		if turn := v.turnAway(j, most, now); turn != nil {
			t.RetryMS = *turn
		}
	case down && (in > most || b.callers != nil && b.callers.len() > 0):
		if t.Reason = job.RefusedDown; !v.probing(b) { // a probe may end at any time
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

// probeOf returns whether a breaker holds the bucket, and when its next probe may start.
func (v *Valve) probeOf(b *bucket) (at pace.Instant, down bool) {
	if v.breaker.open {
		at = v.breaker.due()
	}
	if b.down() {
		at = max(at, b.target.due())
	}
	return at, v.breaker.open || b.down()
}

// expectCall returns the ms until a call starts, after those in the bucket and away; nil:
// unpredictable.
func (v *Valve) expectCall(j *heldJob, away []absent, now pace.Instant) *int64 {
	b, calls := j.Bucket, &group{}
	for _, other := range away {
		calls.add(other.takes)
	}
	slots := calls.slots
	if c := b.callers; c != nil {
		for _, h := range [...]heap.Heap[callJob]{c.called, c.waiting} {
			for _, other := range h {
				if other.rank().before(j.rank()) {
					calls.add(other.takes())
				}
			}
		}
		if k := c.chosen; k != nil && k != j && k.rank().before(j.rank()) {
			calls.add(k.takes())
		}
		if slots = calls.slots; b.waiting > 0 {
			slots += (slots + c.inRow) / c.perJob
		}
	}
	at, down := v.probeOf(b)
	if !down {
		return v.expectSlots(b, slots, calls, j.takes(), now)
	}
	if at = max(at, v.holdOf(b, now).until); slots > 0 || at == pace.Never {
		return nil
	}
	ms := ceilMillis(max(0, at.Since(now)))
	return &ms
}

// grant answers a call that starts, with a lease if its end affects a limit, or while the target is
// in trouble.
func (v *Valve) grant(j *heldJob) *Grant {
	b, c := j.Bucket, j.call
	c.claim, c.passed, c.lease = 0, false, unusedWithin
	b.callers.inRow++
	b.callers.running++
	c.leased = b.concurrency > 0 || v.quota != nil || len(v.common) > 0 || b.target != nil ||
		len(v.suspects) > 0 || v.breaker.open || b.throttles > 0 || b.lastError != ""
	g := &Grant{reply: c.reply}
	if c.leased {
		c.lease = time.Duration(v.Policy.Timeout)
		g.leaseMS = c.lease.Milliseconds()
	}
	return g
}

func (v *Valve) decided(j *heldJob, o record.Outcome, now pace.Instant) {
	p := j.Bucket.Part
	switch {
	case p.state > partitionLive:
		return
	case o.Kind == record.OutcomeProgress && j.stage == stageRunning:
		if j.call.passed = true; !j.call.leased {
			j.call.reply = nil
		}
		v.lookAt(j, now.Add(j.call.lease))
	default:
		p.Changed = true
		v.settle(j, o, now)
	}
	if c := j.call.said; c != nil && j.stage != stageGone {
		j.call.said = nil
		v.Settle(p, *c, now)
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

// Settle handles a caller's report. A call without a lease, or of a crashed owner, is unknown here;
// its report still pauses its bucket, and its progress counts it again.
func (v *Valve) Settle(p *Part, c job.Claim, now pace.Instant) job.Turn {
	j := p.calls[c.ID]
	if j != nil && j.stage == stageRunning && !j.call.passed && c.N >= j.call.n {
		j.call.said = &c
		return job.Turn{State: job.TurnSettled}
	}
	o := record.Outcome{Used: usable(c.Used), Error: Clip(c.Error, 1000),
		RetryAfter: time.Duration(min(max(c.RetryAfterMS, 0), 1<<40)) * time.Millisecond}
	switch {
	case c.Op == job.OpProgress:
		b := p.bucket(c.Key, now)
		defer v.place(b, now)
		if o.RetryAfter > 0 {
			v.coolDown(b, o.RetryAfter, now)
		}
		if j == nil && b.concurrency > 0 && v.memory.calls < mostCalls {
			j = v.adopt(p, b, c)
		}
		switch {
		case j != nil && j.stage == stageRunning:
			v.lookAt(j, now.Add(j.call.lease))
		case o.RetryAfter == 0:
			return job.Turn{State: job.TurnGone}
		}
		return job.Turn{State: job.TurnSettled}
	case c.Status == job.SettledReturned:
		switch {
		case j == nil || c.N < j.call.n:
		case j.stage == stageWaiting:
			v.detach(j)
			v.dropCall(j)
			v.place(j.Bucket, now)
		case j.call.passed:
			v.settle(j, v.unused(j, now), now)
		}
		return job.Turn{State: job.TurnSettled}
	case c.Status == job.SettledDone:
		o.Kind = record.OutcomeDone
	case c.Status == job.SettledThrottled:
		o.Kind = record.OutcomeThrottled
	default:
		o.Kind = record.OutcomeFailed
		o.Unavailable = c.Status == job.SettledUnavailable || c.Status == job.SettledUnreached
	}
	switch {
	case j == nil && v.ended.has(c.ID):
		return job.Turn{State: job.TurnSettled}
	case j == nil:
		j = v.adopt(p, p.bucket(c.Key, now), c)
	case c.Status == job.SettledUnreached && j.call.passed:
		v.unused(j, now)
	}
	if j.stage == stageRunning {
		v.settle(j, o, now)
		v.ended.add(c.ID)
	}
	return job.Turn{State: job.TurnSettled}
}

// endedCalls has the last calls whose end was reported. Callers repeat a report whose confirmation
// is lost, for half a minute.
type endedCalls struct{ ids, before map[string]struct{} }

// mostEnded bounds a generation of endedCalls, and its memory to about 2 MB.
const mostEnded = 1 << 14

func (e *endedCalls) has(id string) bool {
	_, now := e.ids[id]
	_, before := e.before[id]
	return now || before
}

func (e *endedCalls) add(id string) {
	if e.ids == nil || len(e.ids) >= mostEnded {
		e.ids, e.before = map[string]struct{}{}, e.ids
	}
	e.ids[id] = struct{}{}
}

func (v *Valve) adopt(p *Part, b *bucket, c job.Claim) *heldJob {
	j := &heldJob{Bucket: b, inBucket: -1, inTimers: -1, stage: stageRunning, holder: "elsewhere",
		call: &call{id: c.ID, passed: true, lease: time.Duration(v.Policy.Timeout),
			leased: c.Op == job.OpProgress}}
	j.Key, j.Cost, j.Costs = b.key, max(c.Cost, 1), c.Costs
	v.keep(p, j)
	b.own().running++
	b.calls().running++
	return j
}

func (v *Valve) endCall(j *heldJob, o record.Outcome, now pace.Instant) {
	b := j.Bucket
	switch o.Kind {
	case record.OutcomeDone:
		b.own().throttles = 0
	case record.OutcomeThrottled:
		v.throttle(j, o.RetryAfter, j.began > 0, now)
	case record.OutcomeFailed:
		j.LastError = o.Error
		switch {
		case !o.Unavailable:
		case j.call.leased:
			v.unavailable(j, now)
		case b.target == nil: // successes without leases go unreported, so later calls get leases
			b.own().target = &suspicion{}
		}
	}
	v.dropCall(j)
}

func (v *Valve) dropCall(j *heldJob) {
	delete(j.Bucket.Part.calls, j.call.id)
	v.memory.calls--
	j.stage = stageGone
}

func (v *Valve) timeoutCall(j *heldJob, now pace.Instant) {
	switch claimed := j.call.claim != 0; {
	case j.stage == stageRunning:
		v.settle(j, record.Outcome{Kind: record.OutcomeUncounted}, now)
		return
	case claimed && now < j.call.ends:
		v.detach(j)
		j.call.claim = 0
		v.await(j, now)
	default:
		v.detach(j)
		v.dropCall(j)
	}
	v.place(j.Bucket, now)
}

func (v *Valve) leaveCalls(p *Part) {
	for _, j := range p.sortedCalls() {
		if j.inTimers >= 0 {
			v.timers.Remove(j.inTimers)
		}
		if j.call.reply != nil {
			j.call.reply(job.Turn{State: job.TurnMoved, Partitions: v.Policy.Partitions})
		}
		v.dropCall(j)
	}
	v.callers.Retain(func(b dueBucket) bool { return b.Part != p })
	for _, b := range p.buckets {
		if b.callers != nil {
			b.unchoose()
			b.callers = &callers{running: b.callers.running}
		}
	}
}

// sortedCalls sorts, because a seed must reproduce a run.
func (p *Part) sortedCalls() []*heldJob {
	all := make([]*heldJob, 0, len(p.calls))
	for _, j := range p.calls {
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b *heldJob) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Seq, b.Seq))
	})
	return all
}
