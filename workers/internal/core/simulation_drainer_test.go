package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

type drainer struct {
	w        *world
	core     *Core
	offset   time.Duration
	jumps    int
	heard    int
	wrong    time.Duration // error of its wall clock
	born     time.Duration
	drift    float64
	alive    bool
	frozen   time.Duration // until when
	busy     time.Duration // its loop, until when
	mute     time.Duration
	hindered time.Duration // latest end of the delay after a failed call
	inbox    []func()
	leaving  bool
	before   pace.Instant  // the loop's last reading of its clock
	lost     time.Duration // last crash or expiry of its lease
	cut      time.Duration // from NATS, until when
	// by watched key: changes stay in order
	lastAt map[string]time.Duration
	// decisions before unfinished checkpoints began
	gathered map[*valve.Gathering]int
	latest   map[bucketAt]*valve.Ticket // given to a worker
	wakeup   int

	told     map[string]*told
	local    map[string]int
	lends    map[string]*lendingProcess
	promises map[string]*promise
	tokens   int
	disowned map[string]bool // policies whose valves it may not own
}

// to delivers an event after a delay; a frozen or busy drainer gets it later, but in order.
func (w *world) to(d *drainer, delay time.Duration, do func()) {
	w.after(delay, func() { d.receive(do) })
}

func (d *drainer) receive(do func()) {
	switch {
	case !d.alive:
	case len(d.inbox) > 0 || max(d.frozen, d.busy) > d.w.now:
		if d.inbox = append(d.inbox, do); len(d.inbox) == 1 {
			d.w.after(max(d.frozen, d.busy)-d.w.now, d.thaw)
		}
	default:
		do()
		d.step()
	}
}

func (d *drainer) thaw() {
	if until := max(d.frozen, d.busy); d.alive && until > d.w.now {
		d.w.after(until-d.w.now, d.thaw)
		return
	}
	inbox := d.inbox
	d.inbox = nil
	for _, do := range inbox {
		d.receive(do)
	}
}

const mostDrift = 1e-4

func (d *drainer) clock() pace.Instant {
	return pace.Instant(float64(d.w.now)*(1+d.drift)) + pace.Instant(d.offset)
}

func (w *world) join() {
	w.names++
	d := &drainer{
		w: w, alive: true, offset: w.between(time.Second, time.Hour),
		drift:  (2*w.rng.Float64() - 1) * mostDrift,
		lastAt: map[string]time.Duration{}, latest: map[bucketAt]*valve.Ticket{},
		gathered: map[*valve.Gathering]int{},
		told:     map[string]*told{}, local: map[string]int{},
		lends: map[string]*lendingProcess{}, promises: map[string]*promise{},
		disowned: map[string]bool{},
	}
	d.pickHostClock()
	for i := range w.policies {
		d.disowned[w.policies[i].Name] = w.has(differingOwn) && w.now < busy && w.chance(0.4)
	}
	memory := int64(0)
	if w.has(shortMemory) {
		memory = 1 + 3000*int64(w.names%3)
	}
	d.core = New(Options{Name: fmt.Sprintf("d%d", w.names), Lease: simulatedLease,
		Random: w.rng.Float64, Memory: memory, gather: 1 + w.names%4,
		Slots: 10000 * (w.names % 2)})
	if w.has(tightRecords) {
		d.core.most = 850 + w.rng.IntN(1000)
	}
	w.drainers = append(w.drainers, d)
	d.born = w.now
	w.to(d, w.latency(), func() {
		now := d.clock()
		d.core.Handle(Connected{Up: true}, now)
		d.hearSettings()
		for t := range w.records {
			for _, key := range slices.Sorted(maps.Keys(w.records[t])) {
				d.core.Handle(Watched{Table(t), key, *w.records[t][key]}, now)
			}
		}
		d.core.synced = true
	})
}

func (w *world) named(id string) *drainer {
	for _, d := range w.drainers {
		if name, _, _ := strings.Cut(id, "-"); name == d.core.options.Name {
			return d
		}
	}
	return nil
}

func (d *drainer) watched(t Table, key string, r Record) {
	d.core.Handle(Watched{t, key, r}, d.clock())
	if t == TableDrainers && (!r.Exists || strings.Contains(string(r.Value), `"tombstone":true`)) {
		d.w.hold(d)
	}
}

func (d *drainer) opened(found Opened) {
	w := d.w
	if s := d.core.shares.all[shareOf(found.Part)]; w.sabotage == handedOverRunsAgain && s != nil {
		s.before.record.Running = nil
	} else if w.sabotage == noTakeoverWait && s != nil {
		s.before.exists, s.before.record.Released = true, true
		s.before.record.Clocks = nil
	}
	if s := d.core.shares.all[shareOf(found.Part)]; w.sabotage == editsForgotten && s != nil {
		forgetEdits(&found, &s.before.record)
	}
	d.core.Handle(found, d.clock())
	for _, p := range d.core.out.takeovers {
		noted, known := w.composed[found.Revision]
		if !known {
			noted = -1
		}
		w.replaced(p)
		w.takeovers[shareOf(p)] = append(w.takeovers[shareOf(p)], takeover{w.now, noted})
	}
}

func shareOf(p handle.Partition) string { return record.ShareKey(p.Policy, p.Number) }

func (d *drainer) step() {
	w := d.w
	now := d.clock()
	d.before = now
	d.hearJumps()
	d.tamper()
	open := d.core.wasOpen
	d.core.advance(now)
	d.fences(open)
	d.noteGathered()
	d.core.Ponder(d.clock)
	d.costs()
	d.perform()
	if d.leaving && d.core.Left() {
		w.revision++
		w.write(TableDrainers, d.core.Lease.Id, Record{Revision: w.revision})
		d.alive = false
		return
	}
	d.wakeup++
	n := d.wakeup
	delay := max(0, d.core.Wake(now).Since(now))
	delay += w.between(0, time.Millisecond)
	if w.chance(0.002) {
		length := w.between(0, 40*time.Millisecond)
		w.stalls = append(w.stalls, stall{w.now, length})
		delay += length
	}
	w.after(delay, func() {
		if n == d.wakeup {
			d.receive(func() {})
		}
	})
}

// noteGathered records the beginnings of checkpoints, which may lack later decisions.
func (d *drainer) noteGathered() {
	for _, s := range d.core.shares.all {
		if s.part == nil {
			continue
		}
		if g := s.part.gathering; g != nil && d.gathered[g] == 0 {
			d.gathered[g] = d.w.decisions
		}
	}
}

func (d *drainer) tamper() {
	switch d.w.sabotage {
	case noFence:
		if d.core.Lease.Held {
			d.core.Lease.Fence = pace.Never
		}
	case noUnseenGate:
		for _, s := range d.core.shares.all {
			if s.part != nil && s.part.Owned() {
				s.part.LookFor(pace.Never)
			}
		}
	case deadKeep:
		for _, s := range d.core.shares.all {
			if s.state == shareIdle && s.exists && !s.record.Released {
				s.actAt = pace.Never
			}
		}
	}
}

func (w *world) garble(a *job.Arrived) {
	switch w.sabotage {
	case costIgnored:
		a.Cost = 1
	case deadlineIgnored:
		a.Deadline = time.Time{}
	case notBeforeIgnored:
		a.NotBefore = time.Time{}
	case priorityReversed:
		a.Priority = -a.Priority
	}
}

// perform performs actions in an order independent of maps, because draws must be reproducible.
func (d *drainer) perform() {
	o := &d.core.out
	order := func(a, b handle.Ref) int {
		return cmp.Or(cmp.Compare(a.Part.Policy, b.Part.Policy), cmp.Compare(a.Seq, b.Seq))
	}
	slices.SortFunc(o.Acks, func(a, b handle.Ref) int {
		return cmp.Or(cmp.Compare(shareOf(a.Part), shareOf(b.Part)), cmp.Compare(a.Seq, b.Seq))
	})
	slices.SortFunc(o.Fetches, order)
	slices.SortFunc(o.Saves, func(a, b valve.Save) int { return order(a.Ref, b.Ref) })
	slices.SortFunc(o.Burials, func(a, b valve.Burial) int { return order(a.Ref, b.Ref) })
	slices.SortFunc(o.Forgets, func(a, b valve.Forgotten) int { return order(a.Ref, b.Ref) })
	slices.SortFunc(o.Reports, func(a, b record.Report) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Outcome.Seq, b.Outcome.Seq))
	})
	for _, c := range o.Cancelled {
		if c.Reason != "" {
			d.w.fateNamed(c.Ref).excepted = true
		}
	}
	d.core.Perform(simulated{d})
}
