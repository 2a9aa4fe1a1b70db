package calls

import (
	"slices"

	"github.com/penstock-mq/penstock/workers/internal/claimant"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

const (
	callsPerJob = 9 // in a row, before a waiting job
	// mostAway bounds the absent callers of a bucket; the others get the time of the last one.
	mostAway = 1 << 12
)

// Line has the calls of a bucket, which start between its stored jobs. Its zero value is empty.
type Line[J any] struct {
	claimant.Queue[J]
	Chosen  *claimant.Claimant[J] // that starts next; it stays in the queue
	Running int
	inRow   int64 // started since the last stored job
	overdue bool  // a stored job is
	away    []absent
}

// absent is a refused caller that will ask again, in a call of its own.
type absent struct {
	back  pace.Instant
	takes quota.Cost
}

func (l *Line[J]) perJob() int64 {
	if l.overdue {
		return 1
	}
	return callsPerJob
}

// Choose chooses the next call, unless the next start is left to a stored job that can start: every
// tenth start, or every second one while the job is overdue.
func (l *Line[J]) Choose(canStart, overdue bool) *claimant.Claimant[J] {
	l.Chosen, l.overdue = nil, overdue
	if !canStart || l.inRow < l.perJob() {
		l.Chosen = l.First()
	}
	return l.Chosen
}

// Started counts the start of a call or of a stored job.
func (l *Line[J]) Started(call bool) {
	switch {
	case call:
		l.inRow++
		l.Running++
	case l.inRow > 0:
		l.inRow = 0
	}
}

// Leave forgets all but those that run.
func (l *Line[J]) Leave() { *l = Line[J]{Running: l.Running} }

// SlotsBefore returns the slots of calls that start before stored jobs of some slots.
func (l *Line[J]) SlotsBefore(jobs int64) int64 { return min(l.Slots, l.perJob()*(jobs+1)) }

// JobsBefore returns the stored jobs that start before calls of some slots, if enough wait.
func (l *Line[J]) JobsBefore(calls int64) int64 { return (calls + l.inRow) / l.perJob() }

// Before returns the costs of the calls before one, with those that are away if they are to be
// counted.
func (l *Line[J]) Before(k *claimant.Claimant[J], away bool, now pace.Instant) (c Costs) {
	if away {
		l.away = slices.DeleteFunc(l.away, func(a absent) bool { return a.back <= now })
		for _, other := range l.away {
			c.add(other.takes)
		}
	}
	for other := range l.All() {
		if other.Precedes(k) {
			c.add(other.Takes)
		}
	}
	return c
}

// SendAway notes that a refused caller comes back at an instant.
func (l *Line[J]) SendAway(k *claimant.Claimant[J], back pace.Instant) {
	if len(l.away) < mostAway {
		l.away = append(l.away, absent{back, k.Takes})
	}
}

// Costs are those of calls, which precede what else waits in their bucket.
type Costs struct {
	Slots int64
	jobs  int64
	named map[string]int64 // less the slots, for calls that name them
}

func (c *Costs) add(takes quota.Cost) {
	c.jobs++
	c.Slots += takes.Job
	for name, n := range takes.Named {
		if c.named == nil {
			c.named = map[string]int64{}
		}
		c.named[name] += n - takes.Job
	}
}

// With adds them to other work.
func (c *Costs) With(other quota.Ahead) quota.Ahead {
	if c.jobs == 0 {
		return other
	}
	return quota.Ahead{Jobs: c.jobs + other.Jobs, Units: func(cost string) int64 {
		units := c.Slots + c.named[cost]
		if other.Jobs > 0 {
			units += other.Units(cost)
		}
		return units
	}}
}
