package valve

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/deep"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Own begins a partition: jobs arrive, and start once live is called.
//
// It is sweeping until everything has come that was stored before, which keeps it from saying what
// it cannot know yet.
func (v *Valve) Own(name handle.Partition, epoch uint64) *Part {
	if len(v.parts) == 0 { // what it knew of the target, and expected, is of another time
		v.breaker, v.suspects = breaker{}, nil
		v.forecast, v.coming = nil, nil
	}
	p := &Part{
		Partition: name,
		Epoch:     epoch,
		state:     partitionOpening,
		sweeping:  true,
		buckets:   map[job.Key]*bucket{},
		jobs:      map[uint64]*heldJob{},
		deep:      deep.New[deepLane](),
		begun:     map[uint64]*heldJob{},
		inherited: map[uint64]*inheritedJob{},
		crashes:   map[uint64]string{},
		records:   map[uint64]uint64{},
	}
	v.parts[name.Number] = p
	if v.together != nil {
		v.together.part = p
	}
	return p
}

// inheritance is what a new owner knows of a partition.
type Inheritance struct {
	// the predecessor crashed: clocks that handover does not list are unknown
	Crashed  bool
	Owner    string        // the predecessor
	Elapsed  time.Duration // from when handover was stored until the takeover, at least …
	Age      time.Duration // … and from when it was put together, at most
	Handover record.Handover
	Attempts map[uint64]InheritedAttempt
	// Handover is the last checkpoint of the owner that crashed, or of the last one before it that
	// has started anything under limits
	Current bool
	// no owner has started anything under limits
	Unstarted bool
	Fence     time.Duration   // after a crash: how long the predecessor may still start jobs
	Gone      map[string]bool // holders of running jobs that will not report any more
}

type InheritedAttempt struct {
	record.Attempt
	DueIn    time.Duration
	Revision uint64
}

// slack is by how much what a predecessor told may be older than it counts here.
func (in Inheritance) slack() time.Duration { return max(0, in.Age-in.Elapsed) }

// unknown is for how long a predecessor that crashed may have started jobs of which nothing tells.
func (in Inheritance) unknown() time.Duration {
	within := in.Age + in.Fence
	if gap := time.Duration(in.Handover.Gap) * time.Microsecond; gap > 0 && in.Current {
		within = min(within, gap)
	}
	return within
}

// within is the most units that a predecessor that crashed has started of which nothing tells, if
// it kept to a budget: the last job may have cost more than was left of that, as much as any has.
// 0: it kept none.
func (in Inheritance) within(most, budget, cost int64) int64 {
	if in.Unstarted {
		return 0
	}
	if in.Current && budget > 0 {
		most = min(most, budget-1+max(cost, 1))
	}
	return most
}

// inherit applies what the predecessor left. After a crash each bucket counts as having started a
// job at the last moment its old owner could have, unless a checkpoint shows that its next start
// was not due yet.
//
// The last moment that the old owner had was its fence, before which this process cannot have taken
// the partition. So the takeover is as late as that, or later, and one interval from then on keeps
// law 2 whatever the old owner did: that is why nothing needs to be known of it. It costs a bucket
// at most one interval, and its burst.
func (v *Valve) inherit(p *Part, in Inheritance, now pace.Instant) {
	switch {
	case in.Crashed || in.Handover.Partial:
		p.crashedAt = now.Add(in.Fence)
	case in.Handover.Crashed > 0:
		p.crashedAt = now.Add(-time.Duration(in.Handover.Crashed)*time.Microsecond - in.Elapsed)
	}
	left := func(us int64) pace.Instant {
		return now.Add(time.Duration(us)*time.Microsecond - in.Elapsed)
	}
	// There was no room for all clocks: those that are not listed wait for the longest of them.
	if in.Handover.Rest > 0 {
		p.restsUntil = left(in.Handover.Rest)
	}
	// What all buckets started together is not known either, or was not told.
	if in.Crashed || in.Handover.Partial {
		if v.total != nil {
			v.total.Hold(&v.totalClock, max(now.Add(in.Fence+v.total.Interval), p.restsUntil))
		}
	}
	v.inheritTogether(in, now)
	v.inheritCrash(p, in, now)
	for _, c := range in.Handover.Clocks {
		if c.Key == "" {
			if v.total != nil {
				in.wind(&v.totalClock, c, v.total, v.total.Before(in.Handover.Total, 1), now)
			}
			continue
		}
		b := v.bucket(p, c.Key, now)
		v.inheritUsed(b, c, in, now)
		v.inheritLearnt(b, c.Learnt, left(0), now)
		if cool := left(c.Cool); c.Cool > 0 && cool > now {
			b.cool, b.own().throttles = cool, c.Throttles
		}
		if c.Starts > 0 {
			b.own().rate = pace.Averaged(min(c.Starts, 1e9), left(0))
		}
		// The breaker stays open over a change of owners, or each deployment during an outage would
		// cost attempts again.
		if c.Down > 0 {
			// may be now, and what begins then is a probe
			probe := min(left(c.Probe), now.Add(mostProbeWait))
			b.own().target = &suspicion{breaker: breaker{open: true, since: now - 1,
				failures: c.Down, at: probe}}
			v.broken++
		}
		if b.pace != nil {
			before := b.pace.Before(cmp.Or(c.Rate, in.Handover.Rate),
				cmp.Or(c.Burst, in.Handover.Burst))
			in.wind(&b.clock, c, b.pace, before, now)
		}
	}
	p.edits.inherit(in.Handover.Edits)
	p.through, p.newest = in.Handover.Through, max(p.newest, in.Handover.Through)
	for seq, a := range in.Attempts {
		p.inherited[seq] = &inheritedJob{record: a.Attempt, dueIn: a.DueIn, saved: true}
		p.records[seq] = a.Revision
	}
	for _, r := range in.Handover.Running {
		j := p.inherited[r.Seq]
		if j == nil {
			j = &inheritedJob{}
			p.inherited[r.Seq] = j
		}
		// Its crash is counted when the job comes. One whose crash is in the attempt record is
		// counted already, and gone for certain, also where nobody here has met its lease or
		// tombstone.
		if in.Crashed && r.Holder == in.Owner || in.Gone[r.Holder] ||
			r.Holder == j.record.CrashedBy {
			j.crashed = r.Holder
		} else {
			j.holder = r.Holder
			p.unseen++
			p.unseenUntil = now.Add(time.Duration(v.Policy.Timeout))
		}
	}
	if len(in.Handover.Done) > 0 {
		p.finished = map[uint64]int64{}
		for _, seq := range in.Handover.Done {
			p.finished[seq] = 0
		}
	}
}

// notInherited is nearly every job. Nobody changes it.
var notInherited = &inheritedJob{}

// takeIn returns what is inherited of a job that has come. What is told of its sequence may be
// about another job: when a backup of the stream is restored, jobs get the sequences of those that
// it lacks. They would be lost if they ended with those.
func (v *Valve) takeIn(p *Part, seq uint64, stored int64, now pace.Instant) *inheritedJob {
	in := p.inherited[seq]
	if in == nil {
		return notInherited
	}
	delete(p.inherited, seq)
	if p.newer(stored) {
		if in.runs() {
			v.saw(p, now)
		}
		in.holder, in.crashed, in.outcome = "", "", nil
	}
	if in.record.Job != 0 && in.record.Job != stored {
		in.record, in.dueIn = record.Attempt{}, 0
	}
	return in
}

// wind sets a clock as the predecessor left it. After a crash that is all only if it is not due
// yet, nor would be at the rate of now had that held ever since, or if its bucket still cools down:
// nothing can have started since it was noted. Else it also waits as if a job had started just
// before the takeover, for it may be due by some clocks and not by others.
//
// The two are asked by different ages. Waits go by the least time that can have passed, or they
// would end early; whether a start can have happened by the most, or one would be overlooked.
func (in Inheritance) wind(c *pace.Clock, left record.Clock, p, before *pace.Pace,
	now pace.Instant) {
	noted := func(c *pace.Clock, at, adapted pace.Instant) {
		c.Set(at.Add(time.Duration(left.Due)*time.Microsecond),
			at.Add(time.Duration(left.Tat)*time.Microsecond))
		p.Adapt(c, before, adapted)
	}
	var wound, first pace.Clock
	noted(&wound, now.Add(-in.Elapsed), now)
	due, tat := wound.Due, wound.Tat
	if in.Crashed {
		then := now.Add(-max(in.Age, in.Elapsed))
		noted(&first, then, then)
		if max(p.Next(&first), then.Add(time.Duration(left.Cool)*time.Microsecond)) <= now {
			due, tat = max(due, c.Due), max(tat, c.Tat)
		}
	}
	c.Set(due, tat)
}

// Opened takes that a partition's backlog was opened: of which stream, what its last sequence is,
// and what the predecessor left; nil: this is not the first opening.
func (v *Valve) Opened(p *Part, created time.Time, last uint64, left *Inheritance,
	now pace.Instant) {
	p.last = last
	switch {
	case left != nil:
		v.inherit(p, *left, now)
	case !created.Equal(p.created):
		v.restart(p, now)
	}
	p.created = created
}

// Behind reports whether less is known of a partition's stream than was seen of it before.
func (p *Part) Behind(created time.Time, last uint64) bool {
	return created.Equal(p.created) && last < max(p.highest, p.last)
}

// Live lets the jobs of an opened partition start, unless it is quiesced.
func (v *Valve) Live(p *Part, now pace.Instant) {
	if p.state == partitionOpening && !p.Quiesced {
		p.state = partitionLive
		v.placeAll(p, now)
	}
}

func (v *Valve) placeAll(p *Part, now pace.Instant) {
	for _, b := range p.buckets {
		v.place(b, now)
	}
}

// NotedFirst lets buckets go on that wait for the first checkpoint of a partition of the valve, or
// of a limit that its policy shares.
func (v *Valve) NotedFirst(of *Valve, now pace.Instant) {
	shares := slices.ContainsFunc(v.common, func(t *together) bool { return t.host == of })
	if of == v && v.quota != nil || shares {
		v.untold = 0
		for _, p := range v.parts {
			v.placeAll(p, now)
		}
	}
}

// restart is called when a partition's stream was recreated, which counts from 1 again: what is
// held of the old one is gone, and what still runs of it ends without effect. The clocks go on.
//
// A target's limits do not begin anew with a stream, so neither do the clocks, cool-downs and
// breakers of buckets (law 2).
func (v *Valve) restart(p *Part, now pace.Instant) {
	for _, j := range p.jobs {
		v.lose(j)
	}
	v.loseDeep(p)
	clear(p.inherited)
	clear(p.crashes)
	clear(p.records)
	p.highest, p.unseen, p.finished, p.recent, p.stale = 0, 0, nil, nil, 0
	p.arrivals = arrivals{}
	v.placeAll(p, now)
}

// lose lets go of a job that is no longer in the stream, whatever was to become of it.
//
// A run of it that a worker here has goes on, for it cannot be called back, and still holds its
// bucket's concurrency until it ends; one elsewhere will never report, and holds it no more.
func (v *Valve) lose(j *heldJob) {
	b, p := j.Bucket, j.Bucket.Part
	v.detach(j)
	v.unweigh(j)
	delete(p.jobs, j.Seq)
	b.held--
	switch {
	case j.stage == stageRunning && j.holder != "":
		b.running--
	case j.noting:
		b.noting--
		p.noting--
	}
	if j.recorded {
		v.out.Forgets = append(v.out.Forgets, Forgotten{j.ref(), p.records[j.Seq]})
	}
	delete(p.crashes, j.Seq)
	delete(p.records, j.Seq)
	delete(p.edits.jobs, j.Seq)
	if j.stage != stageAcking {
		v.out.Vanished++
	}
	j.enter(stageGone)
}

// Reopen is called when a partition's backlog is opened anew by the same owner: everything that is
// still stored will be delivered again.
//
// The jobs are kept, so that those which run are not started beside their runs, and so are those
// that finished lately: a leader that had been cut off stores them still.
func (v *Valve) Reopen(p *Part, epoch uint64) {
	p.Epoch = epoch
	p.generation++
	p.sweeping = true
	if p.finished == nil { // else what the predecessor had finished is still to be delivered
		p.finished = map[uint64]int64{}
	}
	for _, f := range p.recent {
		p.finished[f.seq] = f.stored
	}
}

// Swept is called when everything has been delivered that was stored when the backlog was opened. A
// job that was not is gone from the stream: it was acknowledged without our hearing of it, or
// somebody purged it. Of jobs after the last one of then nothing is said: who told which that was
// may have been out of date.
//
// Without it a job that was acknowledged while deliveries got lost would hold its place for ever:
// its bucket's head, its concurrency, or the process that waits to end (law 5). A run that is under
// way is left alone; how it ends tells the rest.
func (v *Valve) Swept(p *Part, now pace.Instant) {
	p.sweeping = false
	var missed []*heldJob
	for _, j := range p.jobs {
		if j.generation != p.generation && j.Seq <= p.last {
			missed = append(missed, j)
		}
	}
	// so that a seed goes one way
	slices.SortFunc(missed, func(a, b *heldJob) int { return cmp.Compare(a.Seq, b.Seq) })
	surfaced := v.sweepDeep(p)
	for _, j := range missed {
		switch j.stage {
		case stageAcking:
			v.Confirmed(p, j.Seq, now)
		case stageWaiting, stageDelayed:
			v.out.Vanished++
			v.detach(j)
			v.remove(j, now)
			v.place(j.Bucket, now)
		}
	}
	for _, b := range surfaced {
		v.place(b, now)
	}
	for seq, in := range p.inherited {
		if seq > p.last {
			continue
		}
		delete(p.inherited, seq)
		if in.saved {
			v.out.Forgets = append(v.out.Forgets,
				Forgotten{handle.Ref{Part: p.Partition, Seq: seq}, p.records[seq]})
			delete(p.records, seq)
		}
		if in.runs() {
			v.saw(p, now)
		}
	}
	maps.DeleteFunc(p.finished, func(seq uint64, _ int64) bool { return seq <= p.last })
	maps.DeleteFunc(p.edits.jobs, func(seq uint64, _ record.Edit) bool {
		return seq <= p.last && p.jobs[seq] == nil
	})
}

// saw counts that an inherited run has arrived, or never will.
//
// While one is missing, no bucket of the partition knows whether its concurrency is taken, for a
// run is told by sequence and not by key: none starts more than it may.
func (v *Valve) saw(p *Part, now pace.Instant) {
	if p.unseen == 0 {
		return // it was waited for as long as an attempt may take
	}
	if p.unseen--; p.unseen == 0 {
		v.placeAll(p, now)
	}
}

// LookFor ends the wait for inherited runs that do not arrive.
//
// They would otherwise hold every bucket of the partition back for good, if the jobs were removed
// from the stream in the moment of the takeover.
func (v *Valve) LookFor(p *Part, now pace.Instant) {
	if p.unseen > 0 && now >= p.unseenUntil {
		p.unseen = 0
		v.placeAll(p, now)
	}
}

// Resume is called when starts are allowed again after they were not, because the lease was in
// doubt.
//
// What was missed meanwhile is not due at once, or each lapse would end in a clump (law 2), and it
// was no idleness, which would earn a burst.
func (v *Valve) Resume(now pace.Instant) {
	if v.total != nil {
		v.total.Hold(&v.totalClock, now)
	}
	for _, p := range v.parts {
		for _, b := range p.buckets {
			v.missed(b, byStorage, v.acted, now)
			if b.pace != nil {
				b.pace.Hold(&b.clock, now)
			}
			v.place(b, now)
		}
	}
}

// Reported takes the outcome of a job that was running in another process when its partition was
// handed over. It is not that of the run which is known if it comes from a process that was
// declared dead and had the job before, or if the stream was recreated since.
//
// It is heard even when the wait for it is over, unless the job has started again: it is true, and
// saves a second run. An outcome that comes before its job is kept for it.
func (v *Valve) Reported(p *Part, o record.Outcome, now pace.Instant) {
	if o.Stream != 0 && o.Stream != p.Stream() {
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
			j.Bucket.own().running++
		case stageRunning:
		default:
			return
		}
		if o.Kind == record.OutcomeProgress {
			v.lookAt(j, now.Add(time.Duration(v.Policy.Timeout)))
			v.place(j.Bucket, now)
		} else {
			v.settle(j, o, now)
		}
		return
	}
	if in := p.inherited[o.Seq]; in != nil && in.holder != "" && in.outcome == nil &&
		o.Kind != record.OutcomeProgress &&
		(o.Holder == "" || o.Holder == in.holder) {
		in.outcome = &o
	}
}

// HolderGone is called when a process that may run handed-over jobs has crashed.
//
// Nobody else can tell what became of them. They go back to their places as after a crash of the
// owner, and count a crash, so that a job that kills whoever runs it is found out wherever it runs.
func (v *Valve) HolderGone(holder string, now pace.Instant) {
	for _, p := range v.parts {
		for _, in := range p.inherited {
			if in.holder == holder && in.outcome == nil {
				in.holder, in.crashed = "", holder
				v.saw(p, now)
			}
		}
		for _, seq := range slices.Sorted(maps.Keys(p.jobs)) {
			if j := p.jobs[seq]; j.stage == stageRunning && j.holder == holder {
				j.Bucket.running--
				j.holder = ""
				v.detach(j)
				v.crashed(j, holder)
				v.place(j.Bucket, now)
			}
		}
		v.placeAll(p, now)
	}
}
