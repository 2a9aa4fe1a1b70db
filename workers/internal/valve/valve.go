// Package valve decides when the jobs of one policy start in this drainer, and what becomes of
// them. It is told what happened and when (a job arrived, a run ended, time passed, the partition
// is another's) and adds to its Actions what is to be done; it does no I/O and reads no clock.
//
//   - valve.go, bucket.go, walk.go: the partitions, buckets, jobs and workers of a policy;
//     limits.go: the numbers they obey; adapt.go: what they have learnt of their target's limit;
//   - schedule.go: when the next job of a bucket may start; starts.go: which of them does;
//     bodies.go: whether its body is at hand; ticket.go: the last check before a start, the one
//     thing that runs beside the valve;
//   - settle.go: what becomes of a job by its outcome, and what is noted of its failures;
//     breaker.go: what is remembered of a target that is down;
//   - claims.go: when it asks for workers in other processes, and which of them gets a job;
//   - inherit.go, handover.go: what a new owner of a partition makes of what the former one told,
//     and what it tells the next;
//   - questions.go: what others ask; inspect.go, forecast.go: how buckets and jobs stand, and when
//     jobs will start;
//   - edits.go: how jobs differ from what is stored of them, because an operator wants that;
//   - actions.go: what it wants done.
package valve

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/heap"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

// valve decides when the jobs of one policy start in this drainer: those of every partition that it
// owns. It is a pure state machine: it is told what happened and when, and adds to its actions what
// is to be done. It starts nothing, waits for nothing and reads no clock.
//
// Buckets are in one of three heaps, or in none: those whose start lies ahead by when that is,
// those that are due by whose turn it is, and those that would be due but for a body. So a turn of
// the loop costs by what happens in it, and not by how many buckets or jobs there are.
type Valve struct {
	Policy policy.Policy
	paused bool           // by an operator, all of it
	base   *limits        // what buckets without an override obey
	Self   string         // this process, as holder of running jobs
	random func() float64 // in [0, 1), for the jitter of backoffs
	out    *Actions

	quota      *quota.Limits                // on starts, of each bucket; nil: there are none
	together   *together                    // likewise, of all buckets together
	shared     []*together                  // likewise, of several policies
	common     []*together                  // these two
	candidates *quota.Candidates            // likewise, which hold nothing back
	wall       func(pace.Instant) time.Time // JetStream's clock

	overrides map[job.Key]policy.Override
	special   map[job.Key]*limits // what the keys with an override obey

	// One rate for all buckets together, and whose turn it is.
	total      *pace.Pace // nil: there is none
	totalClock pace.Clock
	totalAwake bool // some bucket has work and waits for its turn
	// turns are those that a bucket counts as having taken which had nothing to do, in starts by
	// weight: start-time fair queueing (Goyal, Vin and Cheng, 1996). Turns cannot be saved up; but
	// a bucket that is ahead of others stays so while it is empty.
	turns      float64
	mostTurns  float64      // that any bucket has taken
	untold     pace.Instant // until when a bucket waits for a checkpoint
	line       *line        // of policies that take turns
	taken      float64      // of the line's turns, likewise
	forecast   *forecast    // of waits, when there are many buckets
	coming     *coming      // the next
	gateAt     pace.Instant // when admits may say yes, while a bucket waits for that; else never
	blocked    bool         // admits said no, in this turn of the loop
	overlooked []*bucket    // whose turn it is, but which run too much to get a worker

	breaker  breaker      // of all buckets
	answered pace.Instant // when the last job began that found its target up
	suspects []job.Key    // whose jobs found the target down since somebody found it up
	broken   int          // buckets whose own breaker is open
	lowered  int          // buckets that have learnt a lower rate

	parts    map[int]*Part
	sched    heap.Heap[scheduledBucket]
	due      heap.Heap[dueBucket]
	unread   heap.Heap[dueBucket] // that would be due, or soon, if there were room for a body
	bodies   int64                // bytes of those that are not small, of jobs that wait
	timers   heap.Heap[timedJob]
	memory   *Memory
	told     stamp        // what was said last of JetStream's clock
	lapsed   pace.Instant // lapse does nothing before
	Local    bool         // there are local workers
	open     bool         // it might start jobs when it last acted …
	fence    pace.Instant // … and has to pass their last check before it
	Busy     int          // of them, with jobs of this valve
	Reserved int          // of them, with jobs of other drainers

	claims claims // of workers elsewhere

	acted pace.Instant // when it might last start jobs
	left  struct {     // when buckets were last left that were due, and why
		by cause
		at pace.Instant
	}
	lost [causes]time.Duration // by its buckets, since that was told

	holding  map[string]int // how many buckets wait, by the limit on starts that holds them
	heldTold pace.Instant   // when that was told last

	runs  map[uint64]run // that workers have, here or elsewhere, by number
	given uint64         // of them, so far
}

// run is what the valve remembers of a job that a worker has, until it hears what came of that.
type run struct {
	*heldJob
	attempt int
	remote  bool // the worker is in another process
}

const (
	// MostCrashes is how many crashes of its owner a running job survives, plus one. One crash says
	// nothing of the job, and everything that ran then is under suspicion; a job that was there
	// three times most likely is the reason.
	MostCrashes = 3
	// mostLooks is how many buckets are looked at to see how many jobs are due soon, in every turn
	// of the loop. The first of the heap are among those that are due first; more than mostOffers
	// are not asked for anyway.
	mostLooks = 32
)

func New(p policy.Policy, paused bool, self string, random func() float64,
	wall func(pace.Instant) time.Time, out *Actions) *Valve {
	v := &Valve{
		Policy: p,
		paused: paused,
		base:   limitsFor(p, policy.Override{}, paused),
		quota:  quota.New(p), candidates: quota.NewCandidates(p),
		wall:   wall,
		total:  pace.New(p.OutflowTotal, p.PeakTotalRatio(), 1),
		Self:   self,
		memory: &Memory{},
		random: random,
		out:    out,
		parts:  map[int]*Part{},
		runs:   map[uint64]run{},
		gateAt: pace.Never,

		holding: map[string]int{},
	}
	v.line = &line{valves: []*Valve{v}}
	v.setTogether(p)
	v.SetOverrides(nil)
	return v
}

// arriveAll takes delivered jobs in; those that are inOrder come in the order of their sequences.
// Whoever knows the highest of these can tell what is delivered again; a stray one of a higher
// sequence would make all that follows seem so.
func (v *Valve) Arrive(p *Part, jobs []job.Arrived, inOrder bool, now pace.Instant,
	wall time.Time) {
	highest := p.highest
	for i := range jobs {
		v.arrive(p, &jobs[i], now, wall)
	}
	if !inOrder {
		p.highest = highest
	}
}

// arrive takes a delivered job in. wall is the wall clock at now, for deadlines.
//
// The same job may come more than once: its backlog was opened anew, its acknowledgement is not
// applied yet, or two deliveries were under way. A job of the same sequence that was stored at
// another time is another job.
//
// What is known of it decides in this order. It was finished: it is acknowledged, and nothing else
// counts. It is no job that can be read. Its outcome was told before it came. It has crashed too
// many owners, or one more. It runs elsewhere. Only then is it a job that waits.
func (v *Valve) arrive(p *Part, a *job.Arrived, now pace.Instant, wall time.Time) {
	again, stored := a.Seq <= p.highest, a.Stored.UnixNano()
	p.highest, p.newest = max(p.highest, a.Seq), max(p.newest, stored)
	if j, held := p.jobs[a.Seq]; held {
		if j.Stored.Equal(a.Stored) {
			j.generation = p.generation
			if j.stage == stageAcking {
				v.out.Acks = append(v.out.Acks, j.ref())
			}
			return
		}
		v.lose(j) // its stream was restored without it, and this one must not end in its place
		v.place(j.Bucket, now)
	}
	v.told = stamp{now, wall}
	if v.seen(p, a, now) {
		return
	}
	a, edit := p.edited(a)
	b := v.bucket(p, a.Key, now)
	j := &heldJob{Arrived: *a, Bucket: b, front: edit.Front, generation: p.generation,
		inBucket: -1, inTimers: -1}
	j.Key = b.key
	v.date(j, now, wall)
	p.unnoted.costing("", j.Cost)
	for cost, n := range j.Costs {
		p.unnoted.costing(cost, n)
	}
	j.came = b.came(a.Seq, stored)
	b.join(j)
	p.jobs[a.Seq] = j
	v.weigh(j)
	b.held++
	if a.Seq > p.last {
		v.out.Accepted = append(v.out.Accepted, Seen{j.ref(), a.Header})
	}
	in := v.takeIn(p, a.Seq, stored, now)
	j.Attempts, j.crashes, j.LastError, j.recorded = in.record.Attempts, in.record.Crashes,
		in.record.LastError, in.saved
	if in.record.CrashedBy != "" {
		p.crashes[a.Seq] = in.record.CrashedBy
	}
	switch {
	case p.done(a.Seq, stored), again && p.finishedLately(a.Seq, stored, now):
		v.ack(j)
	case a.Malformed != nil:
		v.bury(j, job.ReasonMalformed, a.Malformed.Error())
	case in.outcome != nil:
		b.own().running++
		v.settle(j, *in.outcome, now)
	case j.crashes >= MostCrashes:
		v.buryCrashed(j)
	case in.crashed != "" && in.crashed != in.record.CrashedBy:
		v.crashed(j, in.crashed)
	case in.holder != "":
		j.enter(stageRunning)
		j.holder = in.holder
		b.own().running++
		v.lookAt(j, now.Add(time.Duration(v.Policy.Timeout)))
	case v.Policy.Paced() && j.Cost > v.Policy.Capacity:
		v.bury(j, job.ReasonMalformed,
			fmt.Sprintf("%s: it costs %d, more than the bucket's capacity of %d",
				job.HeaderCost, j.Cost, v.Policy.Capacity))
	case in.dueIn > 0 && edit.Run != j.Attempts+1:
		v.delay(j, now.Later(in.dueIn))
	case !a.NotBefore.IsZero() && a.NotBefore.After(wall):
		if v.sinks(j, true, now) {
			v.sink(j, true)
			v.strip(b, a.Seq, now)
			return
		}
		v.delay(j, now.Later(a.NotBefore.Sub(wall)))
	case v.costsTooMuch(j):
	case v.sinks(j, false, now):
		v.sink(j, false)
		v.strip(b, a.Seq, now)
		if b.spot == spotNone || b.queued() == 1 {
			v.place(b, now)
		}
		return
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
//
// Dates become instants here, once, so that nothing that is decided later asks what time it is.
func (v *Valve) date(j *heldJob, now pace.Instant, wall time.Time) {
	j.expires = now.Later(j.Stored.Add(time.Duration(v.Policy.MaxAge)).Sub(wall))
	if !j.Deadline.IsZero() {
		j.expires = min(j.expires, now.Later(j.Deadline.Sub(wall)))
	}
}

// Redate does that again for all jobs, and asks the limits again whose windows are JetStream's: its
// clock is another, or this process's own stood still.
//
// Instants were made of dates by what was known of the two clocks then. It is rare, and costs a
// look at every job.
func (v *Valve) Redate(now pace.Instant, wall time.Time) {
	v.told = stamp{now, wall}
	for _, p := range v.parts {
		for _, j := range p.jobs {
			before := j.expires
			v.date(j, now, wall)
			at := j.expires
			switch {
			case j.inTimers < 0 || j.stage != stageWaiting && j.stage != stageDelayed:
				continue
			case j.stage == stageDelayed && !j.recorded: // it is not due yet
				at = min(at, now.Later(j.NotBefore.Sub(wall)))
			case j.at < before: // it backs off
				at = min(at, j.at)
			}
			if v.lookAt(j, at); j.stage == stageDelayed {
				j.Bucket.later.Fix(j.inBucket)
			}
		}
	}
	v.againWithin(now)
}

// limitsOf is what a key's bucket obeys.
func (v *Valve) limitsOf(key job.Key) *limits {
	if l := v.special[key]; l != nil {
		return l
	}
	return v.base
}

// bucket returns the bucket of a key, which it makes when there is none.
//
// A bucket that is new to a partition which was taken over after a crash begins as if it had
// started a job then, for its old owner may have: nothing was listed of it. One that is forgotten
// and comes again does so too, which costs no more than an interval after the takeover.
func (v *Valve) bucket(p *Part, key job.Key, now pace.Instant) *bucket {
	b := p.buckets[key]
	if b == nil {
		// a delivery's key would keep its whole subject in memory
		key = job.Key(strings.Clone(string(key)))
		b = newBucket(p, key, v.limitsOf(key))
		if b.pace != nil && max(p.crashedAt, p.restsUntil) != 0 {
			interval, from := b.pace.Interval, p.restsUntil
			if p.crashedAt != 0 {
				from = max(from, p.crashedAt.Add(interval))
			}
			b.pace.Hold(&b.clock, from.Add(spread(key, min(interval, mostSpread))))
		}
		v.beginUsed(b, now)
		p.buckets[key] = b
		p.list.Add(b)
		v.weighBucket(b, bucketBytes)
	}
	return b
}

// makeReady puts a job among those that wait for a slot.
func (v *Valve) makeReady(j *heldJob, now pace.Instant) {
	b := j.Bucket
	j.enter(stageWaiting)
	if j.Body != nil && j.Size > leanSize {
		if len(b.ready) > 0 || v.bodies >= mostBodies {
			j.Body, j.Lean = nil, true
		} else {
			v.keepBody(j)
		}
	}
	v.enqueue(j)
	if b.spot == spotNone || b.ready[0].heldJob == j {
		v.place(b, now)
	}
}

// enqueue puts a job into its bucket's heap and sets its timer.
func (v *Valve) enqueue(j *heldJob) {
	b := j.Bucket
	b.own().ready.Push(orderedJob{j})
	b.lane(j.Priority).waiting += j.Cost
	b.waiting += j.Cost
	b.countNamed(j.Cost, j.Costs, 1)
	v.lookAt(j, j.expires)
}

// delay puts a job aside until an instant. Its body goes unless it is small: it may be hours.
func (v *Valve) delay(j *heldJob, until pace.Instant) {
	j.enter(stageDelayed)
	if j.Size > leanSize {
		j.Body, j.Lean = nil, true
	}
	v.lookAt(j, min(until, j.expires))
	j.Bucket.own().later.Push(laterJob{j})
}

// lookAt sets the job's timer.
//
// One timer for each job is enough: whatever comes first, its deadline, its backoff or its
// time-out.
func (v *Valve) lookAt(j *heldJob, at pace.Instant) {
	j.at = at
	if j.inTimers >= 0 {
		v.timers.Fix(j.inTimers)
	} else {
		v.timers.Push(timedJob{j})
	}
}

// detach takes a job out of the valve's heaps.
func (v *Valve) detach(j *heldJob) {
	v.freeBody(j)
	if j.inTimers >= 0 {
		v.timers.Remove(j.inTimers)
	}
	if j.stage == stageDelayed {
		j.Bucket.later.Remove(j.inBucket)
	} else if j.inBucket >= 0 {
		j.Bucket.ready.Remove(j.inBucket)
		j.Bucket.lane(j.Priority).waiting -= j.Cost
		j.Bucket.waiting -= j.Cost
		j.Bucket.countNamed(j.Cost, j.Costs, -1)
		if j.raised {
			j.raised = false
			j.Bucket.raised--
		}
	}
}

// noteHeld notes which limit on starts holds a bucket's next job; empty: none.
func (v *Valve) noteHeld(b *bucket, by string) {
	if b.heldBy == by {
		return
	}
	if v.holding[b.heldBy]--; v.holding[b.heldBy] <= 0 {
		delete(v.holding, b.heldBy)
	}
	if b.own().heldBy = by; by != "" {
		v.holding[by]++
	}
}

// Free is how many local workers have nothing to do.
func (v *Valve) Free() int {
	if !v.Local {
		return 0
	}
	return v.Policy.Workers - v.Busy - v.Reserved
}

// Reserve takes a local worker for another drainer's valve.
func (v *Valve) Reserve() bool {
	if v.Free() <= 0 {
		return false
	}
	v.Reserved++
	return true
}

// Release gives it back.
func (v *Valve) Release() { v.Reserved-- }

// Running is how many jobs run, here or elsewhere, those of other drainers' valves here included.
func (v *Valve) Running() int { return v.Busy + v.Reserved + v.claims.running }

// mayTakeWorker keeps one bucket from taking all workers, for a target that hangs for one key: a
// bucket gets a worker while it runs at most three times as many jobs as would stay free. So it
// uses three quarters of the workers at most, the next one like it three quarters of the rest, and
// who runs nothing gets any that is free. (Choudhury and Hahne, "Dynamic queue length thresholds
// for shared-memory packet switches", 1998.)
func (v *Valve) mayTakeWorker(b *bucket) bool {
	free := v.Free()
	return free > 0 && b.running <= 3*(free-1)
}
