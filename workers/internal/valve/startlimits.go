package valve

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Start limits apply in addition to a bucket's pace. A start is charged when decided, and refunded
// if returned; the guard covers the delay in between.
//
// To keep unknown starts few after a crash, no job starts under limits before an owner's first
// checkpoint; while a start older than mostUnnoted is in no checkpoint; if the job costs more than
// any in a checkpoint; or beyond a stored checkpoint's budget.

const (
	mostUnnoted = 2 * time.Second
	// askAgain is the pause before another look for a checkpoint, plus askAgainPerBucket: large
	// partitions have rarer ones.
	askAgain          = 100 * time.Millisecond
	askAgainPerBucket = 10 * time.Microsecond
)

type startLimits struct {
	quota      *quota.Limits     // per bucket; may be nil
	together   *together         // over all buckets; may be nil
	shared     []*together       // with other policies
	common     []*together       // shared and together
	candidates *quota.Candidates // shadow limits
	untold     pace.Instant      // buckets wait for a checkpoint
}

// unnoted tracks starts that no stored checkpoint has.
type unnoted struct {
	since   pace.Instant // first start in no checkpoint, or 0
	writing pace.Instant // first start in the checkpoint being written, or 0
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
	u.writing = cmp.Or(u.writing, u.since)
	u.since, u.telling = 0, bounds{costs: maps.Clone(u.costs), each: p.v.quota.Budgets()}
	if t := p.v.together; t != nil {
		u.telling.all = t.Budgets()
	}
	u.told.each = quota.Least(u.told.each, u.telling.each)
	u.told.all = quota.Least(u.told.all, u.telling.all)
	u.noted.Begun++
}

// Noted reports whether a stored checkpoint is the first.
func (p *Part) Noted(stored bool) (first bool) {
	u := &p.unnoted
	switch {
	case stored:
		first = u.noted.Stored == 0
		u.told, u.noted.Stored = u.telling, u.noted.Begun
	case u.writing != 0:
		u.since = u.writing
	}
	u.writing = 0
	return first
}

func (u *unnoted) gap(now pace.Instant) time.Duration {
	switch {
	case u.writing != 0:
		return now.Since(u.writing)
	case u.since != 0:
		return now.Since(u.since)
	}
	return 0
}

// tells reports whether checkpoints allow a job to start under limits, and otherwise requests one.
func (p *Part) tells(c quota.Cost, l *quota.Limits, now pace.Instant) bool {
	u := &p.unnoted
	known := u.noted.Stored > 0 && u.gap(now) <= mostUnnoted
	known = u.knows("", c) && known
	for cost, budget := range l.Budgets() {
		if budget > 0 || u.told.each[cost] > 0 || u.told.all[cost] > 0 {
			known = u.knows(cost, c) && known
		}
	}
	p.Changed = p.Changed || !known
	return known
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

func (p *Part) starts(now pace.Instant) {
	if p.unnoted.since == 0 {
		p.unnoted.since = now
	}
	p.Changed = true
}

func (v *Valve) withinLimits(b *bucket, now pace.Instant) hold {
	if v.quota == nil && len(v.common) == 0 || b.queue.Near() == 0 {
		return hold{}
	}
	head := b.queue.Head()
	switch turns := len(v.common) > 0; {
	case turns && now < v.untold:
		return hold{by: byStorage, until: v.untold}
	case b.Part.covers(head.takes(), now):
	case turns && !b.Part.covers(oneSlot, now):
		v.untold = now.Add(askAgain)
		return hold{by: byStorage, until: v.untold}
	default:
		return hold{by: byStorage, until: now.Add(askAgain)}
	}
	if v.quota == nil {
		return hold{}
	}
	if p := b.Part; p.spent(v.quota, b.used, p.unnoted.told.each) {
		return hold{by: byStorage,
			until: now.Add(askAgain + time.Duration(p.Buckets())*askAgainPerBucket)}
	}
	wait, by, until := v.quota.Ask(b.used, v.instant(now), head.takes())
	if b.allowed = (allowed{}); wait == 0 {
		b.allowed = allowed{head.Seq, min(pace.Instant(until), now.Add(askAgain))}
		return hold{}
	}
	return hold{by: byLimit, limit: by, until: after(wait, now)}
}

// after returns the end of a wait for a limit; Never if only an answer ends it.
func after(wait time.Duration, now pace.Instant) pace.Instant {
	if wait == quota.UntilAnswered {
		return pace.Never
	}
	return now.Add(wait)
}

// stillWithin checks a due bucket again, because some permissions end.
func (v *Valve) stillWithin(b *bucket, now pace.Instant) bool {
	head := b.queue.Head()
	if a := b.allowed; v.quota != nil && a.seq == head.Seq && now < a.until &&
		b.Part.covers(head.takes(), now) {
		return v.fits(b, now)
	}
	if v.withinLimits(b, now).until > now {
		b.changed()
		return false
	}
	return v.fits(b, now)
}

func (v *Valve) againWithin(now pace.Instant) {
	for _, t := range v.common {
		t.callBack(now)
	}
	if v.quota == nil {
		return
	}
	for _, part := range v.parts {
		for _, b := range part.buckets {
			if b.fresh = 0; b.spot == spotSched {
				b.changed()
			}
		}
	}
}

type charged struct {
	by     *together // nil: its bucket's limits
	charge *quota.Charge
	of     *quota.Set // nil: limits that are gone
	next   *charged
}

// charge charges a start to all limits, and bounds the time until its final check.
func (v *Valve) charge(j *heldJob, t *Ticket, now pace.Instant) {
	b := j.Bucket
	j.charged = nil
	take := func(by *together, l *quota.Limits, used *quota.Set, p *Part) *quota.Set {
		t.latest = min(t.latest, now.Later(l.Lag(used)))
		used, charge := l.Take(used, v.instant(now), j.takes())
		j.charged = &charged{by, charge, used, j.charged}
		if p != nil {
			p.starts(now)
			l.Started(used, j.takes(), p.unnoted.noted)
		}
		return used
	}
	if v.quota != nil {
		b.own().used = take(nil, v.quota, b.used, b.Part)
	}
	for _, all := range v.common {
		all.first = nil
		all.used = take(all, all.Limits, all.used, all.here())
	}
}

func (v *Valve) try(j *heldJob, now pace.Instant) (delays map[string]time.Duration) {
	if v.candidates != nil {
		b := j.Bucket
		b.own().trial, delays = v.candidates.Start(b.trial, v.instant(now), j.takes())
	}
	return delays
}

// chargeOf returns the limits of a charge of a job, their usage, and the part that stores it; nil
// limits if they are elsewhere, or were meanwhile.
func (v *Valve) chargeOf(j *heldJob, c *charged) (l *quota.Limits, used *quota.Set, p *Part) {
	b := j.Bucket
	switch l, used, p = v.quota, b.used, b.Part; {
	case p.state > partitionLive && (c.by == nil || c.by.host == v): // as it was handed over
		return nil, nil, nil
	case c.by != nil:
		if v.elsewhere(c.by) {
			return nil, nil, nil
		}
		l, used, p = c.by.Limits, c.by.used, c.by.part
	}
	if c.of == nil || c.of != used {
		return nil, nil, nil
	}
	return l, used, p
}

// answer charges what waited for the answer to a job's or call's request, which had begun by an
// instant.
func (v *Valve) answer(j *heldJob, at, now pace.Instant) {
	for c := j.charged; c != nil; c = c.next {
		l, used, _ := v.chargeOf(j, c)
		if l == nil {
			continue
		}
		l.Answered(used, c.charge, v.instant(now), v.instant(at))
		if c.by != nil {
			c.by.callBack(now)
		}
	}
	if b := j.Bucket; b.heldBy != "" && b.Part.Live() {
		b.changed()
	}
}

// adoptRun continues a run of another process under the limits that are here. A call may have been
// answered there, so what it holds lapses.
func (v *Valve) adoptRun(j *heldJob, end late, now pace.Instant) {
	if v.quota != nil {
		used, charge := end.adopt(v.quota, j.Bucket.used)
		j.Bucket.own().used = used
		j.charged = &charged{nil, charge, used, j.charged}
	}
	for _, t := range v.common {
		if t.host != v || v.elsewhere(t) {
			v.tellLate(t, end, now)
			continue
		}
		used, charge := end.adopt(t.Limits, t.used)
		t.used = used
		j.charged = &charged{t, charge, used, j.charged}
	}
}

// account ends a job's charges.
func (v *Valve) account(j *heldJob, o record.Outcome, local bool, now pace.Instant) {
	end := late{j.takes(), endOf(o, local), j.call == nil, j.call == nil && !o.Answered}
	if j.charged == nil && !local && !o.Ended && o.Kind != record.OutcomeReturned {
		v.adoptRun(j, end, now)
	}
	c := j.charged
	j.charged = nil
	for ; c != nil; c = c.next {
		l, used, p := v.chargeOf(j, c)
		switch {
		case l == nil && c.by != nil:
			v.tellLate(c.by, end, now)
			continue
		case l == nil:
			continue
		case local && o.Kind == record.OutcomeReturned:
			l.Return(used, c.charge, v.instant(now))
		default:
			l.Done(used, c.charge, v.instant(now), end.End, p.unnoted.noted)
			p.noteUsed(l, o.Used)
		}
		if c.by != nil {
			c.by.callBack(now)
		}
	}
}

// awaits holds what another owner's run may hold until it must have reported again.
func (v *Valve) awaits(j *heldJob, now pace.Instant) {
	if j.charged != nil || !v.Policy.CountsArrivals() {
		return
	}
	if v.quota != nil {
		v.quota.Await(j.Bucket.used, v.instant(now))
	}
	for _, t := range v.common {
		if !v.elsewhere(t) {
			t.Await(t.used, v.instant(now))
		}
	}
}

// leaveCharges is for a run whose end will not be reported here: what it holds of limits that stay
// is held for another timeout.
func (v *Valve) leaveCharges(j *heldJob, now pace.Instant) {
	v.account(j, record.Outcome{Kind: record.OutcomeReturned}, false, now)
	v.awaits(j, now)
}

// endOf says what an outcome says of limits. Another process's run that is no longer waited for may
// have any outcome.
func endOf(o record.Outcome, local bool) quota.End {
	lost := !local && o.Kind == record.OutcomeReturned
	return quota.End{Used: o.Used, Unanswered: lost || o.Answer == record.AnswerNone,
		Unsent: o.Answer == record.AnswerUnsent}
}

func (v *Valve) recharge(by *together, from, to *quota.Limits,
	used func(c *charged, b *bucket) *quota.Set) {
	adapt := func(j *heldJob) {
		for c := j.charged; c != nil; c = c.next {
			if c.by == by && c.of != nil {
				if c.of = used(c, j.Bucket); from != nil && to != nil {
					c.charge = to.AdaptCharge(c.charge, from)
				}
			}
		}
	}
	for _, r := range v.runs {
		adapt(r.heldJob)
	}
	for _, p := range v.parts {
		for _, j := range p.calls {
			adapt(j)
		}
	}
}

func (p *Part) noteUsed(l *quota.Limits, used quota.Units) {
	for cost := range l.Budgets() {
		if n := used[cost]; n > 0 {
			p.unnoted.costing(cost, n)
			p.Changed = true
		}
	}
}

func (v *Valve) setQuota(to *quota.Limits, candidates *quota.Candidates) {
	before := v.quota
	v.quota, v.candidates = to, candidates
	for _, part := range v.parts {
		for _, b := range part.buckets {
			if b.near == nothingNear {
				continue
			}
			b.trial, b.fresh = nil, 0
			if to == nil || before == nil {
				b.used = nil
			} else {
				b.used = to.Adapt(b.used, before)
			}
		}
	}
	v.recharge(nil, before, to, func(_ *charged, b *bucket) *quota.Set { return b.used })
}

// crash bounds former owners' unrecorded starts between two instants.
type crash struct {
	from, to       pace.Instant
	listed, others quota.Units
	open           bool             // unlisted buckets may have open units
	sizes          map[string]int64 // of the owners' limits
}

// mostStarted bounds a bucket's slots within a time, by its slot limits and, if the record's rate
// is the policy's, by its pace. The peak counts as at least twice the rate.
func (v *Valve) mostStarted(in Inheritance, within time.Duration) int64 {
	if within >= pace.Forever {
		return math.MaxInt64
	}
	most := v.quota.Sized(in.Handover.Sizes).Most(within)
	p := v.base.pace
	if p == nil || in.Handover.Rate != v.Policy.Outflow.String() {
		return most
	}
	paced := mostPaced(p, v.Policy.PeakRatio(), within)
	for key := range v.overrides {
		l := v.limitsOf(key)
		if l.pace == nil {
			return most
		}
		paced = max(paced, mostPaced(l.pace, v.Policy.PeakRatio(), within))
	}
	return min(most, paced+max(in.Handover.ByCost[""].Cost, 1))
}

func mostPaced(p *pace.Pace, peak float64, within time.Duration) int64 {
	slots := p.Rate.PerSecond()*max(2, peak)*(within+time.Second).Seconds() + float64(p.Burst)
	return int64(min(slots, 1e15))
}

// inheritCrash bounds former owners' unrecorded starts. Named costs are bounded by budgets alone.
func (p *Part) inheritCrash(in Inheritance, now pace.Instant) {
	for cost, b := range in.Handover.ByCost {
		p.unnoted.costing(cost, b.Cost)
	}
	if p.v.quota == nil {
		return
	}
	c := crash{from: now.Add(-max(in.Age, in.Elapsed)), to: p.crashedAt, others: quota.Units{},
		sizes: in.Handover.Sizes}
	// without a record, former owners' runs may go on
	c.open = in.Handover.Open || in.Handover.ByCost == nil
	if in.Crashed {
		c.listed = quota.Units{}
	} else {
		c.from = c.to.Add(-p.v.quota.Longest())
	}
	some := false
	for cost := range p.v.quota.Budgets() {
		told, known := in.Handover.ByCost[cost]
		listed, others := int64(0), max(told.Slots, told.Unlisted)
		if !known && in.Handover.ByCost[""].Slots > 0 {
			others = math.MaxInt64
		}
		if in.Crashed {
			listed = math.MaxInt64
			if cost == "" {
				listed = p.v.mostStarted(in, in.unknown())
			}
			listed = in.within(listed, told.Budget, told.Cost)
			c.listed[cost] = listed
		}
		unknown := in.Handover.Partial && (in.Crashed || told.Unlisted == 0)
		if others += listed; unknown || others < listed {
			others = math.MaxInt64
		}
		c.others[cost], some = others, some || others > 0
	}
	if some {
		p.crash = &c
	}
}

func (v *Valve) beginUsed(b *bucket, now pace.Instant) {
	if c := b.Part.crash; v.quota != nil && c != nil && now.Since(c.to) < v.quota.Longest() {
		b.own().used = v.quota.Sized(c.sizes).Crashed(nil, v.instant(c.from), v.instant(c.to), 0,
			c.others)
		if c.open {
			v.quota.Await(b.used, v.instant(c.to))
		}
	}
}

func (v *Valve) inheritUsed(b *bucket, c record.Clock, in Inheritance, now pace.Instant) {
	if v.quota == nil {
		return
	}
	b.own().used = v.quota.Decode(c.Used, in.Handover.Limits, v.instant(now.Add(-in.Elapsed)))
	if in.Former {
		v.quota.Await(b.used, v.instant(now))
	}
	if crash := b.Part.crash; crash != nil && crash.listed != nil {
		b.own().used = v.quota.Sized(crash.sizes).Crashed(b.used, v.instant(crash.from),
			v.instant(crash.to), in.slack(), crash.listed)
	}
}

func (p *Part) tellLimits(h *record.Handover, now pace.Instant) {
	if p.v.quota == nil && p.v.together == nil {
		return
	}
	var lag time.Duration
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
		h.Limits, lag, h.Sizes = p.v.quota.Names(), p.v.quota.MostLag(), p.v.quota.Sizes()
		if crashed != nil {
			h.Open = crashed.open
			h.Crashed = max(1, record.Micros(now.Since(crashed.to)))
		}
	}
	if t := p.v.together; t != nil {
		h.AllLimits, h.Together = t.Names(), t.Encode(t.used, p.v.instant(now))
		lag = max(lag, t.MostLag())
		if h.Sizes == nil {
			h.Sizes = map[string]int64{}
		}
		maps.Copy(h.Sizes, t.Sizes())
	}
	h.Gap = record.Micros(mostUnnoted + lag)
}

// impossible returns why a job or call of a cost can never start, or "".
func (s *settings) impossible(cost int64, named map[string]int64) string {
	limit, of, most := s.Policy.BeyondLimits(cost, named)
	switch {
	case limit != "":
		return fmt.Sprintf("%s exceeds the limit %s of at most %d, so it can never pass",
			job.CostHeader(of), limit, most)
	case s.Policy.Paced() && cost > s.Policy.Capacity:
		return fmt.Sprintf("%s exceeds the bucket's capacity of %d, so it can never pass",
			job.HeaderCost, s.Policy.Capacity)
	}
	return ""
}
