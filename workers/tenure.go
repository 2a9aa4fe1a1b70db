package workers

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/queue"
)

// own begins a partition: jobs arrive, and start once live is called.
func (v *valve) own(number int, epoch uint64) *partition {
	if len(v.parts) == 0 {
		v.breaker, v.suspects = breaker{}, nil
		v.forecast, v.coming = nil, nil
	}
	p := &partition{
		policy: v.policy.Name, number: number, epoch: epoch, state: partitionOpening, fresh: true, sweeping: true,
		buckets: map[queue.Key]*bucket{}, jobs: map[uint64]*job{}, begun: map[uint64]*job{}, inherited: map[uint64]*inheritedJob{},
		crashes: map[uint64]string{}, records: map[uint64]uint64{},
	}
	v.parts[number] = p
	return p
}

// inheritance is what a new owner knows of a partition.
type inheritance struct {
	crashed  bool          // the predecessor crashed: clocks that handover does not list are unknown
	owner    string        // the predecessor
	elapsed  time.Duration // from when handover was stored until the takeover, at least …
	age      time.Duration // … and from when it was put together, at most
	handover handover
	attempts map[uint64]inheritedAttempt
	fence    time.Duration   // after a crash: how long the predecessor may still start jobs
	gone     map[string]bool // holders of running jobs that will not report any more
}

type inheritedAttempt struct {
	attemptRecord
	dueIn    time.Duration
	revision uint64
}

// inherit applies what the predecessor left. After a crash each bucket counts as having started a job at the last moment
// its old owner could have, unless a checkpoint shows that its next start was not due yet.
func (v *valve) inherit(p *partition, in inheritance, now instant) {
	if in.crashed {
		v.out.takeovers = append(v.out.takeovers, p)
	}
	switch {
	case in.crashed || in.handover.Partial:
		p.crashedAt = now.add(in.fence)
	case in.handover.Crashed > 0:
		p.crashedAt = now.add(-time.Duration(in.handover.Crashed)*time.Microsecond - in.elapsed)
	}
	if in.crashed || in.handover.Partial {
		if v.total != nil {
			v.total.hold(&v.totalClock, now.add(in.fence+v.total.interval))
		}
	}
	for _, c := range in.handover.Clocks {
		left := func(us int64) instant { return now.add(time.Duration(us)*time.Microsecond - in.elapsed) }
		if c.Key == "" {
			if v.total != nil {
				in.wind(&v.totalClock, c, v.total, v.total.before(in.handover.Total, 1), now)
			}
			continue
		}
		b := v.bucket(p, c.Key, now)
		if cool := left(c.Cool); c.Cool > 0 && cool > now {
			b.cool, b.throttles = cool, c.Throttles
		}
		if c.Starts > 0 {
			b.rate, b.rateAt, b.rateSince = float32(min(c.Starts, 1e9)), left(0), left(0).add(-forever)
		}
		if c.Down > 0 {
			probe := min(left(c.Probe), now.add(mostProbeWait)) // may be now, and what begins then is a probe
			b.target = &suspicion{breaker: breaker{open: true, since: now - 1, failures: c.Down, at: probe}}
			v.broken++
		}
		if b.pace != nil {
			before := b.pace.before(cmp.Or(c.Rate, in.handover.Rate), cmp.Or(c.Burst, in.handover.Burst))
			in.wind(&b.clock, c, b.pace, before, now)
		}
	}
	for seq, a := range in.attempts {
		p.inherited[seq] = &inheritedJob{record: a.attemptRecord, dueIn: a.dueIn, saved: true}
		p.records[seq] = a.revision
	}
	for _, r := range in.handover.Running {
		j := p.inherited[r.Seq]
		if j == nil {
			j = &inheritedJob{}
			p.inherited[r.Seq] = j
		}
		if in.crashed && r.Holder == in.owner || in.gone[r.Holder] || r.Holder == j.record.CrashedBy {
			j.crashed = r.Holder
		} else {
			j.holder = r.Holder
			p.unseen++
			p.unseenUntil = now.add(time.Duration(v.policy.Timeout))
		}
	}
	if len(in.handover.Done) > 0 {
		p.finished = map[uint64]struct{}{}
		for _, seq := range in.handover.Done {
			p.finished[seq] = struct{}{}
		}
	}
}

// wind sets a clock as the predecessor left it. After a crash that is all only if it is not due yet, nor would be at the rate of
// now had that held ever since, or if its bucket still cools down: nothing can have started since it was noted. Else it also
// waits as if a job had started just before the takeover, for it may be due by some clocks and not by others.
func (in inheritance) wind(c *clock, left clockRecord, p, before *pace, now instant) {
	noted := func(at, adapted instant) clock {
		c := clock{due: at.add(time.Duration(left.Due) * time.Microsecond), tat: at.add(time.Duration(left.Tat) * time.Microsecond)}
		p.adapt(&c, before, adapted)
		return c
	}
	wound := noted(now.add(-in.elapsed), now)
	if in.crashed {
		then := now.add(-max(in.age, in.elapsed))
		first := noted(then, then)
		if max(p.next(&first), then.add(time.Duration(left.Cool)*time.Microsecond)) <= now {
			wound.due, wound.tat = max(wound.due, c.due), max(wound.tat, c.tat)
		}
	}
	*c = wound
}

// before is the pace that a predecessor tells of, p itself where it tells none.
func (p *pace) before(rate string, burst int64) *pace {
	r, err := algorithms.ParseRate(rate)
	if err != nil {
		return p
	}
	return cmp.Or(newPace(r, burst), p)
}

// live lets the jobs of an opened partition start.
func (v *valve) live(p *partition, now instant) {
	p.state = partitionLive
	v.placeAll(p, now)
}

func (v *valve) placeAll(p *partition, now instant) {
	for _, b := range p.buckets {
		v.place(b, now)
	}
}

// restart is called when a partition's stream was made anew, which counts from 1 again: what is held of the old one is
// gone, and what still runs of it ends without effect. The clocks go on.
func (v *valve) restart(p *partition, now instant) {
	for seq, j := range p.jobs {
		b := j.bucket
		v.detach(j)
		delete(p.jobs, seq)
		b.held--
		switch {
		case j.stage == stageRunning && j.holder != "":
			b.running--
		case j.noting:
			b.noting--
			p.noting--
		}
		if j.recorded {
			v.out.forgets = append(v.out.forgets, forgotten{recordOf{p, seq}, p.records[seq]})
		}
		if j.stage != stageAcking {
			v.out.vanished++
		}
		j.enter(stageGone)
	}
	clear(p.inherited)
	clear(p.crashes)
	clear(p.records)
	p.highest, p.unseen, p.finished, p.recent, p.stale = 0, 0, nil, nil, 0
	v.placeAll(p, now)
}

// reopen is called when a partition's backlog is opened anew by the same owner: everything that is still stored will be
// delivered again.
func (v *valve) reopen(p *partition, epoch uint64) {
	p.epoch = epoch
	p.generation++
	p.sweeping = true
	if p.finished == nil { // else what the predecessor had finished is still to be delivered
		p.finished = map[uint64]struct{}{}
	}
	for _, f := range p.recent {
		p.finished[f.seq] = struct{}{}
	}
}

// swept is called when everything has been delivered that was stored when the backlog was opened. A job that was not is
// gone from the stream: it was acknowledged without our hearing of it, or somebody purged it. Of jobs after the last one
// of then nothing is said: who told which that was may have been out of date.
func (v *valve) swept(p *partition, now instant) {
	p.sweeping = false
	var missed []*job
	for _, j := range p.jobs {
		if j.generation != p.generation && j.Seq <= p.last {
			missed = append(missed, j)
		}
	}
	slices.SortFunc(missed, func(a, b *job) int { return cmp.Compare(a.Seq, b.Seq) }) // so that a seed goes one way
	for _, j := range missed {
		switch j.stage {
		case stageAcking:
			v.confirmed(p, j.Seq, now)
		case stageWaiting, stageDelayed:
			v.out.vanished++
			v.detach(j)
			v.remove(j, now)
			v.place(j.bucket, now)
		}
	}
	for seq, in := range p.inherited {
		if seq > p.last {
			continue
		}
		delete(p.inherited, seq)
		if in.saved {
			v.out.forgets = append(v.out.forgets, forgotten{recordOf{p, seq}, p.records[seq]})
			delete(p.records, seq)
		}
		if in.runs() {
			v.saw(p, now)
		}
	}
	maps.DeleteFunc(p.finished, func(seq uint64, _ struct{}) bool { return seq <= p.last })
}

// saw counts that an inherited run has arrived, or never will.
func (v *valve) saw(p *partition, now instant) {
	if p.unseen == 0 {
		return // it was waited for as long as an attempt may take
	}
	if p.unseen--; p.unseen == 0 {
		v.placeAll(p, now)
	}
}

// lookFor ends the wait for inherited runs that do not arrive.
func (v *valve) lookFor(p *partition, now instant) {
	if p.unseen > 0 && now >= p.unseenUntil {
		p.unseen = 0
		v.placeAll(p, now)
	}
}

// drop ends a partition that another process took.
func (v *valve) drop(p *partition) { v.leave(p, partitionLost) }

// surrender ends a partition in order and returns what its next owner needs. Outcomes that are still to come, or that came
// but are not recorded yet, are reported to that owner.
func (v *valve) surrender(p *partition, now instant) handover {
	h := v.handover(p, now, 0)
	for _, j := range p.jobs {
		switch {
		case j.stage == stageSaving:
			v.report(j, outcome{Seq: j.Seq, Kind: outcomeFailed, Error: j.lastError, Attempts: j.attempts})
		case j.stage == stageBurying && j.ran():
			v.report(j, outcome{
				Seq: j.Seq, Kind: outcomePermanent, Error: j.lastError, Reason: j.reason, Attempts: j.attempts,
			})
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(p.inherited)) {
		if in := p.inherited[seq]; in.outcome != nil { // it was told to us, but the job has not arrived here
			o := *in.outcome
			o.Holder, o.Stream = v.self, p.stream()
			v.out.reports = append(v.out.reports, report{v.policy.Name, p.number, o})
		}
	}
	p.holder = v.self
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
	o.Holder, o.Stream = v.self, j.bucket.part.stream()
	v.out.reports = append(v.out.reports, report{v.policy.Name, j.bucket.part.number, o})
}

func (v *valve) leave(p *partition, state partitionState) {
	p.state = state
	delete(v.parts, p.number)
	if state != partitionOpening {
		v.bodies -= p.bodies
		for _, b := range p.buckets {
			if b.down() {
				v.broken--
				b.target = nil
			}
		}
	}
	v.sched.retain(func(b scheduledBucket) bool { return b.part != p })
	v.due.retain(func(b dueBucket) bool { return b.part != p })
	v.unread.retain(func(b dueBucket) bool { return b.part != p })
	v.timers.retain(func(j timedJob) bool { return j.bucket.part != p })
}

// resume is called when starts are allowed again after they were not, because the lease was in doubt.
func (v *valve) resume(now instant) {
	if v.total != nil {
		v.total.hold(&v.totalClock, now)
	}
	for _, p := range v.parts {
		for _, b := range p.buckets {
			if b.pace != nil {
				b.pace.hold(&b.clock, now)
			}
			v.place(b, now)
		}
	}
}

// reported takes the outcome of a job that was running in another process when its partition was handed over. It is not
// that of the run which is known if it comes from a process that was declared dead and had the job before, or if the stream
// was made anew since.
func (v *valve) reported(p *partition, o outcome, now instant) {
	if o.Stream != 0 && o.Stream != p.stream() {
		return
	}
	if j := p.jobs[o.Seq]; j != nil {
		if j.holder == "" || o.Holder != "" && o.Holder != j.holder {
			return
		}
		switch j.stage {
		case stageWaiting: // its time was up, but the process lives
			v.detach(j)
			j.enter(stageRunning)
			j.bucket.running++
		case stageRunning:
		default:
			return
		}
		if o.Kind == outcomeProgress {
			v.lookAt(j, now.add(time.Duration(v.policy.Timeout)))
			v.place(j.bucket, now)
		} else {
			v.settle(j, o, now)
		}
		return
	}
	if in := p.inherited[o.Seq]; in != nil && in.holder != "" && in.outcome == nil && o.Kind != outcomeProgress &&
		(o.Holder == "" || o.Holder == in.holder) {
		in.outcome = &o
	}
}

// holderGone is called when a process that may run handed-over jobs has crashed.
func (v *valve) holderGone(holder string, now instant) {
	for _, p := range v.parts {
		for _, in := range p.inherited {
			if in.holder == holder && in.outcome == nil {
				in.holder, in.crashed = "", holder
				v.saw(p, now)
			}
		}
		for _, seq := range slices.Sorted(maps.Keys(p.jobs)) {
			if j := p.jobs[seq]; j.stage == stageRunning && j.holder == holder {
				j.bucket.running--
				j.holder = ""
				v.detach(j)
				v.crashed(j, holder)
				v.place(j.bucket, now)
			}
		}
		v.placeAll(p, now)
	}
}
