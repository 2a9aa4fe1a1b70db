package valve

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

// together is the limits over all buckets of a policy, or a shared limit. Buckets take turns.
//
// A job that costs more than the balance lets cheaper ones pass until it could have started without
// them, and at most mostPassed buckets do so at a time. Then the others wait for it.
type together struct {
	*quota.Limits
	host   *Valve // owner; nil: not here
	part   *Part  // that stores it; nil: not yet
	name   string // if shared
	used   *quota.Set
	first  *bucket   // all others wait for its job; may be nil
	passed []*bucket // these let others pass
	late   []late    // corrections while its state is elsewhere
}

type order struct {
	total totalRate
	// turns is the virtual time of start-time fair queueing (Goyal, Vin and Cheng, 1996), in starts
	// by weight. A bucket that becomes active starts from here.
	turns     float64
	mostTurns float64
	line      *line
	taken     float64 // turns of this valve in its line
}

// totalRate is the rate of all buckets together. A limit would cost a guard and a checkpoint.
type totalRate struct {
	*pace.Pace
	clock pace.Clock
	awake bool
}

func totalOf(p policy.Policy) *pace.Pace {
	return pace.New(p.OutflowTotal, p.PeakTotalRatio(), 1)
}

func (t *totalRate) change(to *pace.Pace, now pace.Instant) {
	if before := t.Pace; before != nil && to != nil {
		to.Adapt(&t.clock, before, now)
	} else {
		t.clock.Reset()
		to.Hold(&t.clock, now)
	}
	t.Pace = to
}

const mostPassed = 64

func (v *Valve) takesTurns() bool { return v.total.Pace != nil || len(v.common) > 0 }

// nextTurn returns what delays the next turn; forever while a shared limit is elsewhere.
func (v *Valve) nextTurn(now pace.Instant) hold {
	h := hold{by: byTotalRate, until: v.total.Next(&v.total.clock)}
	for _, t := range v.common {
		if v.elsewhere(t) {
			return hold{by: byLimit, limit: t.name, until: pace.Never}
		}
		least := oneSlot
		if b := t.first; b != nil && b.Part.Live() && b.queue.Near() > 0 {
			least = b.queue.Head().takes()
		}
		wait, limit := t.Next(t.used, v.instant(now), least)
		h = h.or(hold{by: byLimit, limit: limit, until: after(wait, now)})
	}
	return h
}

func (v *Valve) turnEvery() (every time.Duration) {
	if v.total.Pace != nil {
		every = v.total.Interval
	}
	for _, t := range v.common {
		if t.host != nil {
			every = max(every, t.Interval())
		}
	}
	return every
}

// fits reports whether limits over all buckets allow a head to start. Otherwise it lets others
// pass, or they wait for it.
func (v *Valve) fits(b *bucket, now pace.Instant) bool {
	if len(v.common) == 0 {
		return true
	}
	head := b.queue.Head()
	wait, by, t := v.commonWait(head.takes(), now)
	if wait == 0 {
		return true
	}
	t.passed = slices.DeleteFunc(t.passed, func(b *bucket) bool { return b.passes(now) == 0 })
	if b.passing.seq == head.Seq || len(t.passed) >= mostPassed {
		t.first = b
		return false
	}
	b.own().passing = passing{head.Seq, after(wait, now), by}
	t.passed = append(t.passed, b)
	b.changed()
	return false
}

func (v *Valve) commonWait(c quota.Cost,
	now pace.Instant) (wait time.Duration, by string, of *together) {
	for _, t := range v.common {
		if more, limit := t.Next(t.used, v.instant(now), c); more > wait {
			wait, by, of = more, limit, t
		}
	}
	return wait, by, of
}

func (v *Valve) contested(now pace.Instant) bool {
	passes := func(b *bucket) bool { return b.Part.v == v && b.passes(now) != 0 }
	return len(v.due)+len(v.unread)+len(v.callers) > 0 ||
		slices.ContainsFunc(v.common,
			func(t *together) bool { return slices.ContainsFunc(t.passed, passes) })
}

func (v *Valve) takeTurn(b *bucket, cost int64) {
	v.line.turns = max(v.line.turns, v.taken)
	v.taken = v.line.turns + float64(cost)/v.weight()
	if !v.takesTurns() {
		return
	}
	v.turns = max(v.turns, b.turns)
	b.turns = v.turns + float64(cost)/float64(b.weight)
	v.mostTurns = max(v.mostTurns, b.turns)
	b.own().passing = passing{}
}

// setTogether replaces the limits, and converts their usage.
func (v *Valve) setTogether(p policy.Policy) {
	switch to, before := quota.Together(p), v.together; {
	case to == nil:
		v.together = nil
	case before == nil:
		v.together = &together{Limits: to, host: v}
		for _, p := range v.parts {
			v.together.part = p
		}
	default:
		if before.Limits = to; before.used != nil {
			before.used.Adapt(to)
		}
	}
	v.gatherCommon()
}

// callBack reevaluates passed buckets after a refund or an answer; nil has none.
func (t *together) callBack(now pace.Instant) {
	if t == nil {
		return
	}
	for _, b := range slices.Clone(t.passed) {
		if v := b.Part.v; b.passes(now) != 0 && b.Part.Live() {
			wait, _ := t.Next(t.used, v.instant(now), b.queue.Head().takes())
			b.passing.until = min(b.passing.until, after(wait, now))
			b.changed()
		}
	}
}

// A shared limit has a separate valve, without jobs, which moves with its only partition. The
// policies' valves charge it while this process owns that partition, and otherwise start no jobs.
// They take turns by weight, as do policies whose workers share slots.

type line struct {
	valves []*Valve
	turns  float64
}

func (s *settings) weight() float64 { return float64(max(s.Policy.Weight, 1)) }

// mostLate bounds a limit's corrections.
const mostLate = 1024

// SharedLimit is a limit that policies share, and its valve; nil: not here.
type SharedLimit struct {
	Name string
	Of   *Valve
}

func (v *Valve) ShareLimits(all []SharedLimit) {
	v.shared = v.shared[:0]
	for _, l := range all {
		t := &together{name: l.Name}
		if l.Of != nil {
			t = l.Of.together
			t.name = l.Name
		}
		v.shared = append(v.shared, t)
	}
	v.gatherCommon()
}

func (v *Valve) gatherCommon() {
	v.common = slices.Clone(v.shared)
	if v.together != nil {
		v.common = append(v.common, v.together)
	}
}

func (t *together) here() *Part {
	if t.part != nil && t.part.Live() {
		return t.part
	}
	return nil
}

func (v *Valve) elsewhere(t *together) bool { return t.host != v && t.here() == nil }

func (v *Valve) spent() bool {
	return slices.ContainsFunc(v.common, func(t *together) bool {
		p := t.here()
		return p != nil && p.Checkpoints.Spent(t.Limits, t.used, true)
	})
}

// tellLate applies the usage of an end, at once or when the limit's state arrives. Units that the
// run may hold lapse: where the limit was, its answer or end may have counted.
func (v *Valve) tellLate(t *together, l late, now pace.Instant) {
	l.ends, l.answers = false, false
	switch {
	case !v.elsewhere(t):
		v.endLate(t, l, now)
		t.callBack(now)
	case len(t.late) < mostLate && len(l.Used) > 0:
		t.late = append(t.late, l)
	}
}

func (v *Valve) countLate(t *together, now pace.Instant) {
	for _, l := range t.late {
		v.endLate(t, l, now)
	}
	t.late = nil
}

func (v *Valve) endLate(t *together, l late, now pace.Instant) {
	used, charge := t.Adopt(t.used, l.cost, l.ends, l.answers)
	t.used = used
	charge.Done(v.instant(now), l.End, t.part.Checkpoints.Noted)
}

// Join puts valves into one line. Their turns restart from 0.
func Join(valves []*Valve) {
	if slices.Equal(valves, valves[0].line.valves) {
		return
	}
	to := &line{valves: valves}
	for _, v := range valves {
		v.line, v.taken = to, 0
	}
}

// Leads reports whether the valve's Advance advances its line.
func (v *Valve) Leads() bool { return v.line.valves[0] == v }

// start starts jobs in order of the valves' turns, each valve's with local workers first.
func (l *line) start(now pace.Instant) {
	for {
		var first *bucket
		var by *claimer
		for _, v := range l.valves {
			b, claim := v.next(now)
			if b != nil && (first == nil || v.taken < first.Part.v.taken) {
				first, by = b, claim
			}
		}
		if first == nil {
			return
		}
		first.Part.v.start(first, by, now)
	}
}

func (l *line) rest(now pace.Instant) {
	for _, v := range l.valves {
		if v.contested(now) {
			return
		}
	}
	for _, v := range l.valves {
		v.taken = l.turns
	}
}
