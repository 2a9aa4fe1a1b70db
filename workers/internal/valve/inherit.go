package valve

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/calls"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/keyqueue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Own adds a partition, whose jobs start after GoLive.
func (v *Valve) Own(name handle.Partition, epoch uint64) *Part {
	if len(v.parts) == 0 { // information on the target is outdated
		v.health.Anew()
		v.foresight = &foresight{}
	}
	p := &Part{
		Partition: name,
		v:         v,
		agenda:    v.agenda,
		Epoch:     epoch,
		state:     partitionOpening,
		stream:    stream{sweeping: true},
		holding: holding{buckets: map[queue.Key]*bucket{}, jobs: map[uint64]*heldJob{},
			deep:  keyqueue.NewStore[*heldJob](time.Duration(v.Policy.PriorityStep)),
			calls: calls.New(&v.Crew.Claimants), begun: map[uint64]*heldJob{}},
		legacy:   inheritance.New(),
		progress: map[uint64]string{},
	}
	v.parts[name.Number] = p
	if v.together != nil {
		v.together.part = p
	}
	return p
}

// inherit applies a predecessor's record. After a crash, each bucket counts as having started a job
// at the last moment, the old owner's fence, unless a checkpoint shows that it was not due (law 2).
// That costs a bucket at most one interval and its burst.
func (p *Part) inherit(in inheritance.State, now pace.Instant) {
	p.legacy.Inherit(in, p.v.quota, time.Duration(p.v.Policy.Timeout), now)
	for cost, b := range in.Handover.ByCost {
		p.Checkpoints.Cost(cost, b.Cost)
	}
	if t := &p.v.total; t.Pace != nil && in.Partly() {
		t.Hold(p.legacy.Holds(t.Interval))
	}
	p.v.inheritTogether(in, now)
	for _, c := range in.Handover.Clocks {
		if c.Key == "" {
			if t := &p.v.total; t.Pace != nil {
				in.Wind(&t.Clock, c, t.Pace, t.Before(in.Handover.Total, 1), now)
			}
			continue
		}
		b := p.bucket(c.Key, now)
		if l := p.v.quota; l != nil {
			b.own().Used = in.Restore(l, c.Used, in.Handover.Limits, p.legacy.Listed(),
				p.v.wall.reading, now)
		}
		p.v.learning.inherit(b, p.v.limitsOf(c.Key), c.Learnt, in.Left(0, now), now)
		if cool := in.Left(c.Cool, now); c.Cool > 0 && cool > now {
			b.own().Cool, b.Throttles = cool, c.Throttles
		}
		if c.Starts > 0 {
			b.own().rate = pace.Averaged(min(c.Starts, 1e9), in.Left(0, now))
		}
		if c.Down > 0 {
			b.own().Target = p.v.health.Inherit(c.Down, in.Left(c.Probe, now), now)
		}
		if b.pace != nil {
			before := b.pace.Before(cmp.Or(c.Rate, in.Handover.Rate),
				cmp.Or(c.Burst, in.Handover.Burst))
			in.Wind(&b.clock, c, b.pace, before, now)
		}
	}
	p.edits.Inherit(in.Handover.Edits)
	p.calls.Inherit(in.Handover.Ended, in.Handover.Calls, in.Crashed, now)
	p.newest = max(p.newest, in.Handover.Through)
}

// Opened records an opened backlog; left is nil if it was reopened.
func (p *Part) Opened(created time.Time, last uint64, left *inheritance.State, now pace.Instant) {
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
	shares := func(t *together) bool { return t.host == &of.startLimits }
	if of == v && v.quota != nil || slices.ContainsFunc(v.common, shares) {
		for _, p := range v.parts {
			p.changed()
		}
	}
}

// restart handles a recreated stream. Clocks, cool-downs and breakers stay (law 2).
func (p *Part) restart() {
	for _, j := range p.jobs {
		p.v.stock.lose(j)
	}
	p.loseDeep()
	p.legacy.Restart()
	p.highest = 0
	p.deep.Restart()
	p.changed()
}

// Reopen prepares for a reopened backlog, which redelivers every job.
func (p *Part) Reopen(epoch uint64) {
	p.Epoch = epoch
	p.generation++
	p.sweeping = true
	p.legacy.Reopen()
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
			p.v.stock.lose(j)
		}
	}
	gone, seen := p.legacy.Swept(p.last)
	for seq, revision := range gone {
		p.v.out.Forgets = append(p.v.out.Forgets,
			Forgotten{handle.Ref{Part: p.Partition, Seq: seq}, revision})
	}
	if seen {
		p.changed()
	}
	p.edits.Swept(p.last, func(seq uint64) bool { return p.jobs[seq] != nil })
}

// LookFor ends the wait for inherited runs that have not arrived, and reports whether it goes on.
func (p *Part) LookFor(now pace.Instant) (goesOn bool) {
	if p.legacy.LookFor(now) {
		p.changed()
	}
	return p.legacy.Unseen()
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
			p.v.stock.detach(j)
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
			p.v.agenda.lookAt(j, now.Add(time.Duration(p.v.Policy.Timeout)))
			p.v.awaits(j, now)
			j.Bucket.changed()
		} else {
			p.v.settle(j, o, now)
		}
		return
	}
	p.legacy.Report(o)
}

// HolderGone counts a crash of the jobs that a dead process ran.
func (v *Valve) HolderGone(holder string, now pace.Instant) {
	for _, p := range v.parts {
		p.legacy.HolderGone(holder)
		for _, seq := range slices.Sorted(maps.Keys(p.jobs)) {
			if j := p.jobs[seq]; j.stage == stageRunning && j.holder == holder {
				j.Bucket.runs(-1)
				j.holder = ""
				v.stock.detach(j)
				v.out.crashed(j, holder)
			}
		}
		p.changed()
	}
}
