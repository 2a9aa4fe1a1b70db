package workers

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// valve decides when the jobs of one policy start in this drainer: those of every partition that it owns. It is a pure
// state machine: it is told what happened and when, and adds to its actions what is to be done. It starts nothing, waits
// for nothing and reads no clock.
type valve struct {
	policy policy.Policy
	paused bool           // by an operator, all of it
	base   *limits        // what buckets without an override obey
	self   string         // this process, as holder of running jobs
	random func() float64 // in [0, 1), for the jitter of backoffs
	out    *actions

	overrides map[queue.Key]policy.Override
	special   map[queue.Key]*limits // what the keys with an override obey

	// One rate for all buckets together, and whose turn it is.
	total      *pace // nil: there is none
	totalClock clock
	totalAwake bool      // some bucket has work and waits for its turn
	turns      float64   // that count as taken by who had nothing to do, in starts by weight
	mostTurns  float64   // that any bucket has taken
	forecast   *forecast // of waits, when there are many buckets
	coming     *coming   // the next
	gateAt     instant   // when admits may say yes, while a bucket waits for that; else never

	breaker  breaker     // of all buckets
	suspects []queue.Key // whose jobs found the target down since somebody found it up
	broken   int         // buckets whose own breaker is open

	parts   map[int]*partition
	sched   heap[scheduledBucket]
	due     heap[dueBucket]
	unread  heap[dueBucket] // that would be due, or soon, if there were room for a body
	bodies  int64           // bytes of those that are not small, of jobs that wait
	timers  heap[timedJob]
	ending  bool // this drainer may not own it any more
	retired bool // its stream goes when it is empty
	local   bool // there are local workers
	open    bool // it might start jobs when it last acted
	busy    int  // of them, with jobs of this valve
	lent    int  // of them, with jobs of other drainers

	claims claims // of workers elsewhere
}

// run is a job that was given to a worker.
type run struct {
	*job
	part     *partition
	attempt  int     // 1 is the first
	due      instant // when the job could have started
	latest   instant // the last check must pass before it; 0: whenever
	turn     *turn
	previous *turn // nil once decided
	remote   bool  // the worker is in another process
}

const (
	// mostCrashes is how many crashes of its owner a running job survives, plus one.
	mostCrashes = 3
)

func newValve(p policy.Policy, paused bool, self string, random func() float64, out *actions) *valve {
	v := &valve{
		policy: p, paused: paused, base: limitsFor(p, policy.Override{}, paused), total: newPace(p.OutflowTotal, 1),
		self: self, random: random, out: out, parts: map[int]*partition{}, gateAt: never,
	}
	v.setOverrides(nil)
	return v
}

// arrive takes a delivered job in. wall is the wall clock at now, for deadlines.
func (v *valve) arrive(p *partition, a *queue.Arrived, now instant, wall time.Time) {
	again := a.Seq <= p.highest
	p.highest = max(p.highest, a.Seq)
	if j, held := p.jobs[a.Seq]; held {
		j.generation = p.generation
		if j.stage == stageAcking {
			v.out.acks = append(v.out.acks, recordOf{p, a.Seq})
		}
		return
	}
	b := v.bucket(p, a.Key, now)
	j := &job{Arrived: *a, bucket: b, generation: p.generation, inBucket: -1, inTimers: -1}
	j.Key = b.key
	v.date(j, now, wall)
	lane := b.lane(j.Priority)
	lane.arrived += j.Cost
	j.mark = lane.arrived
	p.jobs[a.Seq] = j
	b.held++
	if a.Seq > p.last {
		v.out.accepted = append(v.out.accepted, j)
	}
	in := p.inherited[a.Seq]
	if in == nil {
		in = &inheritedJob{}
	}
	delete(p.inherited, a.Seq)
	j.attempts, j.crashes, j.lastError, j.recorded = in.record.Attempts, in.record.Crashes, in.record.LastError, in.saved
	if in.record.CrashedBy != "" {
		p.crashes[a.Seq] = in.record.CrashedBy
	}
	_, stale := p.finished[a.Seq]
	stale = stale || again && p.finishedLately(a.Seq, now)
	switch {
	case stale:
		v.ack(j)
	case a.Malformed != nil:
		v.bury(j, ReasonMalformed, a.Malformed.Error())
	case in.outcome != nil:
		b.running++
		v.settle(j, *in.outcome, now)
	case j.crashes >= mostCrashes:
		v.buryCrashed(j)
	case in.crashed != "" && in.crashed != in.record.CrashedBy:
		v.crashed(j, in.crashed)
	case in.holder != "":
		j.enter(stageRunning)
		j.holder = in.holder
		b.running++
		v.lookAt(j, now.add(time.Duration(v.policy.Timeout)))
	case v.policy.Paced() && j.Cost > v.policy.Capacity:
		v.bury(j, ReasonMalformed, fmt.Sprintf("%s: it costs %d, more than the bucket's capacity of %d",
			queue.HeaderCost, j.Cost, v.policy.Capacity))
	case in.dueIn > 0:
		v.delay(j, now.later(in.dueIn))
	case !a.NotBefore.IsZero() && a.NotBefore.After(wall):
		v.delay(j, now.later(a.NotBefore.Sub(wall)))
	default:
		v.makeReady(j, now)
		return
	}
	v.place(b, now)
	if in.runs() {
		v.saw(p, now)
	}
}

// date says when a job's deadline passes, or its age, by wall, JetStream's clock at now.
func (v *valve) date(j *job, now instant, wall time.Time) {
	j.expires = now.later(j.Stored.Add(time.Duration(v.policy.MaxAge)).Sub(wall))
	if !j.Deadline.IsZero() {
		j.expires = min(j.expires, now.later(j.Deadline.Sub(wall)))
	}
}

// redate does that again for all jobs: JetStream's clock is another, or this process's own stood still.
func (v *valve) redate(now instant, wall time.Time) {
	for _, p := range v.parts {
		for _, j := range p.jobs {
			before := j.expires
			v.date(j, now, wall)
			at := j.expires
			switch {
			case j.inTimers < 0 || j.stage != stageWaiting && j.stage != stageDelayed:
				continue
			case j.stage == stageDelayed && !j.recorded: // it is not due yet
				at = min(at, now.later(j.NotBefore.Sub(wall)))
			case j.at < before: // it backs off
				at = min(at, j.at)
			}
			if v.lookAt(j, at); j.stage == stageDelayed {
				j.bucket.later.fix(j.inBucket)
			}
		}
	}
}

// bucket returns the bucket of a key, which it makes when there is none.
func (v *valve) bucket(p *partition, key queue.Key, now instant) *bucket {
	b := p.buckets[key]
	if b == nil {
		key = queue.Key(strings.Clone(string(key))) // a delivery's key would keep its whole subject in memory
		b = &bucket{key: key, part: p, limits: v.limitsOf(key)}
		if b.pace != nil && p.crashedAt != 0 {
			interval := b.pace.interval
			b.pace.hold(&b.clock, p.crashedAt.add(interval+spread(key, min(interval, mostSpread))))
		}
		p.add(b)
	}
	return b
}

// makeReady puts a job among those that wait for a slot.
func (v *valve) makeReady(j *job, now instant) {
	b := j.bucket
	j.enter(stageWaiting)
	if j.Body != nil && j.Size > leanSize {
		if len(b.ready) > 0 || v.bodies >= mostBodies {
			j.Body, j.Lean = nil, true
		} else {
			v.hold(j)
		}
	}
	b.ready.push(orderedJob{j})
	b.lane(j.Priority).waiting += j.Cost
	b.waiting += j.Cost
	v.lookAt(j, j.expires)
	if b.spot == spotNone || b.ready[0].job == j {
		v.place(b, now)
	}
}

func (v *valve) delay(j *job, until instant) {
	j.enter(stageDelayed)
	if j.Size > leanSize {
		j.Body, j.Lean = nil, true
	}
	v.lookAt(j, min(until, j.expires))
	j.bucket.later.push(laterJob{j})
}

// lookAt sets the job's timer.
func (v *valve) lookAt(j *job, at instant) {
	j.at = at
	if j.inTimers >= 0 {
		v.timers.fix(j.inTimers)
	} else {
		v.timers.push(timedJob{j})
	}
}

// detach takes a job out of the valve's heaps.
func (v *valve) detach(j *job) {
	v.unhold(j)
	if j.inTimers >= 0 {
		v.timers.remove(j.inTimers)
	}
	if j.stage == stageDelayed {
		j.bucket.later.remove(j.inBucket)
	} else if j.inBucket >= 0 {
		j.bucket.ready.remove(j.inBucket)
		j.bucket.lane(j.Priority).waiting -= j.Cost
		j.bucket.waiting -= j.Cost
	}
}

// place puts a bucket where its next event is: its start, the reading of its head's body, the moment it can be forgotten.
func (v *valve) place(b *bucket, now instant) {
	if b.part.state != partitionLive {
		return
	}
	v.unplace(b)
	b.cooled(now)
	if len(b.ready) == 0 {
		b.awake = false
		if b.held+b.running == 0 { // what runs of a stream that is no more counts until it ends
			v.forget(b, now)
		}
		return
	}
	if b.noting > 0 || b.concurrency > 0 && b.part.unseen > 0 {
		return
	}
	if b.stalled {
		if b.undecided.any() {
			v.schedule(b, now.add(time.Millisecond))
			return
		}
		b.stalled, b.last = false, nil // all are decided: who came back begins anew
	}
	if b.blocked() {
		b.awake = false
		v.unload(b)
		return
	}
	if !b.awake {
		b.awake, b.since = true, now
		b.turns = max(b.turns, v.turns) // who had nothing to do has missed its turns
		if b.pace != nil {
			b.pace.wake(&b.clock, now)
		}
	}
	at := v.startable(b)
	if at.add(-lead) > now {
		v.unload(b)
	}
	head := b.ready[0]
	switch {
	case head.fetching && head.counted:
		return // loaded places the bucket again
	case head.Lean && at.add(-lead) > now:
		v.schedule(b, at.add(-lead))
	case head.Lean:
		b.nextAt, b.spot = max(at, b.since), spotUnread
		v.unread.push(dueBucket{b})
	case at > now:
		v.schedule(b, at)
	default:
		b.nextAt, b.spot = max(at, b.since), spotDue
		v.due.push(dueBucket{b})
	}
}

// cooled ends a cool-down that is over, which is no burst. Until then the clock keeps what the rate alone imposes, for a
// cool-down may be shortened.
func (b *bucket) cooled(now instant) {
	if b.cool > now || b.cool == 0 {
		return
	}
	if b.pace != nil {
		b.pace.hold(&b.clock, b.cool)
	}
	b.cool = 0
}

func (v *valve) schedule(b *bucket, at instant) {
	b.nextAt, b.spot = at, spotSched
	v.sched.push(scheduledBucket{b, at})
}

func (v *valve) unplace(b *bucket) {
	switch b.spot {
	case spotSched:
		v.sched.remove(b.index)
	case spotDue:
		v.due.remove(b.index)
	case spotUnread:
		v.unread.remove(b.index)
	}
	b.spot = spotNone
}

// startable is when the bucket's head may start.
func (v *valve) startable(b *bucket) instant {
	at := b.cool
	if b.pace != nil {
		at = max(at, b.pace.next(&b.clock))
	}
	if b.down() {
		at = max(at, b.target.due())
	}
	return at
}

// forget drops an empty bucket once it is as good as new.
func (v *valve) forget(b *bucket, now instant) {
	if b.inList < 0 {
		return // it was forgotten before
	}
	at := b.cool
	if b.pace != nil {
		at = max(at, b.pace.freshAt(&b.clock))
	}
	if b.down() {
		at = max(at, b.target.at)
	}
	if b.rateAt != 0 && len(b.part.buckets) < mostRates {
		at = max(at, b.rateAt.add(2*b.rateMemory()))
	}
	if ahead := b.turns - v.turns; v.total != nil && ahead > 0 {
		// It has taken turns before others that wait, and would take more of them if that were forgotten. They catch up in
		// as many starts as there are of them, or more when they have weight.
		wait := max(1, ahead*float64(len(v.due))) * float64(v.total.interval)
		at = max(at, now.add(time.Duration(min(wait, float64(forever)))))
	}
	if at > now {
		v.schedule(b, at)
		return
	}
	if b.down() {
		v.broken--
	}
	b.part.remove(b)
}

// loaded takes the body of a job that was asked for. A job that is gone from the stream was removed by somebody else.
func (v *valve) loaded(j *job, body []byte, gone bool, now instant) {
	j.fetching = false
	if j.bucket.part.state > partitionLive || j.stage != stageWaiting {
		return
	}
	if gone {
		v.out.vanished++
		v.detach(j)
		v.remove(j, now)
		v.place(j.bucket, now)
		return
	}
	if body != nil && j.counted { // else it is not wanted any more
		j.Body, j.Lean = body, false
	}
	v.place(j.bucket, now)
}

// unreadable buries a job that turned out to be none when its body was read.
func (v *valve) unreadable(j *job, why error, now instant) {
	j.fetching = false
	if j.bucket.part.state > partitionLive || j.stage != stageWaiting {
		return
	}
	v.detach(j)
	v.bury(j, ReasonMalformed, why.Error())
	v.place(j.bucket, now)
}

// advance starts what may start at now, when open says that this drainer may start jobs at all.
func (v *valve) advance(now instant, open bool) {
	for len(v.timers) > 0 && v.timers[0].at <= now {
		v.timeout(v.timers.remove(0).job, now)
	}
	v.expire(now, !open)
	if v.open = open; !open {
		return
	}
	for len(v.sched) > 0 && v.sched[0].at <= now {
		v.place(v.sched[0].bucket, now)
	}
	v.gateAt = never
	blocked := false
	var passed []*bucket // whose turn it is, but which run too much to get a worker
	for len(v.due) > 0 {
		if !v.admits(now) {
			blocked = true
			break
		}
		if v.free() <= 0 {
			break
		}
		b := v.nextDue(v.mayTakeWorker)
		if v.mayTakeWorker(b) {
			v.start(b, now, false)
			continue
		}
		if v.total == nil {
			break // the others run more
		}
		v.unplace(b)
		passed = append(passed, b)
	}
	for _, b := range passed {
		b.spot = spotDue
		v.due.push(dueBucket{b})
	}
	if !blocked {
		v.serve(now)
	}
	v.read(now)
	if len(v.due)+len(v.unread) == 0 {
		v.totalAwake = false
		v.turns = v.mostTurns // nobody waits for another's turn: all begin anew
	}
	v.offer(now)
}

// admits reports whether a bucket that is due may start a job, as far as the breaker and the rate of all buckets together
// go.
func (v *valve) admits(now instant) bool {
	if v.breaker.open {
		if at := v.breaker.due(); at > now {
			v.gateAt = at
			return false
		}
	}
	if v.total == nil {
		return true
	}
	if !v.totalAwake {
		v.totalAwake = true
		v.total.wake(&v.totalClock, now)
	}
	if at := v.total.next(&v.totalClock); at > now {
		v.gateAt = at
		return false
	}
	return true
}

// mayTakeWorker keeps one bucket from taking all workers, for a target that hangs for one key: a bucket gets a worker
// while it runs at most three times as many jobs as would stay free. So it uses three quarters of the workers at most, the
// next one like it three quarters of the rest, and who runs nothing gets any that is free. (Choudhury and Hahne, "Dynamic
// queue length thresholds for shared-memory packet switches", 1998.)
func (v *valve) mayTakeWorker(b *bucket) bool {
	free := v.free()
	return free > 0 && b.running <= 3*(free-1)
}

// start gives the head of a bucket to a worker.
func (v *valve) start(b *bucket, now instant, remote bool) run {
	due := b.nextAt
	j := b.ready[0].job
	v.detach(j)
	j.enter(stageRunning)
	j.began, j.holder = now, ""
	b.running++
	r := run{job: j, part: b.part, attempt: j.attempts + 1, due: due, remote: remote}
	r.giveTurn()
	if v.total != nil {
		r.due = max(due, v.total.next(&v.totalClock))
		r.turn.total.before = v.totalClock.tat
		v.total.take(&v.totalClock, now, j.Cost)
		r.turn.total.after = v.totalClock.tat
		r.latest = now.add(v.total.handoff)
		v.turns = max(v.turns, b.turns) // who was held back while others started has missed its turns as well
		b.turns = v.turns + float64(j.Cost)/float64(b.weight)
		v.mostTurns = max(v.mostTurns, b.turns)
	}
	if v.breaker.open {
		v.breaker.probe = j
		r.due = max(r.due, v.breaker.at)
	}
	if b.down() {
		b.target.probe = j
	}
	if b.pace != nil {
		r.turn.own.before = b.clock.tat
		b.pace.take(&b.clock, now, j.Cost)
		r.turn.own.after = b.clock.tat
		r.latest = now.add(b.pace.handoff)
	}
	b.since = now
	b.counted(now)
	if remote {
		v.claims.running++
	} else {
		v.busy++
		v.out.starts = append(v.out.starts, r)
	}
	v.place(b, now)
	return r
}

// timeout acts on a job whose timer went off.
func (v *valve) timeout(j *job, now instant) {
	switch {
	case j.stage == stageRunning: // in a process that did not report in time
		holder := j.holder
		v.settle(j, outcome{Seq: j.Seq, Kind: outcomeReturned}, now)
		j.holder = holder // what it reports late is heard until the job starts anew
	case j.expires <= now:
		v.detach(j)
		v.bury(j, ReasonDeadline, "it waited longer than it may")
		v.place(j.bucket, now)
	default:
		v.detach(j)
		v.makeReady(j, now)
	}
}

// wake is when advance has something to do next, never when only another event can change that.
func (v *valve) wake(open bool) instant {
	at := never
	if len(v.timers) > 0 {
		at = v.timers[0].at
	}
	if open && len(v.sched) > 0 {
		at = min(at, v.sched[0].at)
	}
	if open {
		at = min(at, v.gateAt, v.claims.wake())
	}
	return at
}
