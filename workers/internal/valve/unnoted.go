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

// untold returns until when a job waits for stored checkpoints, also of shared limits; Never: for
// the first.
func (p *Part) untold(c quota.Cost, now pace.Instant) (until pace.Instant) {
	if p.v.quota != nil {
		until = p.waitsFor(c, p.v.quota, now)
	}
	for _, t := range p.v.common {
		if p := t.here(); p != nil {
			until = max(until, p.waitsFor(c, t.Limits, now))
		}
	}
	return until
}

// waitsFor returns until when a job under limits waits for a checkpoint, and then requests one.
func (p *Part) waitsFor(c quota.Cost, l *quota.Limits, now pace.Instant) (until pace.Instant) {
	u := &p.unnoted
	for cost, budget := range l.Budgets() {
		if limited := budget > 0 || u.told.each[cost] > 0 || u.told.all[cost] > 0; limited &&
			!u.knows(cost, c) {
			until = now.Add(askAgain)
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

// spent reports whether a budget is used up, and then requests a checkpoint.
func (p *Part) spent(l *quota.Limits, used *quota.Set, told quota.Units) bool {
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
