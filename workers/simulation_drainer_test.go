package workers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// drainer is one process: its core, its clock, its local workers, and what it was told.
type drainer struct {
	w        *world
	core     *core
	offset   time.Duration // of its clock
	jumps    int           // of its wall clock
	heard    int           // of them, by its core
	wrong    time.Duration // by which its wall clock is
	born     time.Duration
	drift    float64
	alive    bool
	frozen   time.Duration // until when
	busy     time.Duration // its loop, until when
	mute     time.Duration // renewals of its lease do not arrive, until when
	hindered time.Duration // a call of it came to nothing, and holds it up until then at most
	inbox    []func()      // what came while it was frozen
	leaving  bool
	lost     time.Duration            // when it crashed or was declared dead last
	cut      time.Duration            // from NATS, until when
	lastAt   map[string]time.Duration // of a watched record's delivery: changes of one key stay in order
	gathered map[*gathering]int       // decisions when a checkpoint was begun that is not yet put together
	wakeup   int                      // number of the newest wake-up; older ones are void

	told     map[string]*told           // by policy
	local    map[string]int             // jobs that its own valves have given to its workers, by policy
	lends    map[string]*lendingProcess // its workers as others see them, by policy
	promises map[string]*promise        // workers elsewhere that wait for a job
	tokens   int
	disowned map[string]bool // policies whose valves it may not own
}

// to gives a drainer an event after a delay; a frozen one gets it when it thaws.
func (w *world) to(d *drainer, delay time.Duration, do func()) {
	w.after(delay, func() { d.receive(do) })
}

func (d *drainer) receive(do func()) {
	switch {
	case !d.alive:
	case max(d.frozen, d.busy) > d.w.now:
		if d.inbox = append(d.inbox, do); len(d.inbox) == 1 {
			d.w.after(max(d.frozen, d.busy)-d.w.now, d.thaw)
		}
	default:
		do()
		d.step()
	}
}

// thaw hands over what came meanwhile, in the order in which it came.
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

// clock reads the drainer's own monotonic clock.
func (d *drainer) clock() instant {
	return instant(float64(d.w.now)*(1+d.drift)) + instant(d.offset)
}

// join starts a process.
func (w *world) join() {
	w.names++
	d := &drainer{
		w: w, alive: true, offset: w.between(time.Second, time.Hour), drift: (w.rng.Float64() - 0.5) * 2e-4,
		lastAt: map[string]time.Duration{}, gathered: map[*gathering]int{}, told: map[string]*told{}, local: map[string]int{},
		lends: map[string]*lendingProcess{}, promises: map[string]*promise{},
		disowned: map[string]bool{},
	}
	d.pickHostClock()
	for i := range w.policies {
		d.disowned[w.policies[i].Name] = w.has(differingOwn) && w.now < busy && w.chance(0.4)
	}
	d.core = newCore(coreOptions{name: fmt.Sprintf("d%d", w.names), lease: simulatedLease, random: w.rng.Float64, gather: 1 + w.names%4})
	if w.has(tightRecords) {
		d.core.most = 500 + w.rng.IntN(1000)
	}
	w.drainers = append(w.drainers, d)
	d.born = w.now
	w.to(d, w.latency(), func() {
		now := d.clock()
		d.core.connection(true, now)
		d.hearSettings()
		for t := range w.records {
			for _, key := range slices.Sorted(maps.Keys(w.records[t])) {
				d.core.watched(table(t), key, *w.records[t][key], now)
			}
		}
		d.core.synced = true
	})
}

// named returns the process that a lease is of.
func (w *world) named(id string) *drainer {
	for _, d := range w.drainers {
		if name, _, _ := strings.Cut(id, "-"); name == d.core.options.name {
			return d
		}
	}
	return nil
}

// watched takes a record; that another is gone changes what its jobs are to this one's valves.
func (d *drainer) watched(t table, key string, r record) {
	d.core.watched(t, key, r, d.clock())
	if t == tableDrainers && (!r.exists || strings.Contains(string(r.value), `"tombstone":true`)) {
		d.w.hold(d)
	}
}

// opened takes the success of an opening.
func (d *drainer) opened(o opening, epoch uint64, found opened) {
	w := d.w
	if share := d.core.shares[shareOf(o.part)]; w.sabotage == handedOverRunsAgain && share != nil {
		share.before.record.Running = nil
	}
	d.core.opened(o, epoch, found, d.clock())
	if w.sabotage == noTakeoverWait {
		o.part.crashedAt = 0
		for _, b := range o.part.buckets {
			b.clock = clock{}
		}
	}
	for _, p := range d.core.out.takeovers {
		noted, known := w.composed[found.revision]
		if !known {
			noted = -1
		}
		w.takeovers[shareOf(p)] = append(w.takeovers[shareOf(p)], takeover{w.decisions, noted})
	}
}

func shareOf(p *partition) string { return shareKey(p.policy, p.number) }

// step lets a drainer act, carries out what it wants, and sets its next wake-up.
func (d *drainer) step() {
	w := d.w
	now := d.clock()
	d.hearJumps()
	d.tamper()
	d.core.advance(now)
	d.noteGathered()
	d.costs()
	d.perform()
	if d.leaving && d.core.left() {
		w.revision++
		w.write(tableDrainers, d.core.lease.id, record{revision: w.revision})
		d.alive = false
		return
	}
	d.wakeup++
	n := d.wakeup
	delay := max(0, d.core.wake(now).since(now))
	delay += w.between(0, time.Millisecond) // timers are late
	if w.chance(0.002) {
		length := w.between(0, 40*time.Millisecond) // and machines stall
		w.stalls = append(w.stalls, stall{w.now, length})
		delay += length
	}
	w.after(delay, func() {
		if n == d.wakeup {
			d.receive(func() {})
		}
	})
}

// noteGathered notes when checkpoints were begun that are not yet put together: what is decided from then on may be missing.
func (d *drainer) noteGathered() {
	for _, s := range d.core.shares {
		if s.part == nil {
			continue
		}
		if g := s.part.checkpointed.gathering; g != nil && d.gathered[g] == 0 {
			d.gathered[g] = d.w.decisions
		}
	}
}

// tamper is sabotage of what a core believes.
func (d *drainer) tamper() {
	switch d.w.sabotage {
	case noFence:
		if d.core.lease.held {
			d.core.lease.fence = never
		}
	case clumps, noUnseenGate, probesForgotten:
		for _, v := range d.core.valves {
			for _, p := range v.parts {
				if d.w.sabotage == noUnseenGate {
					p.unseen = 0
					continue
				}
				for _, b := range p.buckets {
					if d.w.sabotage == clumps {
						b.clock.tat = 0
					} else if b.down() {
						b.target.at = never
					}
				}
			}
		}
	case weightIgnored:
		for _, v := range d.core.valves {
			for _, l := range v.special {
				l.weight = 1
			}
		}
	case deadKeep:
		for _, s := range d.core.shares {
			if s.state == shareIdle && s.exists && !s.record.Released {
				s.actAt = never
			}
		}
	case crashesForgotten, backoffIgnored:
		for _, v := range d.core.sorted {
			for _, p := range v.parts {
				for _, j := range p.jobs {
					j.crashes = 0
					if j.stage == stageDelayed && d.w.sabotage == backoffIgnored {
						v.lookAt(j, 0)
					}
				}
			}
		}
	}
}

// garble is sabotage of what is delivered.
func (w *world) garble(a *queue.Arrived) {
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

func (d *drainer) perform() {
	w := d.w
	o := d.core.out
	d.core.out = actions{}
	for _, p := range o.closes {
		d.closeConsumers(p)
	}
	for _, x := range o.opens {
		d.open(x)
	}
	for i := range o.starts {
		d.start(&o.starts[i], nil)
	}
	for i := range o.lent {
		d.start(&o.lent[i].run, d.promised(o.lent[i].worker))
	}
	for _, worker := range o.refusals {
		d.promised(worker).refuse(d)
	}
	for _, name := range o.offers {
		d.propose(name)
	}
	// Where the order of a list says nothing, it can be that of a map, and the draws must not depend on it.
	slices.SortFunc(o.acks, func(a, b recordOf) int {
		return cmp.Or(cmp.Compare(shareOf(a.part), shareOf(b.part)), cmp.Compare(a.seq, b.seq))
	})
	for _, a := range o.acks {
		d.ack(a)
	}
	for _, p := range o.puts {
		d.put(p)
	}
	for _, r := range o.reads {
		d.read(r.put)
	}
	for _, p := range o.deletes {
		w.after(w.latency(), func() {
			if r := w.records[p.table][p.key]; r != nil && (p.revision == 0 || p.revision == r.revision) && !w.down {
				w.revision++
				w.write(p.table, p.key, record{revision: w.revision})
			}
		})
	}
	d.performJobs(&o)
	if o.vanished > 0 && !w.has(removals) && !w.has(streamsAnew) && !w.has(retiring) {
		w.fail("a job vanished")
	}
}

func (d *drainer) performJobs(o *actions) {
	w := d.w
	order := func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.bucket.part.policy, b.bucket.part.policy), cmp.Compare(a.Seq, b.Seq))
	}
	slices.SortFunc(o.saves, func(a, b save) int { return order(a.job, b.job) })
	slices.SortFunc(o.burials, func(a, b burial) int { return order(a.job, b.job) })
	slices.SortFunc(o.forgets, func(a, b forgotten) int {
		return cmp.Or(cmp.Compare(a.part.policy, b.part.policy), cmp.Compare(a.seq, b.seq))
	})
	slices.SortFunc(o.reports, func(a, b report) int {
		return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.outcome.Seq, b.outcome.Seq))
	})
	slices.SortFunc(o.fetches, order)
	for _, j := range o.fetches {
		d.fetch(j)
	}
	asked := w.now
	for _, s := range o.saves {
		s.record.At = d.core.wall(d.clock()).UnixMicro()
		w.asksToRecord(d, s)
		d.save(&s)
	}
	for _, u := range o.burials {
		w.settles(d, u.job)
		d.call(lettersName, func() { w.letter(d, u, asked) }, u.bucket.part, func(v *valve) { v.buried(u.job) })
	}
	for _, f := range o.forgets {
		w.after(w.latency(), func() { w.deleteAttempt(f) })
	}
	for _, r := range o.reports {
		d.tell(r)
	}
}
