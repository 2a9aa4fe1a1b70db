package quota

import (
	"cmp"
	"time"
)

// After a crash nobody knows what has started since the last checkpoint that was stored. A budget
// keeps that small beside a limit that lasts for long: as soon as so many slots have started of
// which no stored checkpoint tells, the next job waits for one.

// Noted counts the checkpoints that tell of sets: those that were begun, and which of them was
// stored last.
type Noted struct{ Begun, Stored uint32 }

// untold is how many slots have started that no stored checkpoint tells of: since the last one
// was begun before them, and before that.
type untold struct {
	since, before int64
	begun         uint32
}

func (u *untold) slots(n Noted) int64 {
	switch {
	case n.Stored > u.begun:
		return 0
	case n.Stored == u.begun:
		return u.since
	}
	return u.before + u.since
}

// Untold is how many slots have started that no stored checkpoint tells of.
func (s *Set) Untold(n Noted) int64 {
	if s == nil {
		return 0
	}
	return s.untold.slots(n)
}

// Started counts a start of so many slots.
func (s *Set) Started(slots int64, n Noted) {
	if u := &s.untold; u.begun != n.Begun {
		*u = untold{before: u.slots(n), begun: n.Begun}
	}
	s.untold.since += slots
}

// Budget is how many slots may start that no stored checkpoint tells of; 0: any number.
func (l *Limits) Budget() int64 {
	if l == nil {
		return 0
	}
	return l.budget
}

// budget is what a limit allows of it; 0: any number. About four checkpoints are written a second,
// so a sixteenth of the limit holds nobody up for more than some seconds. A limit that comes back
// within a minute needs none. What jobs cost in the end is not known when they start, so one with a
// cost of its own would need to bound that, too.
func (of *limit) budget() int64 {
	most := of.most()
	some := max(1, most/16, int64(time.Minute/max(1, of.interval)))
	if of.cost != "" || some >= most {
		return 0
	}
	return some
}

// Least is the smaller of two budgets.
func Least(a, b int64) int64 { return min(cmp.Or(a, b), cmp.Or(b, a)) }
