// Package inheritance keeps what a partition's owner gets from the one before, and what the next
// one will know: the state as of a record, the starts that a crash hides, and the jobs that an
// owner ran, tried or finished, until these arrive.
//
//   - inheritance.go: a predecessor's state, and its clocks;
//   - legacy.go: jobs that have not arrived; finished.go: jobs that may arrive once more;
//   - crash.go: starts that no record has;
//   - checkpoints.go: what stored records tell of starts; edits.go: operators' changes of jobs.
package inheritance

import (
	"math"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// State is a predecessor's state.
type State struct {
	// clocks missing in Handover are unknown
	Crashed bool
	Owner   string
	// the record is another process's, whose runs may go on
	Former   bool
	Elapsed  time.Duration // least time since Handover was stored
	Age      time.Duration // most time since it was built
	Handover record.Handover
	Attempts map[uint64]Attempt
	// no owner has stored a checkpoint, so there were no starts under limits
	Unstarted bool
	Fence     time.Duration   // how long a crashed predecessor may still start jobs
	Gone      map[string]bool // dead holders of running jobs
}

// Attempt is an attempt record; DueIn counts from the takeover.
type Attempt struct {
	record.Attempt
	Stored   time.Time
	Revision uint64
}

// Left returns the instant that its record names by a time in µs.
func (s State) Left(us int64, now pace.Instant) pace.Instant {
	return now.Add(time.Duration(us)*time.Microsecond - s.Elapsed)
}

// Partly reports whether buckets that the record omits may have started jobs.
func (s State) Partly() bool { return s.Crashed || s.Handover.Partial }

// othersRun reports whether runs that nobody recorded may go on in processes that live: in those of
// another owner's checkpoint, or without one.
func (s State) othersRun() bool {
	return s.Crashed && (s.Former || s.Handover.ByCost == nil)
}

// since returns when the record was built, at the earliest.
func (s State) since(now pace.Instant) pace.Instant { return now.Add(-max(s.Age, s.Elapsed)) }

// Wind sets a clock from a record. After a crash the clock also waits an interval from the fence,
// unless no job can start before it. Waits use the least elapsed time, because no wait may end
// early; possible starts use the most, because no start may be missed.
func (s State) Wind(c *pace.Clock, left record.Clock, p, before *pace.Pace, now pace.Instant) {
	noted := func(c *pace.Clock, at, adapted pace.Instant) {
		c.Set(at.Add(time.Duration(left.Due)*time.Microsecond),
			at.Add(time.Duration(left.Tat)*time.Microsecond))
		p.Adapt(c, before, adapted)
	}
	var wound, first pace.Clock
	noted(&wound, now.Add(-s.Elapsed), now)
	due, tat := wound.Due, wound.Tat
	if s.Crashed {
		then := s.since(now)
		noted(&first, then, then)
		notBefore := max(p.Next(&first), then.Add(time.Duration(left.Cool)*time.Microsecond))
		if notBefore <= now.Add(s.Fence) {
			due, tat = max(due, c.Due), max(tat, c.Tat)
		}
	}
	c.Set(due, tat)
}

// Since returns the most units that can have started since a record was built, in one bucket or in
// all: the budget of each cost, whose last unit may belong to a job of several.
func (s State) Since(l *quota.Limits, all bool) quota.Units {
	units := quota.Units{}
	for cost := range l.Budgets() {
		told := s.Handover.ByCost[cost]
		budget := told.Budget
		if all {
			budget = told.AllBudget
		}
		switch {
		case s.Unstarted:
			units[cost] = 0
		case budget > 0:
			units[cost] = budget - 1 + max(told.Cost, 1)
		default:
			units[cost] = math.MaxInt64
		}
	}
	return units
}

// Clock reads JetStream's clock at an instant.
type Clock = func(pace.Instant) quota.Now

// Restore returns a record's usage, with what can have started since; nil: nothing.
func (s State) Restore(l *quota.Limits, text, names string, since quota.Units, clock Clock,
	now pace.Instant) *quota.Set {
	used := l.Decode(text, names, clock(now.Add(-s.Elapsed)))
	if s.othersRun() {
		used = l.Await(used, clock(now.Add(s.Fence)))
	}
	if since != nil {
		used = l.Crashed(used, quota.Crash{From: clock(s.since(now)), To: clock(now.Add(s.Fence)),
			Slack: max(0, s.Age-s.Elapsed), Sizes: s.Handover.Sizes}, since)
	}
	return used
}
