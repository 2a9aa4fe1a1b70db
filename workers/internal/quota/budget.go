package quota

import (
	"cmp"
	"time"
)

// After a crash nobody knows what has started since the last checkpoint that was stored. A budget
// keeps that small beside a limit that lasts for long: as soon as so many units of it are charged
// of which no stored checkpoint tells, the next job waits for one.

// Noted counts the checkpoints that tell of sets: those that were begun, and which of them was
// stored last.
type Noted struct{ Begun, Stored uint32 }

// Units is a number of units by the cost that limits count, "" for that of the job.
type Units map[string]int64

// untold is how many units were charged that no stored checkpoint tells of: since the last one was
// begun before them, and before that.
type untold struct {
	since, before int64
	begun         uint32
}

func (u *untold) units(n Noted) int64 {
	switch {
	case n.Stored > u.begun:
		return 0
	case n.Stored == u.begun:
		return u.since
	}
	return u.before + u.since
}

func (u *untold) add(units int64, n Noted) {
	if u.begun != n.Begun {
		*u = untold{before: u.units(n), begun: n.Begun}
	}
	u.since += units
}

// Started counts a start of which no checkpoint tells.
func (l *Limits) Started(s *Set, c Cost, n Noted) {
	for i := range l.all {
		s.states[i].untold.add(c.Of(l.all[i].cost), n)
	}
}

// Spent reports whether a set has used a budget up, of those that the limits have or of those that
// were told.
func (l *Limits) Spent(s *Set, told Units, n Noted) bool {
	if s == nil {
		return false
	}
	for i := range l.all {
		of := &l.all[i]
		budget := least(of.budget, told[of.cost])
		if budget > 0 && s.states[i].untold.units(n) >= budget {
			return true
		}
	}
	return false
}

// Budgets are how many units of each cost may be charged that no stored checkpoint tells of; 0: any
// number.
func (l *Limits) Budgets() Units {
	if l == nil {
		return nil
	}
	return l.budgets
}

// budgetOf is what a limit allows of it; 0: any number. About four checkpoints are written a
// second, so a sixteenth of the limit holds nobody up for more than some seconds. A limit that
// comes back within a minute needs none.
func budgetOf(most int64, interval time.Duration) int64 {
	some := max(1, most/16, int64(time.Minute/max(1, interval)))
	if some >= most {
		return 0
	}
	return some
}

// Least are the smaller ones of two budgets.
func Least(a, b Units) Units {
	smaller := Units{}
	for _, all := range []Units{a, b} {
		for cost := range all {
			smaller[cost] = least(a[cost], b[cost])
		}
	}
	return smaller
}

func least(a, b int64) int64 { return min(cmp.Or(a, b), cmp.Or(b, a)) }
