package inheritance

import (
	"maps"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Checkpoints tracks what an owner's stored checkpoints tell the next one, which has to assume the
// most that is in none.
type Checkpoints struct {
	Changed  bool   // the next one has news
	Revision uint64 // of the record that the next one replaces
	begun    bool   // the last one is being gathered, or its result is not known
	last     pace.Instant
	Noted    quota.Noted
	asked    uint32      // first one with all that was asked for
	costs    quota.Units // the most of any job
	told     bounds      // stored; budgets as they may be stored
	telling  bounds
}

const (
	// checkpointEvery, plus checkpointPerBucket, is the shortest time between checkpoints of a
	// partition: with 100,000 buckets 2¼ s.
	checkpointEvery     = 250 * time.Millisecond
	checkpointPerBucket = 20 * time.Microsecond
)

type bounds struct{ costs, each, all quota.Units }

// Cost takes note of a job's cost.
func (c *Checkpoints) Cost(name string, n int64) {
	if c.costs == nil {
		c.costs = quota.Units{}
	}
	c.costs[name] = max(c.costs[name], n)
}

// Takes takes note of all costs of a job.
func (c *Checkpoints) Takes(of quota.Cost) {
	c.Cost("", of.Job)
	for name, n := range of.Named {
		c.Cost(name, n)
	}
}

// Begin begins a checkpoint, with all starts until now, under limits of each bucket and of all.
func (c *Checkpoints) Begin(each, all *quota.Limits) {
	c.telling = bounds{costs: maps.Clone(c.costs), each: each.Budgets(), all: all.Budgets()}
	c.told.each = quota.Least(c.told.each, c.telling.each)
	c.told.all = quota.Least(c.told.all, c.telling.all)
	c.Noted.Begun++
}

// Due returns when the next checkpoint may be gathered, of so many buckets.
func (c *Checkpoints) Due(buckets int) pace.Instant {
	switch {
	case !c.Changed || c.begun:
		return pace.Never
	case c.last == 0:
		return 0
	case c.Waits():
		return c.last.Add(checkpointEvery)
	}
	return c.last.Add(checkpointEvery + time.Duration(buckets)*checkpointPerBucket)
}

// Gather begins a checkpoint, which has all changes until now.
func (c *Checkpoints) Gather(now pace.Instant) { c.Changed, c.begun, c.last = false, true, now }

// Store records that it is stored, and reports whether it is the first.
func (c *Checkpoints) Store() (first bool) {
	c.begun = false
	first = c.Noted.Stored == 0
	c.told, c.Noted.Stored = c.telling, c.Noted.Begun
	return first
}

// Replace requests a checkpoint over a record that is not, or no longer, this owner's last one.
func (c *Checkpoints) Replace(revision uint64) {
	c.Revision, c.begun, c.Changed = revision, false, true
}

// Ask requests a checkpoint with all changes until now, and Asked returns the number of the last
// such one. Waits reports whether it is not stored.
func (c *Checkpoints) Ask()          { c.asked, c.Changed = c.Noted.Begun+1, true }
func (c *Checkpoints) Asked() uint32 { return c.asked }
func (c *Checkpoints) Waits() bool   { return c.Noted.Stored < c.asked }

// Holds returns until when a job under limits waits for a checkpoint, and then requests one: again
// if its cost is in none; Never before the first one; 0 if it does not wait.
func (c *Checkpoints) Holds(job quota.Cost, l *quota.Limits,
	again pace.Instant) (until pace.Instant) {
	for cost, budget := range l.Budgets() {
		if limited := budget > 0 || c.told.each[cost] > 0 || c.told.all[cost] > 0; limited &&
			!c.knows(cost, job) {
			until = again
		}
	}
	if c.Noted.Stored == 0 {
		until = pace.Never
	}
	c.Changed = c.Changed || until > 0
	return until
}

func (c *Checkpoints) knows(cost string, job quota.Cost) bool {
	n := job.Of(cost)
	if n <= max(c.told.costs[cost], 1) {
		return true
	}
	c.Cost(cost, n)
	return false
}

// Spent reports whether a budget of limits, over all buckets or of one, is used up, and then
// requests a checkpoint.
func (c *Checkpoints) Spent(l *quota.Limits, used *quota.Set, all bool) bool {
	told := c.told.each
	if all {
		told = c.told.all
	}
	spent := l.Spent(used, told, c.Noted)
	c.Changed = c.Changed || spent
	return spent
}

// Used takes note of the units that a run has used.
func (c *Checkpoints) Used(l *quota.Limits, used quota.Units) {
	for cost := range l.Budgets() {
		if n := used[cost]; n > 0 {
			c.Cost(cost, n)
			c.Changed = true
		}
	}
}

// ByCost returns what the checkpoint that began last tells of starts, where unlisted buckets can
// have used some slots.
func (c *Checkpoints) ByCost(slots quota.Units) map[string]record.Bounds {
	told := map[string]record.Bounds{"": {Cost: c.costs[""]}}
	for _, all := range []quota.Units{c.telling.each, c.telling.all} {
		for cost := range all {
			told[cost] = record.Bounds{Cost: c.costs[cost], Budget: c.telling.each[cost],
				AllBudget: c.telling.all[cost], Slots: slots[cost]}
		}
	}
	return told
}
