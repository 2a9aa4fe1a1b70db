// Package valve schedules the jobs of one policy in this drainer. The caller reports events, and
// the valve appends the resulting work to its Actions. It does no I/O and reads no clock.
//
//   - valve.go, bucket.go, part.go: the partitions, buckets, jobs and workers of a policy;
//     limits.go: their limits; adapt.go: limits learnt from the target;
//   - agenda.go: what comes when: buckets, and jobs with a time of their own; stock.go: the jobs
//     that do not run; depth.go: deep ones; bodies.go: their bodies;
//   - gates.go: what gates see of a bucket, and how late it is; schedule.go: when a bucket's next
//     job may start; starts.go: which bucket starts next; ticket.go: the final check before a
//     start, the only part that runs outside of the loop;
//   - settle.go: outcomes, retries and attempt records; breaker.go: what breakers change;
//   - claims.go: offers to callers and to workers in other processes, and their claims (packages
//     claimant and crew); calls.go: what follows from what callers say (package calls);
//   - inherit.go, handover.go: state received from a partition's previous owner (package
//     inheritance) and sent to its next;
//   - questions.go: queries from other processes; view.go: what holds buckets and jobs, without any
//     change; inspect.go, forecast.go: a view's lists, and expected starts (package forecast);
//   - edits.go: changes to jobs that operators made after they were stored;
//   - actions.go: requested I/O.
package valve

import (
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

// Valve schedules a policy's jobs in the partitions that this drainer owns. Each bucket is in at
// most one heap, so an iteration's cost is its events'.
type Valve struct {
	settings
	startLimits
	learning *learning
	agenda   *agenda
	line     *line
	taken    float64 // turn in the line
	health   gates.Health
	Losses   gates.Losses

	foresight *foresight

	Crew   crew.Crew[*heldJob]
	Self   string         // holder of jobs that run here
	random func() float64 // in [0, 1), for jitter
	out    *Actions
	texts  *texts
	stock  *stock
	parts  map[int]*Part

	open  bool         // starts were allowed on the last Advance
	fence pace.Instant // of those starts
	acted pace.Instant // when starts were last allowed
	all   gates.Hold
}

const (
	// MostCrashes is the number of owners that crash before a running job becomes a dead letter, as
	// the likely cause.
	MostCrashes = 3
	mostLooks   = 32
)

// wallClock returns JetStream's time, and its largest error.
type wallClock func(pace.Instant) (at time.Time, off time.Duration)

func (c wallClock) at(now pace.Instant) time.Time {
	at, _ := c(now)
	return at
}

// of returns the instant of a date in Unix ns.
func (c wallClock) of(date int64) pace.Instant { return c.instant(time.Unix(0, date), 0) }

func (c wallClock) instant(date time.Time, now pace.Instant) pace.Instant {
	return now.Later(date.Sub(c.at(now)))
}

func (c wallClock) reading(now pace.Instant) quota.Now {
	wall, off := c(now)
	return quota.Now{Own: time.Duration(now), Wall: wall, Off: off}
}

func New(p policy.Policy, paused bool, self string, random func() float64, wall wallClock,
	out *Actions) *Valve {
	v := &Valve{
		settings: settings{Policy: p, paused: paused,
			base:      limitsFor(p, inforce.Override{}, paused),
			overrides: map[queue.Key]inforce.Override{}},
		startLimits: startLimits{wall: wall, alone: &group{}, total: gates.Total{Pace: totalOf(p)},
			quota: quota.New(p), candidates: quota.NewCandidates(p)},
		Crew:     crew.New[*heldJob](p.Workers),
		learning: &learning{rule: p.AdaptiveRate},
		agenda:   &agenda{}, foresight: &foresight{},
		health: gates.NewHealth(random),
		Self:   self,
		texts:  &texts{memory: &Memory{}},
		random: random,
		out:    out,
		parts:  map[int]*Part{},
	}
	v.stock = &stock{&v.settings, v.agenda, v.texts, wall, out}
	v.line = &line{valves: []*Valve{v}}
	v.setTogether(p)
	v.gates.Quiet = gates.NewQuiet(wall.at)
	v.gates.Quiet.Set(p.Quiet)
	breaking, limits := gates.Breaking{Health: &v.health}, limiting{&v.startLimits}
	v.gates.List = gates.List{breaking, gates.Cooling{}, gates.Giving{}, gates.Rate{}, limits,
		v.gates.Quiet}
	v.gates.Later = []gates.Later{breaking, gates.Rate{}, turning{&v.startLimits}, limits,
		v.gates.Quiet}
	return v
}

// Arrive accepts delivered jobs. Those in order advance the highest sequence.
func (p *Part) Arrive(jobs []job.Arrived, inOrder bool, now pace.Instant) {
	highest := p.highest
	for i := range jobs {
		p.arrive(&jobs[i], now)
	}
	if !inOrder {
		p.highest = highest
	}
}

// arrive accepts a delivered job, which may come again. The same sequence with another storage time
// is a different job. The checks go by precedence.
func (p *Part) arrive(a *job.Arrived, now pace.Instant) {
	again, stored := a.Seq <= p.highest, a.Stored.UnixNano()
	p.highest, p.newest = max(p.highest, a.Seq), max(p.newest, stored)
	if p.seen(a) {
		return
	}
	b, edit := p.bucket(a.Key, now), p.edits.Of(a.Seq, stored)
	j := p.v.stock.add(b, a, edit, now)
	p.Checkpoints.Takes(j.takes())
	if a.Seq > p.last {
		p.v.out.Accepted = append(p.v.out.Accepted, Seen{Ref: j.ref(), Header: a.Header})
	}
	in, last := p.legacy.Take(a.Seq, stored)
	if last {
		p.changed()
	}
	j.recall(in.Record, in.Saved)
	switch {
	case p.legacy.Finished(a.Seq, stored, again, now):
		p.v.out.ack(j)
	case a.Malformed != nil:
		p.v.out.bury(j, queue.ReasonMalformed, a.Malformed.Error())
	case in.Outcome != nil:
		j.holder = in.Outcome.Holder
		b.runs(1)
		p.v.settle(j, *in.Outcome, now)
	case j.crashes >= MostCrashes:
		p.v.out.buryCrashed(j)
	case in.Crashed != "" && in.Crashed != in.Record.CrashedBy:
		p.v.out.crashed(j, in.Crashed)
	case in.Runs():
		j.enter(stageRunning)
		j.holder = in.Holder
		b.runs(1)
		p.v.agenda.lookAt(j, now.Add(time.Duration(p.v.Policy.Timeout)))
	case p.repeats(j):
	case p.v.impossible(j.Cost, j.Costs) != "":
		p.v.out.bury(j, queue.ReasonMalformed, p.v.impossible(j.Cost, j.Costs))
	case in.Record.DueIn > 0 && edit.Run != j.ordinal():
		p.v.stock.delay(j, now.Later(time.Duration(in.Record.DueIn)*time.Microsecond))
	case !j.NotBefore.IsZero() && j.NotBefore.After(p.v.wall.at(now)):
		if p.v.sinks(j, true, now) {
			p.v.stock.sink(j, true, now)
			return
		}
		p.v.stock.delay(j, p.v.wall.instant(j.NotBefore, now))
	case p.v.sinks(j, false, now):
		p.v.stock.sink(j, false, now)
		if b.spot == spotNone || b.queue.Len() == 1 {
			b.changed()
		}
		return
	default:
		p.v.stock.makeReady(j, now)
		return
	}
	b.changed()
}

func (s *settings) expiry(j *heldJob) time.Time {
	at := j.Stored.Add(time.Duration(s.Policy.MaxAge))
	if !j.Deadline.IsZero() && j.Deadline.Before(at) {
		return j.Deadline
	}
	return at
}

// Redate recomputes all instants after JetStream's clock or this process's was set.
func (v *Valve) Redate(now pace.Instant) {
	for _, p := range v.parts {
		for _, j := range p.jobs {
			before := j.expires
			v.stock.date(j, now)
			at := j.expires
			switch {
			case j.inTimers < 0 || j.stage != stageWaiting && j.stage != stageDelayed:
				continue
			case j.stage == stageDelayed && !j.recorded: // not due yet
				at = min(at, v.wall.instant(j.NotBefore, now))
			case j.At < before: // it backs off
				at = min(at, j.At)
			}
			if v.agenda.lookAt(j, at); j.stage == stageDelayed {
				j.Bucket.queue.Fix(&j.Job)
			}
		}
	}
	v.gates.Quiet.Forget()
	v.againWithin(now)
}

func (s *settings) limitsOf(key queue.Key) *limits {
	if o, special := s.overrides[key]; special {
		return limitsFor(s.Policy, o, s.paused)
	}
	return s.base
}

// bucket returns a key's bucket. After a crash, a new one waits a whole interval first.
func (p *Part) bucket(key queue.Key, now pace.Instant) *bucket {
	b := p.buckets[key]
	if b == nil {
		// a delivery's key would keep its subject in memory
		key = queue.Key(strings.Clone(string(key)))
		b = newBucket(p, key, p.v.limitsOf(key))
		if b.pace != nil {
			interval := b.pace.Interval
			if from := p.legacy.Holds(interval); from != 0 {
				b.pace.Hold(&b.clock, from.Add(spread(key, min(interval, mostSpread))))
			}
		}
		if used := p.legacy.Unlisted(p.v.quota, p.v.wall.reading, now); used != nil {
			b.own().Used = used
		}
		p.buckets[key] = b
		p.list.Add(b)
		p.v.texts.memory.near += bucketBytes
	}
	return b
}

// look returns a key's bucket, or an idle one that is not kept.
func (p *Part) look(key queue.Key) *bucket {
	if b := p.buckets[key]; b != nil {
		return b
	}
	return newBucket(p, key, p.v.limitsOf(key))
}
