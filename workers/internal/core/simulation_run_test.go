package core

import (
	"iter"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

type stint struct {
	valve.Run
	part  *partition
	d     *drainer
	fate  *fate
	given time.Duration
	// concurrency of the bucket, as the drainer knew it; 0: unlimited
	most     int
	slot     slot
	worker   *promise // elsewhere; nil: a local one
	planned  pace.Instant
	previous *valve.Ticket

	patience int
	over     bool
	request  *request // nil: no target counts
}

type bucketAt struct {
	part *partition
	key  queue.Key
}

func (d *drainer) start(r valve.Run, worker *promise) {
	w := d.w
	w.decisions++
	f := w.fateNamed(r.Ref)
	t, part := d.told[f.policy], d.core.part(r.Part)
	s := &stint{Run: r, part: part, d: d, fate: f,
		given: w.now, most: t.concurrency(f.key), worker: worker, planned: d.clock()}
	if open, _ := s.breaks(); open && w.sabotage == probesForgotten {
		return
	}
	if r.Body == nil {
		w.fail("%s starts without its body", job.ID(f.policy, f.seq))
	}
	of := bucketAt{part, f.key}
	s.previous, d.latest[of] = d.latest[of], r.Ticket
	s.slot = slot{number: w.decisions, cost: f.cost, own: t.own(f.key), total: t.total()}
	w.give(s)
	w.takeTurn(s)
	f.given = true
	if worker == nil {
		d.local[f.policy]++
		d.countWorkers(f.policy)
	}
	delay := w.between(0, 200*time.Microsecond)
	if w.chance(0.005) {
		delay = w.between(0, 50*time.Millisecond)
	}
	if w.sabotage == lossyAcks && w.chance(0.1) {
		d.ackSeq(r.Part, r.Seq)
	}
	w.after(delay, func() { d.decide(s) })
}

func (d *drainer) countWorkers(name string) {
	busy, most := d.local[name], d.told[name].Workers
	if o := d.lends[name]; o != nil {
		busy += o.busy
	}
	if busy > most {
		d.w.fail("workers: %s uses %d of %s, and has %d", d.core.options.Name, busy, name, most)
	}
}

func (d *drainer) decide(s *stint) {
	w := d.w
	switch {
	case !d.alive:
		return
	case d.frozen > w.now:
		w.after(d.frozen-w.now, func() { d.decide(s) })
		return
	case s.previous != nil && !w.decided[s.previous]:
		w.after(50*time.Microsecond, func() { d.decide(s) })
		return
	}
	w.decided[s.Ticket] = true
	gate := d.gate
	if w.sabotage == slotsOfPlans {
		gate = func() (fence, now pace.Instant) { return d.core.Fence(), s.planned }
	}
	_, passed := s.Decide(gate, nil)
	if !passed {
		d.says("holds %s back", job.ID(s.fate.policy, s.Seq))
		if s.worker != nil {
			s.worker.refuse(d)
		}
		w.to(d, w.between(0, 100*time.Microsecond), func() {
			s.finish(record.Outcome{Seq: s.Seq, Kind: record.OutcomeReturned})
		})
		return
	}
	d.ran(s)
	if s.worker != nil {
		s.send()
		return
	}
	took, o := w.run(s)
	took, o = s.exchange(took, o)
	if estimated := s.fate.message.Costs["tokens"]; estimated > 0 && w.chance(0.5) {
		used := 1 + w.rng.Int64N(estimated*5/4)
		o.Used = map[string]int64{"tokens": used}
		s.fate.slots[len(s.fate.slots)-1].tokens = min(used, estimated)
		if s.request != nil {
			s.request.tokens = min(used, estimated)
		}
	}
	w.after(took, func() { s.lingers(o, func(o record.Outcome) { d.ends(s, o) }) })
}

func (d *drainer) ran(s *stint) {
	w, f := d.w, s.fate
	if w.active[f.bucket] == nil {
		w.active[f.bucket] = map[*stint]bool{}
	}
	for other := range w.active[f.bucket] {
		if other.fate.overdue(w.now, s.timeout()) {
			delete(w.active[f.bucket], other)
		} else if other.fate == f {
			w.fail("law 3: %s started again although it runs, in a process that lives",
				job.ID(f.policy, f.seq))
		}
	}
	if !f.removed {
		w.active[f.bucket][s] = true
	}
	w.checkConcurrency(s.part, f.key, f.bucket, s.most)
	w.startedWhilePaused(d, f.bucket)
	if f.final() {
		if !f.forgiven && !f.overdue(w.now, s.timeout()) && !f.mayHaveEnded() {
			w.fail("law 3: %s started although it was done (%v), dead (%q) or cancelled (%v)",
				job.ID(f.policy, f.seq), f.done, f.dead, f.cancelled)
		}
		f.excepted = true
	}
	w.tells(s)
	d.started(s)
	f.handed = false
	s.slot.at, s.slot.tokens = w.now, f.message.Costs["tokens"]
	if s.request = w.requests(f.bucket, d, f.cost, s.slot.tokens); s.request != nil {
		s.request.job = f
	}
	now := d.told[f.policy]
	s.slot.own, s.slot.total = s.slot.own.larger(now.own(f.key)), s.slot.total.larger(now.total())
	w.aimed(d, atAStart, 300*time.Millisecond)
	if w.poison && s.Crashes > 0 && w.now < busy && w.chance(0.7) {
		w.crash(d, 300*time.Millisecond)
	}
	f.slots = append(f.slots, s.slot)
}

func (w *world) run(s *stint) (took time.Duration, o record.Outcome) {
	took = w.between(time.Millisecond, 200*time.Millisecond)
	switch {
	case w.flawless:
		return took, record.Outcome{Seq: s.Seq, Kind: record.OutcomeDone}
	case w.chance(0.01):
		took = w.between(time.Second, 15*time.Second)
	case w.set.slow[s.fate.policy]:
		took *= 10
	}
	o = record.Outcome{Seq: s.Seq, Kind: record.OutcomeDone}
	if w.targetIsDown(s.fate) {
		if w.chance(0.9) {
			took = w.between(time.Millisecond, 5*time.Millisecond)
		}
		o.Kind, o.Unavailable, o.Error = record.OutcomeFailed, true, "connection refused"
		return took, o
	}
	switch x := w.rng.Float64(); {
	case x < 0.04:
		o.Kind, o.Error = record.OutcomeFailed, "500"
	case x < 0.05:
		o.Kind = record.OutcomeThrottled
		if w.chance(0.5) {
			o.RetryAfter = w.between(0, 3*time.Second)
		}
	case x < 0.055:
		o.Kind, o.Error = record.OutcomePermanent, "404"
	case x < 0.065: // done, with a report of an exhausted limit
		o.RetryAfter = w.between(time.Millisecond, 3*time.Second)
	case x < 0.07:
		o.Kind, o.Again = record.OutcomeUncounted, w.between(time.Millisecond, 3*time.Second)
	}
	return took, o
}

func (d *drainer) ends(s *stint, o record.Outcome) {
	if d.alive && d.frozen > d.w.now {
		d.w.after(d.frozen-d.w.now, func() { d.ends(s, o) })
		return
	}
	s.end(o)
}

func (s *stint) end(o record.Outcome) {
	w, d, f := s.d.w, s.d, s.fate
	undisturbed := w.active[f.bucket][s]
	delete(w.active[f.bucket], s)
	if !d.alive {
		f.excepted = true
		return
	}
	f.forgiven = f.forgiven || !undisturbed
	switch o.Kind {
	case record.OutcomeDone:
		f.done = f.done || !s.part.Lost()
	case record.OutcomeFailed, record.OutcomeUncounted, record.OutcomeThrottled:
		f.excepted = true
	}
	if s.part.Lost() {
		f.excepted = true
	}
	d.receive(func() { s.finish(o) })
}

func (s *stint) timeout() time.Duration { return time.Duration(s.d.told[s.fate.policy].Timeout) }

func (s *stint) finish(o record.Outcome) {
	if s.worker == nil {
		s.d.local[s.fate.policy]--
	}
	open, counts := s.breaks()
	breaks := open && !counts
	s.d.w.hears(s, o, breaks)
	switch {
	case breaks && s.d.w.sabotage == breakerCounts:
		o.Unavailable = false
	case o.Kind == record.OutcomeThrottled && s.d.w.sabotage == countThrottles:
		o.Kind = record.OutcomeFailed
	case o.Kind == record.OutcomeThrottled && s.d.w.sabotage == cooldownIgnored:
		o.Kind = record.OutcomeUncounted
	case o.Kind == record.OutcomeDone && s.d.w.sabotage == hintsIgnored:
		o.RetryAfter = 0
	case o.Kind == record.OutcomeFailed && s.d.w.sabotage == buriesFailed:
		o.Kind = record.OutcomePermanent
	}
	s.d.w.finished(s, o)
	s.d.core.Handle(Finish(s.Run, o), s.d.clock())
}

// breaks reports whether a breaker holds the run, and whether its attempt counts all the same.
func (s *stint) breaks() (open, counts bool) {
	v := s.d.core.valves.all[s.fate.policy]
	if !s.part.Owned() || v == nil {
		return false, true
	}
	return v.View(s.d.clock()).Down(s.part.Part, s.fate.key)
}

// stints returns all runs whose process was not disturbed.
func (w *world) stints() iter.Seq[*stint] {
	return func(yield func(*stint) bool) {
		for _, runs := range w.active {
			for s := range runs {
				if !yield(s) {
					return
				}
			}
		}
	}
}
