package valve

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

// together is the limits over all buckets of a policy, or a shared limit. Buckets take turns.
//
// A job that costs more than the balance lets cheaper ones pass until it could have started without
// them, and at most mostPassed buckets do so at a time. Then the others wait for it.
type together struct {
	*quota.Limits
	host   *startLimits // of its owner; nil: not here
	part   *Part        // that stores it; nil: not yet
	name   string       // if shared
	used   *quota.Set
	first  *bucket   // all others wait for its job; may be nil
	passed []*bucket // these let others pass
	late   []late    // corrections while its state is elsewhere
}

func totalOf(p policy.Policy) *pace.Pace {
	return pace.New(p.OutflowTotal, p.PeakTotalRatio(), 1)
}

const mostPassed = 64

func (l *startLimits) takesTurns() bool { return l.total.Pace != nil || len(l.common) > 0 }

// turning is the gate of turns, for later starts: no bucket waits for its own.
type turning struct{ *startLimits }

// After implements [gates.Later].
func (l turning) After(_ *gates.Bucket, a *gates.Ahead, at pace.Instant) pace.Instant {
	if !l.takesTurns() {
		return at
	}
	return max(at, a.From.Add(pace.Times(a.Slots+a.Others, l.turnEvery())))
}

// nextTurn returns what delays the next turn; forever while a shared limit is elsewhere.
func (l *startLimits) nextTurn(now pace.Instant) gates.Hold {
	h := l.total.Next()
	for _, t := range l.common {
		if l.elsewhere(t) {
			return gates.Hold{By: gates.ByLimit, Limit: t.name, Until: pace.Never}
		}
		least := oneSlot
		if b := t.first; b != nil && b.Part.Live() && b.queue.Near() > 0 {
			least = b.queue.Head().takes()
		}
		wait, limit := t.Next(t.used, l.wall.reading(now), least)
		h = h.Or(gates.Hold{By: gates.ByLimit, Limit: limit, Until: after(wait, now)})
	}
	return h
}

func (l *startLimits) turnEvery() (every time.Duration) {
	if l.total.Pace != nil {
		every = l.total.Interval
	}
	for _, t := range l.common {
		if t.host != nil {
			every = max(every, t.Interval())
		}
	}
	return every
}

// fits reports whether limits over all buckets allow a head to start. Otherwise it lets others
// pass, or they wait for it.
func (l *startLimits) fits(b *bucket, now pace.Instant) bool {
	if len(l.common) == 0 {
		return true
	}
	head := b.queue.Head()
	wait, by, t := l.wait(head.takes(), now)
	if wait == 0 {
		return true
	}
	t.passed = slices.DeleteFunc(t.passed, func(b *bucket) bool { return b.passes(now) == 0 })
	if b.Passing.Seq == head.Seq || len(t.passed) >= mostPassed {
		t.first = b
		return false
	}
	b.own().Passing = gates.Passing{Seq: head.Seq, Until: after(wait, now), By: by}
	t.passed = append(t.passed, b)
	b.changed()
	return false
}

// wait returns the longest wait under limits over all buckets.
func (l *startLimits) wait(c quota.Cost,
	now pace.Instant) (wait time.Duration, by string, of *together) {
	for _, t := range l.common {
		if more, limit := t.Next(t.used, l.wall.reading(now), c); more > wait {
			wait, by, of = more, limit, t
		}
	}
	return wait, by, of
}

func (v *Valve) contested(now pace.Instant) bool {
	passes := func(b *bucket) bool { return b.Part.v == v && b.passes(now) != 0 }
	return v.agenda.competing() > 0 ||
		slices.ContainsFunc(v.common,
			func(t *together) bool { return slices.ContainsFunc(t.passed, passes) })
}

func (l *startLimits) takeTurn(b *bucket, cost int64) {
	if l.takesTurns() {
		b.turns = l.turns.Take(b.turns, cost, float64(b.weight))
		b.own().Passing = gates.Passing{}
	}
}

// setTogether replaces the limits, and converts their usage.
func (v *Valve) setTogether(p policy.Policy) {
	switch to, before := quota.Together(p), v.together; {
	case to == nil:
		v.together = nil
	case before == nil:
		v.together = &together{Limits: to, host: &v.startLimits}
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
			wait, _ := t.Next(t.used, v.wall.reading(now), b.queue.Head().takes())
			b.Passing.Until = min(b.Passing.Until, after(wait, now))
			b.changed()
		}
	}
}

// A shared limit has a separate valve, without jobs, which moves with its only partition. The
// policies' valves charge it while this process owns that partition, and otherwise start no jobs.
// They take turns by weight, as do policies whose workers share slots.

type line struct {
	valves []*Valve
	turns  gates.Turns
}

func (s *settings) weight() float64 { return float64(max(s.Policy.Weight, 1)) }

// mostLate bounds a limit's corrections.
const mostLate = 1024

// SharedLimit is a limit that policies share, and its valve; nil: not here.
type SharedLimit struct {
	Name string
	Of   *Valve
}

func (l *startLimits) ShareLimits(all []SharedLimit) {
	l.shared = l.shared[:0]
	for _, s := range all {
		t := &together{name: s.Name}
		if s.Of != nil {
			t = s.Of.together
			t.name = s.Name
		}
		l.shared = append(l.shared, t)
	}
	l.gatherCommon()
}

func (l *startLimits) gatherCommon() {
	l.common = slices.Clone(l.shared)
	if l.together != nil {
		l.common = append(l.common, l.together)
	}
}

func (t *together) here() *Part {
	if t.part != nil && t.part.Live() {
		return t.part
	}
	return nil
}

func (l *startLimits) elsewhere(t *together) bool { return t != l.together && t.here() == nil }

func (l *startLimits) spent() bool {
	return slices.ContainsFunc(l.common, func(t *together) bool {
		p := t.here()
		return p != nil && p.Checkpoints.Spent(t.Limits, t.used, true)
	})
}

// tellLate applies the usage of an end, at once or when the limit's state arrives. Units that the
// run may hold lapse: where the limit was, its answer or end may have counted.
func (l *startLimits) tellLate(t *together, end late, now pace.Instant) {
	end.ends, end.answers = false, false
	switch {
	case !l.elsewhere(t):
		l.endLate(t, end, now)
		t.callBack(now)
	case len(t.late) < mostLate && len(end.Used) > 0:
		t.late = append(t.late, end)
	}
}

func (l *startLimits) countLate(t *together, now pace.Instant) {
	for _, end := range t.late {
		l.endLate(t, end, now)
	}
	t.late = nil
}

func (l *startLimits) endLate(t *together, end late, now pace.Instant) {
	used, charge := t.Adopt(t.used, end.cost, end.ends, end.answers)
	t.used = used
	charge.Done(l.wall.reading(now), end.End, t.part.Checkpoints.Noted)
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
		v.taken = l.turns.Now
	}
}
