package quota

import "github.com/penstock-mq/penstock/algorithms"

// Charge is what a start, or a run, has taken of a set. It follows the set to other limits.
type Charge struct {
	set      *Set
	limits   *Limits   // of each
	at       times     // for limits that count from the start
	answered times     // for those that count from the answer
	each     []charged // per limit
	few      [3]charged
}

func (l *Limits) newCharge(s *Set) *Charge {
	ch := &Charge{set: s, limits: l}
	ch.each = ch.few[:0]
	return ch
}

// adapt follows the set to its limits.
func (ch *Charge) adapt() (*Set, *Limits) {
	if to := ch.set.of; ch.limits != to {
		before, each := ch.limits, ch.each
		ch.limits, ch.each = to, nil
		for _, from := range places(before.names, to.names) {
			of := notCharged
			if from >= 0 {
				of = each[from]
			}
			ch.each = append(ch.each, of)
		}
	}
	return ch.set, ch.limits
}

// Of reports whether the charge is to a set.
func (ch *Charge) Of(s *Set) bool { return ch.set == s }

// charged is the units of a start, and those charged until then; or held or abroad.
type charged struct{ units, by int64 }

// notCharged marks a limit newer than the start.
var notCharged = charged{units: -1}

const (
	held   = -1 // the units wait for their answer
	abroad = -2 // another process charged them
)

// Take charges a start that Next allows.
func (l *Limits) Take(s *Set, now Now, c Cost) (*Set, *Charge) {
	if s == nil {
		s = l.newSet()
	}
	asked, ch := l.asked(now), l.newCharge(s)
	ch.at = l.charges(s, asked)
	for i := range l.all {
		of, st, n := &l.all[i], &s.states[i], c.Of(l.all[i].cost)
		by := int64(held)
		if !of.arrivals {
			if at := asked.of(of); n <= of.left(st, at) {
				of.Charge(&st.State, at, ch.at.of(of), n)
				st.charged += n
			} else {
				st.owed += n // more than the limit allows now, or its clock stepped back
			}
			by = st.charged
		}
		ch.each = append(ch.each, charged{n, by})
		st.out += n
	}
	return s, ch
}

// Adopt continues a start of another process, of whose units the loose ones are held until its
// end, or also for its answer.
func (l *Limits) Adopt(s *Set, c Cost, ends, answers bool) (*Set, *Charge) {
	if s == nil {
		s = l.newSet()
	}
	ch := l.newCharge(s)
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		n := charged{c.Of(of.cost), abroad}
		if of.arrivals && (answers || ends && of.atEnd) && n.units <= st.loose {
			n.by = held
			st.loose, st.out = st.loose-n.units, st.out+n.units
		}
		ch.each = append(ch.each, n)
	}
	return s, ch
}

// charge charges n of some held units as of their answer.
func (l *Limits) charge(s *Set, i int, now, answered Now, from *int64, n int64) {
	of, st := &l.all[i], &s.states[i]
	at := l.answers(answered)
	if at.own.After(s.latest) {
		s.latest = at.own
	}
	h := of.holding().Answer(algorithms.Held[*algorithms.State]{Counted: &st.State, Units: *from},
		l.asked(now).of(of), at.of(of), n)
	st.charged += *from - h.Units
	*from = h.Units
}

// IsAnswered reports whether Answered has charged the start.
func (ch *Charge) IsAnswered() bool { return ch.answered != times{} }

// Answered charges a start whose answer had begun by an instant, which was read after it.
func (ch *Charge) Answered(now, at Now) {
	s, l := ch.adapt()
	for i := range l.all {
		if c := &ch.each[i]; c.by == held && !l.all[i].atEnd {
			l.charge(s, i, now, at, &s.states[i].out, c.units)
			ch.answered, c.by = l.answers(at), s.states[i].charged
		}
	}
}

// Open reports the units of a start that wait for its answer.
func (ch *Charge) Open(tell func(limit string, units int64)) {
	_, l := ch.adapt()
	for i, c := range ch.each {
		if c.by == held {
			tell(l.all[i].name, c.units)
		}
	}
}

// Holds reports whether the start holds units of all limits that count from its answer or end.
func (ch *Charge) Holds() bool {
	_, l := ch.adapt()
	for i, c := range ch.each {
		if l.all[i].arrivals && c.by != held {
			return false
		}
	}
	return true
}

// Return refunds a start that did not happen.
func (ch *Charge) Return(now Now) {
	s, l := ch.adapt()
	s.latency = min(s.latency+1, l.most)
	for i := range l.all {
		st, c := &s.states[i], ch.each[i]
		if c.by >= 0 {
			ch.refund(i, now, max(0, c.units))
		}
		l.close(st, i, c)
	}
}

// End is what is known at the end of a run.
type End struct {
	Used map[string]int64 // by name of the cost
	// Unanswered requests may still arrive, within the longest delay from now; Unsent ones will
	// not.
	Unanswered, Unsent bool
}

// Done ends a run. Of usage reported by name, the rest is refunded and an excess charged, even
// beyond a limit, within longestDebt. For a former owner's run only an excess is charged.
func (ch *Charge) Done(now Now, e End, noted Noted) {
	s, l := ch.adapt()
	s.latency -= min(s.latency, 1)
	for i := range l.all {
		of, st, c := &l.all[i], &s.states[i], ch.each[i]
		n, told := e.Used[of.cost]
		if told = told && of.cost != "" && c != notCharged; !told {
			n = c.units
		}
		switch {
		case c.by != held:
			if told && (c.by != abroad || n > c.units) {
				ch.settle(i, now, n-c.units, noted)
			}
		case e.Unsent:
		case e.Unanswered:
			st.loose += c.units
			s.lapses = max(s.lapses, now.Own+l.maxDelay)
		default:
			from := c.units
			l.charge(s, i, now, now, &from, min(n, c.units))
			st.owed += max(0, n-c.units)
			st.untold.add(max(0, n-c.units), noted)
		}
		l.close(st, i, c)
	}
}

// close ends the possibility of a refund.
func (l *Limits) close(st *state, i int, c charged) {
	if c.by == held || c.by >= 0 && !l.all[i].arrivals {
		st.out -= min(st.out, max(0, c.units))
	}
}

func (ch *Charge) settle(i int, now Now, more int64, noted Noted) {
	if st := &ch.set.states[i]; more > 0 {
		st.owed += more
		st.untold.add(more, noted)
	} else {
		ch.refund(i, now, -more)
	}
}

func (ch *Charge) refund(i int, now Now, n int64) {
	s, l := ch.set, ch.limits
	of, st := &l.all[i], &s.states[i]
	uncharged := min(n, st.owed)
	st.owed -= uncharged
	if n = min(n-uncharged, of.Most()); n <= 0 {
		return
	}
	at := ch.at
	if of.arrivals {
		at = ch.answered
	}
	of.Uncharge(&st.State, l.asked(now).of(of), algorithms.Charged{At: at.of(of),
		Last: s.latest, Units: n, Since: st.charged - ch.each[i].by})
}
