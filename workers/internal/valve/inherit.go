package valve

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/keyqueue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Own adds a partition, whose jobs start after GoLive.
func (v *Valve) Own(name handle.Partition, epoch uint64) *Part {
	if len(v.parts) == 0 { // information on the target is outdated
		v.health.Anew()
		v.forecast, v.coming = nil, nil
	}
	p := &Part{
		Partition: name,
		v:         v,
		Epoch:     epoch,
		state:     partitionOpening,
		stream:    stream{sweeping: true},
		holding: holding{buckets: map[job.Key]*bucket{}, jobs: map[uint64]*heldJob{},
			deep:  keyqueue.NewStore[*heldJob](time.Duration(v.Policy.PriorityStep)),
			begun: map[uint64]*heldJob{}},
		legacy:  legacy{inherited: map[uint64]*inheritedJob{}},
		crashes: map[uint64]string{}, progress: map[uint64]string{},
		records: map[uint64]uint64{},
	}
	v.parts[name.Number] = p
	if v.together != nil {
		v.together.part = p
	}
	return p
}

// Inheritance is a predecessor's state.
type Inheritance struct {
	// clocks missing in Handover are unknown
	Crashed bool
	Owner   string
	// the record is another process's, whose runs may go on
	Former   bool
	Elapsed  time.Duration // least time since Handover was stored
	Age      time.Duration // most time since it was built
	Handover record.Handover
	Attempts map[uint64]StoredAttempt
	// no owner has stored a checkpoint, so there were no starts under limits
	Unstarted bool
	Fence     time.Duration   // how long a crashed predecessor may still start jobs
	Gone      map[string]bool // dead holders of running jobs
}

// StoredAttempt is an attempt record; DueIn counts from the takeover.
type StoredAttempt struct {
	record.Attempt
	Stored   time.Time
	Revision uint64
}

// othersRun reports whether runs that nobody recorded may go on in processes that live: in those of
// another owner's checkpoint, or without one.
func (in Inheritance) othersRun() bool {
	return in.Crashed && (in.Former || in.Handover.ByCost == nil)
}

func (in Inheritance) slack() time.Duration { return max(0, in.Age-in.Elapsed) }

// inherit applies a predecessor's record. After a crash, each bucket counts as having started a job
// at the last moment, the old owner's fence, unless a checkpoint shows that it was not due (law 2).
// That costs a bucket at most one interval and its burst.
func (p *Part) inherit(in Inheritance, now pace.Instant) {
	switch {
	case in.Crashed || in.Handover.Partial:
		p.crashedAt = now.Add(in.Fence)
	case in.Handover.Crashed > 0:
		p.crashedAt = now.Add(-time.Duration(in.Handover.Crashed)*time.Microsecond - in.Elapsed)
	}
	left := func(us int64) pace.Instant {
		return now.Add(time.Duration(us)*time.Microsecond - in.Elapsed)
	}
	if in.Handover.Rest > 0 {
		p.restsUntil = left(in.Handover.Rest)
	}
	if t := &p.v.total; t.Pace != nil && (in.Crashed || in.Handover.Partial) {
		t.Hold(max(now.Add(in.Fence+t.Interval), p.restsUntil))
	}
	p.v.inheritTogether(in, now)
	p.inheritCrash(in, now)
	for _, c := range in.Handover.Clocks {
		if c.Key == "" {
			if t := &p.v.total; t.Pace != nil {
				in.wind(&t.Clock, c, t.Pace, t.Before(in.Handover.Total, 1), now)
			}
			continue
		}
		b := p.bucket(c.Key, now)
		p.v.inheritUsed(b, c, in, now)
		p.v.inheritLearnt(b, c.Learnt, left(0), now)
		if cool := left(c.Cool); c.Cool > 0 && cool > now {
			b.own().Cool, b.Throttles = cool, c.Throttles
		}
		if c.Starts > 0 {
			b.own().rate = pace.Averaged(min(c.Starts, 1e9), left(0))
		}
		if c.Down > 0 {
			b.own().Target = p.v.health.Inherit(c.Down, left(c.Probe), now)
		}
		if b.pace != nil {
			before := b.pace.Before(cmp.Or(c.Rate, in.Handover.Rate),
				cmp.Or(c.Burst, in.Handover.Burst))
			in.wind(&b.clock, c, b.pace, before, now)
		}
	}
	p.edits.inherit(in.Handover.Edits)
	p.ended.Inherit(in.Handover.Ended, now)
	if !in.Crashed {
		p.open.Inherit(in.Handover.Calls, now)
	}
	p.through, p.newest = in.Handover.Through, max(p.newest, in.Handover.Through)
	for seq, a := range in.Attempts {
		p.inherited[seq] = &inheritedJob{record: a.Attempt, saved: true}
		p.records[seq] = a.Revision
	}
	for _, r := range in.Handover.Running {
		j := p.inherited[r.Seq]
		if j == nil {
			j = &inheritedJob{}
			p.inherited[r.Seq] = j
		}
		// A crash counts when the job arrives, unless its attempt record has it.
		if in.Crashed && r.Holder == in.Owner || in.Gone[r.Holder] ||
			r.Holder == j.record.CrashedBy {
			j.crashed = r.Holder
		} else {
			j.holder = r.Holder
			p.unseen++
			p.unseenUntil = now.Add(time.Duration(p.v.Policy.Timeout))
		}
	}
	if len(in.Handover.Done) > 0 {
		p.finished = map[uint64]int64{}
		for _, seq := range in.Handover.Done {
			p.finished[seq] = 0
		}
	}
}

// notInherited applies to nearly every job. It is read-only.
var notInherited = &inheritedJob{}

// takeIn returns an arrived job's inherited state, unless that is of another job: restored streams
// repeat sequences.
func (p *Part) takeIn(seq uint64, stored int64) *inheritedJob {
	in := p.inherited[seq]
	if in == nil {
		return notInherited
	}
	delete(p.inherited, seq)
	if p.newer(stored) {
		if in.runs() {
			p.saw()
		}
		in.holder, in.crashed, in.outcome = "", "", nil
	}
	if in.record.Job != 0 && in.record.Job != stored {
		in.record = record.Attempt{}
	}
	return in
}

// wind sets a clock from a record. After a crash the clock also waits an interval from the fence,
// unless no job can start before it. Waits use the least elapsed time, because no wait may end
// early; possible starts use the most, because no start may be missed.
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
		notBefore := max(p.Next(&first), then.Add(time.Duration(left.Cool)*time.Microsecond))
		if notBefore <= now.Add(in.Fence) {
			due, tat = max(due, c.Due), max(tat, c.Tat)
		}
	}
	c.Set(due, tat)
}

// Opened records an opened backlog; left is nil if it was reopened.
func (p *Part) Opened(created time.Time, last uint64, left *Inheritance, now pace.Instant) {
	p.last = last
	switch {
	case left != nil:
		p.inherit(*left, now)
	case !created.Equal(p.created):
		p.restart()
	}
	p.created = created
}

// Behind reports whether the stream's state is older than one seen before.
func (p *Part) Behind(created time.Time, last uint64) bool {
	return created.Equal(p.created) && last < max(p.highest, p.last)
}

func (p *Part) GoLive(now pace.Instant) {
	if p.state == partitionOpening && !p.Quiesced {
		p.state = partitionLive
		p.changed()
	}
}

// changed marks all buckets.
func (p *Part) changed() {
	for _, b := range p.buckets {
		b.changed()
	}
}

func (v *Valve) NotedFirst(of *Valve, now pace.Instant) {
	shares := slices.ContainsFunc(v.common, func(t *together) bool { return t.host == of })
	if of == v && v.quota != nil || shares {
		for _, p := range v.parts {
			p.changed()
		}
	}
}

// restart handles a recreated stream. Clocks, cool-downs and breakers stay (law 2).
func (p *Part) restart() {
	for _, j := range p.jobs {
		p.v.lose(j)
	}
	p.loseDeep()
	clear(p.inherited)
	clear(p.crashes)
	clear(p.records)
	p.highest, p.unseen, p.finished, p.recent, p.stale = 0, 0, nil, nil, 0
	p.deep.Restart()
	p.changed()
}

// lose drops a job that left the stream. A local run holds concurrency until it ends; a remote one
// will never report.
func (v *Valve) lose(j *heldJob) {
	v.detach(j)
	switch {
	case j.stage == stageRunning && j.holder != "":
		j.Bucket.runs(-1)
	case j.noting:
		j.Bucket.notes(-1)
	}
	if j.stage != stageAcking {
		v.out.Vanished++
	}
	v.remove(j)
}

// Reopen prepares for a reopened backlog, which redelivers every job.
func (p *Part) Reopen(epoch uint64) {
	p.Epoch = epoch
	p.generation++
	p.sweeping = true
	if p.finished == nil {
		p.finished = map[uint64]int64{}
	}
	for _, f := range p.recent {
		p.finished[f.seq] = f.stored
	}
}

// Swept records that all jobs stored at the opening have arrived. A waiting job that has not would
// block its bucket (law 5), and is gone: acknowledged unnoticed, or purged by another client.
func (p *Part) Swept(now pace.Instant) {
	p.sweeping = false
	var missed []*heldJob
	for _, j := range p.jobs {
		if j.generation != p.generation && j.Seq <= p.last {
			missed = append(missed, j)
		}
	}
	slices.SortFunc(missed, func(a, b *heldJob) int { return cmp.Compare(a.Seq, b.Seq) })
	p.sweepDeep()
	for _, j := range missed {
		switch j.stage {
		case stageAcking:
			p.Confirmed(j.Seq, now)
		case stageWaiting, stageDelayed:
			p.v.vanish(j)
		}
	}
	for seq, in := range p.inherited {
		if seq > p.last {
			continue
		}
		delete(p.inherited, seq)
		if in.saved {
			p.v.out.Forgets = append(p.v.out.Forgets,
				Forgotten{handle.Ref{Part: p.Partition, Seq: seq}, p.records[seq]})
			delete(p.records, seq)
		}
		if in.runs() {
			p.saw()
		}
	}
	maps.DeleteFunc(p.finished, func(seq uint64, _ int64) bool { return seq <= p.last })
	maps.DeleteFunc(p.edits.jobs, func(seq uint64, _ record.Edit) bool {
		return seq <= p.last && p.jobs[seq] == nil
	})
}

// saw counts an inherited run that has arrived, or never will. A missing one may use any bucket's
// concurrency, because runs are recorded by sequence.
func (p *Part) saw() {
	if p.unseen == 0 {
		return
	}
	if p.unseen--; p.unseen == 0 {
		p.changed()
	}
}

func (p *Part) Looks() bool { return p.unseen > 0 }

// LookFor ends the wait for missing inherited runs.
func (p *Part) LookFor(now pace.Instant) {
	if p.unseen > 0 && now >= p.unseenUntil {
		p.unseen = 0
		p.changed()
	}
}

// Resume handles a regained lease. Missed starts are not due at once (law 2), and the gap earns no
// burst.
func (v *Valve) Resume(now pace.Instant) {
	v.total.Hold(now)
	v.placeChanged(now)
	for _, p := range v.parts {
		for _, b := range p.buckets {
			b.missed(gates.ByStorage, v.acted, now)
			b.pace.Hold(&b.clock, now)
			b.changed()
		}
	}
}

// Reported handles the outcome of a job that another process ran during a handover, unless it is of
// a dead process or a former stream. A late one counts unless the job has restarted; an early one
// is kept for its job.
func (p *Part) Reported(o record.Outcome, now pace.Instant) {
	if o.Stream != 0 && o.Stream != p.Stream() {
		return
	}
	if j := p.jobs[o.Seq]; j != nil {
		if j.holder == "" || o.Holder != "" && o.Holder != j.holder {
			return
		}
		switch j.stage {
		case stageWaiting:
			p.v.detach(j)
			j.enter(stageRunning)
			j.Bucket.runs(1)
		case stageRunning:
		default:
			return
		}
		if o.Kind == record.OutcomeProgress {
			if o.Progress != "" {
				p.progress[o.Seq] = o.Progress
			}
			p.v.lookAt(j, now.Add(time.Duration(p.v.Policy.Timeout)))
			p.v.awaits(j, now)
			j.Bucket.changed()
		} else {
			p.v.settle(j, o, now)
		}
		return
	}
	if in := p.inherited[o.Seq]; in != nil && in.holder != "" && in.outcome == nil &&
		o.Kind != record.OutcomeProgress && (o.Holder == "" || o.Holder == in.holder) {
		in.outcome = &o
	}
}

// HolderGone counts a crash of the jobs that a dead process ran.
func (v *Valve) HolderGone(holder string, now pace.Instant) {
	for _, p := range v.parts {
		for _, in := range p.inherited {
			if in.holder == holder && in.outcome == nil {
				in.holder, in.crashed = "", holder
				p.saw()
			}
		}
		for _, seq := range slices.Sorted(maps.Keys(p.jobs)) {
			if j := p.jobs[seq]; j.stage == stageRunning && j.holder == holder {
				j.Bucket.runs(-1)
				j.holder = ""
				v.detach(j)
				v.crashed(j, holder)
			}
		}
		p.changed()
	}
}
