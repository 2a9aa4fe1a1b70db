package workers

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// valve decides when the jobs of one policy start in this drainer: those of every partition that it owns. It is a pure
// state machine: it is told what happened and when, and adds to its actions what is to be done. It starts nothing, waits
// for nothing and reads no clock.
type valve struct {
	policy policy.Policy
	pace   *pace          // nil: jobs start unpaced
	self   string         // this process, as holder of running jobs
	random func() float64 // in [0, 1), for the jitter of backoffs
	out    *actions

	parts  map[int]*partition
	sched  heap[scheduledBucket]
	due    heap[dueBucket]
	timers heap[timedJob]
	busy   int // local workers
}

// run is a job that was given to a local worker.
type run struct {
	*job
	part     *partition
	attempt  int     // 1 is the first
	due      instant // when the job could have started
	latest   instant // the last check must pass before it; 0: whenever
	turn     *turn
	previous *turn // nil once decided
}

const (
	// leanSize is the body size above which bodies of jobs that wait are not held in memory.
	leanSize = 4 << 10
	// lead is how long before its start a job's body is read, when it is not held.
	lead = 500 * time.Millisecond
	// mostFetches is how many bodies of one bucket are read ahead.
	mostFetches = 64
	// mostCrashes is how many crashes of its owner a running job survives, plus one.
	mostCrashes = 3
)

func newValve(p policy.Policy, self string, random func() float64, out *actions) *valve {
	return &valve{policy: p, pace: newPace(p), self: self, random: random, out: out, parts: map[int]*partition{}}
}

// own begins a partition: jobs arrive, and start once live is called.
func (v *valve) own(number int, epoch uint64) *partition {
	p := &partition{
		policy: v.policy.Name, number: number, epoch: epoch, state: partitionOpening, fresh: true,
		buckets: map[queue.Key]*bucket{}, jobs: map[uint64]*job{}, inherited: map[uint64]*inheritedJob{},
	}
	v.parts[number] = p
	return p
}

// inheritance is what a new owner knows of a partition.
type inheritance struct {
	crashed  bool          // the predecessor crashed: clocks that handover does not list are unknown
	first    bool          // there was no predecessor
	owner    string        // the predecessor
	elapsed  time.Duration // from when handover was stored until the takeover
	handover handover
	attempts map[uint64]inheritedAttempt
}

type inheritedAttempt struct {
	attemptRecord
	dueIn time.Duration
}

// inherit applies what the predecessor left. After a crash each bucket counts as having started a job at the last moment
// its old owner could have, unless a checkpoint shows that its next start was not due yet.
func (v *valve) inherit(p *partition, in inheritance, now instant) {
	if in.crashed || in.handover.Partial {
		p.crashedAt = now
	}
	for _, c := range in.handover.Clocks {
		left := func(us int64) instant { return now.add(time.Duration(us)*time.Microsecond - in.elapsed) }
		b := v.bucket(p, c.Key, now)
		if cool := left(c.Cool); c.Cool > 0 && cool > now {
			b.cool, b.throttles = cool, c.Throttles
		}
		if v.pace == nil {
			continue
		}
		if due := left(c.Due); !in.crashed || due > now {
			b.clock = clock{due: due, tat: left(c.Tat)}
			if in.handover.Rate != v.policy.Outflow.String() {
				v.pace.adapt(&b.clock, now)
			}
		}
		if b.cool > now {
			v.pace.hold(&b.clock, b.cool)
		}
	}
	for seq, a := range in.attempts {
		p.inherited[seq] = &inheritedJob{record: a.attemptRecord, dueIn: a.dueIn, saved: true}
	}
	for _, r := range in.handover.Running {
		j := p.inherited[r.Seq]
		if j == nil {
			j = &inheritedJob{}
			p.inherited[r.Seq] = j
		}
		if in.crashed && r.Holder == in.owner {
			j.crashed = true
		} else {
			j.holder = r.Holder
		}
	}
	if len(in.handover.Done) > 0 {
		p.finished = map[uint64]struct{}{}
		for _, seq := range in.handover.Done {
			p.finished[seq] = struct{}{}
		}
	}
}

// live lets the jobs of an opened partition start.
func (v *valve) live(p *partition, now instant) {
	p.state = partitionLive
	for _, b := range p.buckets {
		v.place(b, now)
	}
}

// reopen is called when a partition's backlog is opened anew by the same owner: everything that is still stored will be
// delivered again.
func (v *valve) reopen(p *partition, epoch uint64) {
	p.epoch = epoch
	p.generation++
	p.finished = map[uint64]struct{}{}
	for _, f := range p.recent {
		p.finished[f.seq] = struct{}{}
	}
}

// swept is called when everything has been delivered that was stored when the backlog was opened. A job that was not is
// gone from the stream: it was acknowledged without our hearing of it, or somebody purged it.
func (v *valve) swept(p *partition, now instant) {
	for _, j := range p.jobs {
		if j.generation == p.generation {
			continue
		}
		switch j.stage {
		case stageAcking:
			v.confirmed(p, j.Seq, now)
		case stageWaiting, stageDelayed:
			v.out.vanished++
			v.detach(j)
			v.remove(j, now)
		}
	}
	for seq, j := range p.inherited {
		if j.saved {
			v.out.forgets = append(v.out.forgets, recordOf{p, seq})
		}
	}
	clear(p.inherited)
	p.finished = nil
}

// drop ends a partition that another process took.
func (v *valve) drop(p *partition) { v.leave(p, partitionLost) }

// surrender ends a partition in order and returns what its next owner needs. Outcomes that are still to come, or that came
// but are not recorded yet, are reported to that owner.
func (v *valve) surrender(p *partition, now instant) handover {
	h := v.handover(p, now, 0)
	for _, f := range p.recent {
		if now.since(f.at) <= staleFor {
			h.Done = append(h.Done, f.seq)
		}
	}
	for _, j := range p.jobs {
		switch j.stage {
		case stageAcking:
			h.Done = append(h.Done, j.Seq)
		case stageSaving:
			v.report(j, outcome{Seq: j.Seq, Kind: outcomeFailed, Error: j.lastError, Attempts: j.attempts})
		case stageBurying:
			v.report(j, outcome{Seq: j.Seq, Kind: outcomePermanent, Error: j.lastError})
		}
	}
	v.leave(p, partitionSurrendered)
	return h
}

// quiesce keeps a partition but starts nothing of it any more.
func (v *valve) quiesce(p *partition) {
	if !p.quiesced {
		v.leave(p, partitionOpening)
		v.parts[p.number], p.quiesced = p, true
	}
}

func (v *valve) report(j *job, o outcome) {
	v.out.reports = append(v.out.reports, report{v.policy.Name, j.bucket.part.number, o})
}

func (v *valve) leave(p *partition, state partitionState) {
	p.state = state
	delete(v.parts, p.number)
	v.sched.retain(func(b scheduledBucket) bool { return b.part != p })
	v.due.retain(func(b dueBucket) bool { return b.part != p })
	v.timers.retain(func(j timedJob) bool { return j.bucket.part != p })
}

// setPolicy changes the numbers of a policy; jobs that wait obey them from now on.
func (v *valve) setPolicy(p policy.Policy, now instant) {
	v.policy, v.pace = p, newPace(p)
	for _, part := range v.parts {
		for _, b := range part.buckets {
			if v.pace != nil {
				v.pace.adapt(&b.clock, now)
			}
			b.cool = min(b.cool, now.add(time.Duration(p.Retry.MaxCooldown)))
			v.place(b, now)
		}
	}
}

// resume is called when starts are allowed again after they were not, because the lease was in doubt.
func (v *valve) resume(now instant) {
	if v.pace == nil {
		return
	}
	for _, p := range v.parts {
		for _, b := range p.buckets {
			v.pace.hold(&b.clock, now)
			v.place(b, now)
		}
	}
}

// arrive takes a delivered job in. wall is the wall clock at now, for deadlines.
func (v *valve) arrive(p *partition, a *queue.Arrived, now instant, wall time.Time) {
	p.highest = max(p.highest, a.Seq)
	if j, held := p.jobs[a.Seq]; held {
		j.generation = p.generation
		if j.stage == stageAcking {
			v.out.acks = append(v.out.acks, recordOf{p, a.Seq})
		}
		return
	}
	if _, stale := p.finished[a.Seq]; stale {
		v.out.acks = append(v.out.acks, recordOf{p, a.Seq})
		return
	}
	b := v.bucket(p, a.Key, now)
	j := &job{Arrived: *a, bucket: b, generation: p.generation, inBucket: -1, inTimers: -1}
	j.expires = now.add(a.Stored.Add(time.Duration(v.policy.MaxAge)).Sub(wall))
	if !a.Deadline.IsZero() {
		j.expires = min(j.expires, now.add(a.Deadline.Sub(wall)))
	}
	p.jobs[a.Seq] = j
	b.held++
	in := p.inherited[a.Seq]
	if in == nil {
		in = &inheritedJob{}
	}
	delete(p.inherited, a.Seq)
	j.attempts, j.crashes, j.lastError, j.recorded = in.record.Attempts, in.record.Crashes, in.record.LastError, in.saved
	switch {
	case a.Malformed != nil:
		v.bury(j, ReasonMalformed, a.Malformed.Error())
	case in.outcome != nil:
		b.running++
		v.settle(j, *in.outcome, now)
	case in.crashed:
		v.crashed(j, now)
	case in.holder != "":
		j.stage, j.holder = stageRunning, in.holder
		b.running++
		v.lookAt(j, now.add(time.Duration(v.policy.Timeout)))
	case in.dueIn > 0:
		v.delay(j, now.add(in.dueIn))
	case !a.NotBefore.IsZero() && a.NotBefore.After(wall):
		v.delay(j, now.add(a.NotBefore.Sub(wall)))
	default:
		v.makeReady(j, now)
	}
}

// crashed counts that the owner of a running job crashed.
func (v *valve) crashed(j *job, now instant) {
	j.crashes++
	if j.crashes >= mostCrashes {
		v.bury(j, ReasonCrashed, "its drainer crashed while it ran, as often as this may happen")
		return
	}
	j.noting = true
	j.bucket.noting++
	v.save(j, 0)
}

// bucket returns the bucket of a key, which it makes when there is none.
func (v *valve) bucket(p *partition, key queue.Key, now instant) *bucket {
	b := p.buckets[key]
	if b == nil {
		b = &bucket{key: key, part: p}
		if v.pace != nil && p.crashedAt != 0 {
			interval := v.pace.interval
			v.pace.hold(&b.clock, p.crashedAt.add(interval+spread(key, min(interval, 250*time.Millisecond))))
		}
		p.buckets[key] = b
	}
	return b
}

// makeReady puts a job among those that wait for a slot.
func (v *valve) makeReady(j *job, now instant) {
	b := j.bucket
	j.stage = stageWaiting
	if len(b.ready) > 0 && j.Body != nil && j.Size > leanSize {
		j.Body, j.Lean = nil, true
	}
	b.ready.push(orderedJob{j})
	v.lookAt(j, j.expires)
	if b.spot == spotNone || b.ready[0].job == j {
		v.place(b, now)
	}
}

func (v *valve) delay(j *job, until instant) {
	j.stage = stageDelayed
	if j.Size > leanSize {
		j.Body, j.Lean = nil, true
	}
	v.lookAt(j, min(until, j.expires))
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
	if j.inTimers >= 0 {
		v.timers.remove(j.inTimers)
	}
	if j.inBucket >= 0 {
		j.bucket.ready.remove(j.inBucket)
	}
}

// place puts a bucket where its next event is: its start, the reading of its head's body, the moment it can be forgotten.
func (v *valve) place(b *bucket, now instant) {
	if b.part.state != partitionLive {
		return
	}
	v.unplace(b)
	if len(b.ready) == 0 {
		b.awake = false
		if b.held == 0 {
			v.forget(b, now)
		}
		return
	}
	if b.noting > 0 {
		return
	}
	if b.stalled {
		if b.handoffs.Load() > 0 {
			v.schedule(b, now.add(time.Millisecond))
			return
		}
		b.stalled = false
	}
	if v.policy.Concurrency > 0 && b.running >= v.policy.Concurrency {
		b.awake = false
		return
	}
	if !b.awake {
		b.awake, b.since = true, now
		if v.pace != nil {
			v.pace.wake(&b.clock, now)
		}
	}
	at := v.startable(b)
	head := b.ready[0]
	switch {
	case head.Lean && head.fetching:
		return // loaded places the bucket again
	case head.Lean && at.add(-lead) > now:
		v.schedule(b, at.add(-lead))
	case head.Lean:
		v.fetch(b)
	case at > now:
		v.schedule(b, at)
	default:
		b.nextAt, b.spot = max(at, b.since), spotDue
		v.due.push(dueBucket{b})
	}
}

func (v *valve) schedule(b *bucket, at instant) {
	b.nextAt, b.spot = at, spotSched
	v.sched.push(scheduledBucket{b})
}

func (v *valve) unplace(b *bucket) {
	switch b.spot {
	case spotSched:
		v.sched.remove(b.index)
	case spotDue:
		v.due.remove(b.index)
	}
	b.spot = spotNone
}

// startable is when the bucket's head may start.
func (v *valve) startable(b *bucket) instant {
	at := b.cool
	if v.pace != nil {
		at = max(at, v.pace.next(&b.clock))
	}
	return at
}

// forget drops an empty bucket once it is as good as new.
func (v *valve) forget(b *bucket, now instant) {
	at := b.cool
	if v.pace != nil {
		at = max(at, v.pace.freshAt(&b.clock))
	}
	if at > now {
		v.schedule(b, at)
		return
	}
	delete(b.part.buckets, b.key)
}

// fetch asks for the bodies of the jobs that start next. The first items of the heap are about those.
func (v *valve) fetch(b *bucket) {
	n := mostFetches
	if v.pace != nil {
		n = min(n, int(lead/v.pace.interval)+1)
	}
	for _, j := range b.ready[:min(n, len(b.ready))] {
		if j.Lean && !j.fetching {
			j.fetching = true
			v.out.fetches = append(v.out.fetches, j.job)
		}
	}
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
		return
	}
	if body != nil {
		j.Body, j.Lean = body, false
	}
	v.place(j.bucket, now)
}

// advance starts what may start at now, when open says that this drainer may start jobs at all.
func (v *valve) advance(now instant, open bool) {
	for len(v.timers) > 0 && v.timers[0].at <= now {
		v.timeout(v.timers.remove(0).job, now)
	}
	if !open {
		return
	}
	for len(v.sched) > 0 && v.sched[0].nextAt <= now {
		v.place(v.sched[0].bucket, now)
	}
	for len(v.due) > 0 && v.mayTakeWorker(v.due[0].bucket) {
		v.start(v.due[0].bucket, now)
	}
}

// mayTakeWorker keeps one bucket from taking all workers, for a target that hangs for one key: a bucket gets a worker
// while it runs at most three times as many jobs as would stay free. So it uses three quarters of the workers at most, the
// next one like it three quarters of the rest, and who runs nothing gets any that is free. (Choudhury and Hahne, "Dynamic
// queue length thresholds for shared-memory packet switches", 1998.)
func (v *valve) mayTakeWorker(b *bucket) bool {
	free := v.policy.Workers - v.busy
	return free > 0 && b.running <= 3*(free-1)
}

func (v *valve) start(b *bucket, now instant) {
	due := b.nextAt
	j := b.ready[0].job
	v.detach(j)
	j.stage = stageRunning
	b.running++
	v.busy++
	r := run{job: j, part: b.part, attempt: j.attempts + 1, due: due, previous: b.last}
	r.turn = &turn{priority: j.Priority, seq: j.Seq}
	r.turn.decided.Add(1)
	b.last = r.turn
	b.handoffs.Add(1)
	b.part.handoffs.Add(1)
	if v.pace != nil {
		v.pace.take(&b.clock, now, j.Cost)
		r.latest = now.add(v.pace.handoff)
	}
	b.since = now
	v.out.starts = append(v.out.starts, r)
	v.place(b, now)
}

// timeout acts on a job whose timer went off.
func (v *valve) timeout(j *job, now instant) {
	switch {
	case j.stage == stageRunning: // in a process that did not report in time
		v.settle(j, outcome{Seq: j.Seq, Kind: outcomeReturned}, now)
	case j.expires <= now:
		v.detach(j)
		v.bury(j, ReasonDeadline, "it waited longer than it may")
		v.place(j.bucket, now)
	default:
		v.makeReady(j, now)
	}
}

// settle applies the outcome of a running job.
func (v *valve) settle(j *job, o outcome, now instant) {
	b := j.bucket
	b.running--
	local := j.holder == ""
	j.holder = ""
	v.detach(j)
	retry := v.policy.Retry
	switch o.Kind {
	case outcomeDone:
		b.throttles = 0
		v.ack(j)
	case outcomePermanent:
		v.bury(j, ReasonPermanent, o.Error)
	case outcomeFailed:
		j.attempts, j.lastError = max(j.attempts+1, o.Attempts), o.Error
		if o.Attempts > 0 {
			j.attempts = o.Attempts
		}
		if j.attempts >= retry.MaxAttempts {
			v.bury(j, ReasonAttempts, o.Error)
			break
		}
		longest := doubled(time.Duration(retry.Backoff), j.attempts-1, time.Duration(retry.MaxBackoff))
		v.save(j, time.Duration(v.random()*float64(longest)))
	case outcomeThrottled:
		v.throttle(b, o.RetryAfter, now)
		v.makeReady(j, now)
	case outcomeReturned:
		if local {
			b.handoffs.Add(-1)
			b.part.handoffs.Add(-1)
			b.stalled = true
			if v.pace != nil {
				v.pace.spare(&b.clock, j.Cost)
			}
		}
		v.makeReady(j, now)
	}
	v.place(b, now)
}

// throttle pauses a bucket because its target asked for it, or for the policy's backoff, doubled for each pause in a row.
func (v *valve) throttle(b *bucket, wait time.Duration, now instant) {
	retry := v.policy.Retry
	if now >= b.cool { // answers to jobs that were under way when a pause began do not make another
		b.throttles++
	}
	if wait <= 0 {
		wait = doubled(time.Duration(retry.Backoff), b.throttles-1, time.Duration(retry.MaxCooldown))
	}
	b.cool = max(b.cool, now.add(min(wait, time.Duration(retry.MaxCooldown))))
	if v.pace != nil {
		v.pace.hold(&b.clock, b.cool)
	}
}

// doubled is d·2^n, at most limit.
func doubled(d time.Duration, n int, limit time.Duration) time.Duration {
	for ; n > 0 && d < limit; n-- {
		d *= 2
	}
	return min(d, limit)
}

// save records a counted attempt or crash; the job backs off once saved confirms it.
func (v *valve) save(j *job, backoff time.Duration) {
	j.stage, j.backoff, j.recorded = stageSaving, backoff, true
	v.out.saves = append(v.out.saves, save{j, attemptRecord{
		V: version, Attempts: j.attempts, DueIn: micros(backoff), LastError: j.lastError, Crashes: j.crashes,
	}})
}

func (v *valve) saved(j *job, now instant) {
	if j.bucket.part.state > partitionLive || j.stage != stageSaving {
		return
	}
	if !j.noting {
		v.delay(j, now.add(j.backoff))
		return
	}
	j.noting = false
	j.bucket.noting--
	v.makeReady(j, now)
}

func (v *valve) bury(j *job, reason Reason, detail string) {
	j.stage, j.lastError = stageBurying, detail
	v.out.burials = append(v.out.burials, burial{j, reason, detail})
}

// buried is called when a job's dead letter is stored.
func (v *valve) buried(j *job) {
	if j.bucket.part.state <= partitionLive && j.stage == stageBurying {
		v.ack(j)
	}
}

func (v *valve) ack(j *job) {
	j.stage = stageAcking
	j.Body, j.Header = nil, nil
	v.out.acks = append(v.out.acks, recordOf{j.bucket.part, j.Seq})
}

// confirmed is called when the server has confirmed an acknowledgement: the job's place is free.
func (v *valve) confirmed(p *partition, seq uint64, now instant) {
	p.finish(seq, now)
	if j := p.jobs[seq]; j != nil && j.stage == stageAcking {
		v.remove(j, now)
	}
}

func (v *valve) remove(j *job, now instant) {
	b := j.bucket
	delete(b.part.jobs, j.Seq)
	b.held--
	if j.recorded {
		v.out.forgets = append(v.out.forgets, recordOf{b.part, j.Seq})
	}
	if b.held == 0 {
		v.place(b, now)
	}
}

// reported takes the outcome of a job that was running in another process when its partition was handed over.
func (v *valve) reported(p *partition, o outcome, now instant) {
	if j := p.jobs[o.Seq]; j != nil {
		if j.stage == stageRunning && j.holder != "" {
			v.settle(j, o, now)
		}
		return
	}
	if in := p.inherited[o.Seq]; in != nil && in.holder != "" {
		in.outcome = &o
	}
}

// holderGone is called when a process that may run handed-over jobs has crashed.
func (v *valve) holderGone(holder string, now instant) {
	for _, p := range v.parts {
		for _, in := range p.inherited {
			if in.holder == holder && in.outcome == nil {
				in.holder, in.crashed = "", true
			}
		}
		for _, seq := range slices.Sorted(maps.Keys(p.jobs)) {
			if j := p.jobs[seq]; j.stage == stageRunning && j.holder == holder {
				j.bucket.running--
				j.holder = ""
				v.detach(j)
				v.crashed(j, now)
				v.place(j.bucket, now)
			}
		}
	}
}

// wake is when advance has something to do next, never when only another event can change that.
func (v *valve) wake(open bool) instant {
	at := never
	if len(v.timers) > 0 {
		at = v.timers[0].at
	}
	if open && len(v.sched) > 0 {
		at = min(at, v.sched[0].nextAt)
	}
	return at
}

// expect says how long it will be until a job starts, while nothing fails: 0 when it has started. It is not known for a
// job that has not arrived, and while concurrency holds the bucket back.
func (v *valve) expect(p *partition, seq uint64, now instant) (wait time.Duration, known bool) {
	j := p.jobs[seq]
	if j == nil {
		return 0, seq <= p.highest
	}
	b := j.bucket
	switch j.stage {
	case stageWaiting:
		at := v.startable(b)
		if v.pace != nil {
			at = at.add(times(int64(j.inBucket), v.pace.interval))
		}
		return max(0, at.since(now)), true
	case stageDelayed:
		return max(0, j.at.since(now)), true
	}
	return 0, true
}

// room is how long it will be until the bucket's next start, at least one interval: when a place may be free again.
func (v *valve) room(p *partition, key queue.Key, now instant) time.Duration {
	var wait time.Duration
	if v.pace != nil {
		wait = v.pace.interval
	}
	if b := p.buckets[key]; b != nil {
		wait = max(wait, v.startable(b).since(now))
	}
	return wait
}
