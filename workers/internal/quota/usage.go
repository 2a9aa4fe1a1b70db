package quota

import (
	"math"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// Set is a bucket's usage; nil if no usage counts.
type Set struct {
	of      *Limits
	states  []state
	latest  time.Time // last instant charged
	latency uint8     // doublings of the lag after overruns
	awaited bool      // loose units may be of runs that another process reports
	// lapses is when loose units that are held count as answered, by the process's clock.
	lapses time.Duration
}

// newSet allocates a set together with its states.
func (l *Limits) newSet() *Set {
	if len(l.all) > 3 {
		return &Set{of: l, states: make([]state, len(l.all))}
	}
	s := &struct {
		Set
		few [3]state
	}{}
	s.of, s.states = l, s.few[:len(l.all):len(l.all)]
	return &s.Set
}

func (l *Limits) Next(s *Set, now Now, c Cost) (wait time.Duration, by string) {
	wait, by, _ = l.Ask(s, now, c)
	return wait, by
}

// Ask returns the wait until the next start, its limit, and the end of the permission if no other
// start is charged. After a wait for one limit, it evaluates the others at its end.
// [algorithms.UntilAnswered]: until an answer comes, or units are given back.
func (l *Limits) Ask(s *Set, now Now, c Cost) (wait time.Duration, by string, until time.Duration) {
	if s == nil {
		s = l.none
	}
	asked := l.asked(now)
	l.pay(s, now)
	for again := true; again; {
		again, until = false, math.MaxInt64
		for i := range l.all {
			of, st := &l.all[i], &s.states[i]
			n := min(c.Of(of.cost)+st.owed, of.Most())
			at := asked.of(of)
			more := of.wait(st, at, n)
			if more == algorithms.UntilAnswered {
				return l.untilLapsed(s, st, now, more), of.name, now.Own
			}
			if of.bound.Aligned && more == 0 {
				left, quiet := of.end(at).Sub(at), l.quiet(of, s, now)
				// an answer may have begun the next window, by a clock that stepped back since
				begun := of.arrivals && of.resetAfter(st, at) > left+time.Microsecond
				if left <= quiet || begun {
					more = left
				} else {
					until = min(until, now.Own+left-quiet)
				}
			}
			if more > 0 {
				wait, by, again = wait+more, of.name, true
				asked = times{asked.own.Add(more), asked.wall.Add(more)}
			}
		}
	}
	return wait, by, until
}

// untilLapsed shortens a wait if loose units lapse.
func (l *Limits) untilLapsed(s *Set, st *state, now Now, wait time.Duration) time.Duration {
	if st.loose > 0 {
		wait = min(wait, max(1, s.lapses-now.Own))
	}
	return wait
}

// Left reports each limit's units that may start now, the maximum, and those that wait for their
// answer; the others count.
func (l *Limits) Left(s *Set, now Now, tell func(name string, left, most, open int64)) {
	if s == nil {
		s = l.none
	}
	asked := l.asked(now)
	l.pay(s, now)
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		tell(of.name, of.left(st, asked.of(of)), of.Most(), of.held(st))
	}
}

// Counted returns the units that count of each cost, and whether some wait for their answer.
func (l *Limits) Counted(s *Set, now Now) (units Units, open bool) {
	units = Units{}
	asked := l.asked(now)
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		units[of.cost] = max(units[of.cost],
			min(of.Most(), of.Most()-of.left(st, asked.of(of))+st.owed))
		open = open || of.held(st) > 0
	}
	return units, open
}

// pay charges debts, and held units that lapsed.
func (l *Limits) pay(s *Set, now Now) {
	asked := l.asked(now)
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		if of.bound.Aligned {
			of.clamp(st, asked.of(of))
		}
		if of.arrivals && st.loose > 0 && s.lapses <= now.Own {
			l.charge(s, i, now, now.plus(s.lapses-now.Own), &st.loose, st.loose)
		}
		if st.owed = min(st.owed, of.mostOwed); st.owed > 0 {
			paid := of.takeUpTo(st, asked.of(of), l.charges(s, asked).of(of), st.owed)
			st.owed -= paid
			st.charged += paid
		}
	}
}

func (l *Limits) charges(s *Set, asked times) times {
	if at := asked.own.Add(l.guard + l.late(s)); at.After(s.latest) {
		s.latest = at
	}
	return times{s.latest, asked.wall}
}

// FreshIn returns how long a set still counts.
func (l *Limits) FreshIn(s *Set, now Now) (wait time.Duration) {
	if s == nil {
		return 0
	}
	asked := l.asked(now)
	l.pay(s, now)
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		wait = max(wait, of.resetAfter(st, asked.of(of)))
		if of.held(st) > 0 {
			wait = max(wait, l.untilLapsed(s, st, now, time.Second))
		}
		if st.owed > 0 {
			wait = max(wait, of.wait(st, asked.of(of), min(st.owed, of.Most())), 1)
		}
	}
	return wait
}

// Adapt continues the usage under other limits. Limits that both have keep theirs.
func (s *Set) Adapt(to *Limits) {
	if before := s.of; before.names != to.names {
		fitted := make([]state, len(to.all))
		for i, from := range places(before.names, to.names) {
			if from >= 0 {
				fitted[i] = s.states[from]
			}
		}
		s.states = fitted
	}
	s.of = to
}
