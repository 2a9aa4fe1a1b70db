package quota

import (
	"cmp"
	"time"
)

// After a crash, the starts since the last stored checkpoint are unknown. Beyond a budget of such
// units, the next job waits for a checkpoint.

// Noted is the number of the last checkpoint begun, and of the last one stored.
type Noted struct{ Begun, Stored uint32 }

// Units are units by cost name; "" is the job's own.
type Units map[string]int64

// untold counts units since the last checkpoint began, and earlier ones in no stored one.
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

func (l *Limits) Started(s *Set, c Cost, n Noted) {
	for i := range l.all {
		s.states[i].untold.add(c.Of(l.all[i].cost), n)
	}
}

// Spent reports whether a budget is used up, of the limits or of told.
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

// Budgets returns the units of each cost that may be in no stored checkpoint; 0: unlimited.
func (l *Limits) Budgets() Units {
	if l == nil {
		return nil
	}
	return l.budgets
}

// budgetOf returns a limit's budget; 0: unlimited. Checkpoints are at most some 3 s apart, so the
// budget delays no start of a limit in use, and the start of a whole limit by seconds at most. A
// crash counts it in full: a limit that refills within quickly needs none.
func budgetOf(most int64, interval time.Duration) int64 {
	some := max(1, most/16, int64(quickly/max(1, interval)))
	if some >= most {
		return 0
	}
	return some
}

const quickly = 10 * time.Second

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
