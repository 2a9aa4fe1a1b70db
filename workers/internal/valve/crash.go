package valve

import (
	"maps"
	"math"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// crash bounds former owners' unrecorded starts between two instants.
type crash struct {
	from, to       pace.Instant
	listed, others quota.Units
	open           bool             // unlisted buckets may have open units
	sizes          map[string]int64 // of the owners' limits
}

func (v *Valve) unseen(c *crash) quota.Crash {
	return quota.Crash{From: v.instant(c.from), To: v.instant(c.to), Sizes: c.sizes}
}

// since returns the most units that can have started since a record was built, in one bucket or in
// all: the budget of each cost, whose last unit may belong to a job of several.
func (in Inheritance) since(l *quota.Limits, all bool) quota.Units {
	units := quota.Units{}
	for cost := range l.Budgets() {
		told := in.Handover.ByCost[cost]
		budget := told.Budget
		if all {
			budget = told.AllBudget
		}
		switch {
		case in.Unstarted:
			units[cost] = 0
		case budget > 0:
			units[cost] = budget - 1 + max(told.Cost, 1)
		default:
			units[cost] = math.MaxInt64
		}
	}
	return units
}

// inheritCrash bounds former owners' unrecorded starts.
func (p *Part) inheritCrash(in Inheritance, now pace.Instant) {
	for cost, b := range in.Handover.ByCost {
		p.unnoted.costing(cost, b.Cost)
	}
	if p.v.quota == nil {
		return
	}
	c := crash{from: now.Add(-max(in.Age, in.Elapsed)), to: p.crashedAt, others: quota.Units{},
		sizes: in.Handover.Sizes, open: in.Handover.Open || in.othersRun()}
	since := in.since(p.v.quota, false)
	if in.Crashed {
		c.listed = since
	} else {
		c.from = c.to.Add(-p.v.quota.Longest())
	}
	some := false
	for cost := range since {
		told, known := in.Handover.ByCost[cost]
		most := max(told.Slots, told.Unlisted) + c.listed[cost]
		if most < 0 || !known && in.Handover.ByCost[""].Slots > 0 ||
			in.Handover.Partial && told.Unlisted == 0 {
			most = math.MaxInt64
		}
		c.others[cost], some = most, some || most > 0
	}
	if some {
		p.crash = &c
	}
}

func (v *Valve) beginUsed(b *bucket, now pace.Instant) {
	if c := b.Part.crash; v.quota != nil && c != nil && now.Since(c.to) < v.quota.Longest() {
		b.own().Used = v.quota.Crashed(nil, v.unseen(c), c.others)
		if c.open {
			v.quota.Await(b.Used, v.instant(c.to))
		}
	}
}

// restore returns a record's usage, with what can have started since; nil: nothing.
func (v *Valve) restore(l *quota.Limits, text, names string, in Inheritance, since quota.Units,
	now pace.Instant) *quota.Set {
	used := l.Decode(text, names, v.instant(now.Add(-in.Elapsed)))
	if in.othersRun() {
		used = l.Await(used, v.instant(now.Add(in.Fence)))
	}
	if since != nil {
		used = l.Crashed(used, quota.Crash{From: v.instant(now.Add(-max(in.Age, in.Elapsed))),
			To: v.instant(now.Add(in.Fence)), Slack: in.slack(), Sizes: in.Handover.Sizes}, since)
	}
	return used
}

func (v *Valve) inheritUsed(b *bucket, c record.Clock, in Inheritance, now pace.Instant) {
	if v.quota == nil {
		return
	}
	var since quota.Units
	if crash := b.Part.crash; crash != nil {
		since = crash.listed
	}
	b.own().Used = v.restore(v.quota, c.Used, in.Handover.Limits, in, since, now)
}

// inheritTogether restores the usage of all buckets.
func (v *Valve) inheritTogether(in Inheritance, now pace.Instant) {
	t, h := v.together, in.Handover
	if t == nil {
		return
	}
	var since quota.Units
	if in.Crashed || h.Partial && h.AllLimits == "" {
		since = in.since(t.Limits, true)
	}
	t.first, t.passed = nil, nil
	t.used = v.restore(t.Limits, h.Together, h.AllLimits, in, since, now)
	v.countLate(t, now)
}

func (p *Part) tellLimits(h *record.Handover, now pace.Instant) {
	if p.v.quota == nil && p.v.together == nil {
		return
	}
	crashed := p.crash
	if crashed != nil && (p.v.quota == nil || now.Since(crashed.to) >= p.v.quota.Longest()) {
		crashed = nil
	}
	u := &p.unnoted
	h.ByCost = map[string]record.Bounds{"": {Cost: u.costs[""]}}
	for _, all := range []quota.Units{u.telling.each, u.telling.all} {
		for cost := range all {
			told := record.Bounds{Cost: u.costs[cost], Budget: u.telling.each[cost],
				AllBudget: u.telling.all[cost]}
			if crashed != nil {
				told.Slots = crashed.others[cost]
			}
			h.ByCost[cost] = told
		}
	}
	if p.v.quota != nil {
		h.Limits, h.Sizes = p.v.quota.Names(), p.v.quota.Sizes()
		if crashed != nil {
			h.Open = crashed.open
			h.Crashed = max(1, record.Micros(now.Since(crashed.to)))
		}
	}
	if t := p.v.together; t != nil {
		h.AllLimits, h.Together = t.Names(), t.Encode(t.used, p.v.instant(now))
		if h.Sizes == nil {
			h.Sizes = map[string]int64{}
		}
		maps.Copy(h.Sizes, t.Sizes())
	}
}
