package valve

import (
	"maps"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

// unnoted tracks starts that no stored checkpoint has.
type unnoted struct {
	costs   quota.Units
	noted   quota.Noted
	told    bounds // stored; budgets as they may be stored
	telling bounds
}

type bounds struct{ costs, each, all quota.Units }

func (u *unnoted) costing(cost string, n int64) {
	if u.costs == nil {
		u.costs = quota.Units{}
	}
	u.costs[cost] = max(u.costs[cost], n)
}

// gathered begins a checkpoint, with all starts until now.
func (p *Part) gathered() {
	u := &p.unnoted
	u.telling = bounds{costs: maps.Clone(u.costs), each: p.v.quota.Budgets()}
	if t := p.v.together; t != nil {
		u.telling.all = t.Budgets()
	}
	u.told.each = quota.Least(u.told.each, u.telling.each)
	u.told.all = quota.Least(u.told.all, u.telling.all)
	u.noted.Begun++
}

// Noted records that the last checkpoint is stored, and reports whether it is the first.
func (p *Part) Noted() (first bool) {
	u := &p.unnoted
	first = u.noted.Stored == 0
	u.told, u.noted.Stored = u.telling, u.noted.Begun
	return first
}

// Holds implements [gates.Store]. It requests the checkpoint that a job waits for.
func (p *Part) Holds(c quota.Cost, l *quota.Limits, at pace.Instant) (until pace.Instant) {
	u := &p.unnoted
	for cost, budget := range l.Budgets() {
		if limited := budget > 0 || u.told.each[cost] > 0 || u.told.all[cost] > 0; limited &&
			!u.knows(cost, c) {
			until = at
		}
	}
	if u.noted.Stored == 0 {
		until = pace.Never
	}
	p.Changed = p.Changed || until > 0
	return until
}

func (u *unnoted) knows(cost string, c quota.Cost) bool {
	n := c.Of(cost)
	if n <= max(u.told.costs[cost], 1) {
		return true
	}
	u.costing(cost, n)
	return false
}

// Spent implements [gates.Store]. It requests the checkpoint that makes room.
func (p *Part) Spent(l *quota.Limits, used *quota.Set, all bool) bool {
	told := p.unnoted.told.each
	if all {
		told = p.unnoted.told.all
	}
	if !l.Spent(used, told, p.unnoted.noted) {
		return false
	}
	p.Changed = true
	return true
}

func (p *Part) noteUsed(l *quota.Limits, used quota.Units) {
	for cost := range l.Budgets() {
		if n := used[cost]; n > 0 {
			p.unnoted.costing(cost, n)
			p.Changed = true
		}
	}
}
