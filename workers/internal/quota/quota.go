// Package quota decides when a bucket's next job may start under all limits of its policy, with the
// algorithms of package algorithms. It is pure.
//
// # Arrivals
//
// A target counts arrivals, not starts. A decision at t leads to a start up to a lag later, and to
// an arrival shortly after that; if the target's windows are aligned to a clock, that clock differs
// as well. The guard bounds all of this: a job decided at t arrives between t and t + guard. Each
// rule is therefore evaluated at the earliest instant and charged at the latest:
//
//   - A sliding log, a token bucket and a leaking bucket are evaluated at t, and charged at
//     t + guard. Of two arrivals in one window, the earlier one still counts when the later one
//     is decided, and a bucket's refills are complete when the job arrives.
//   - A fixed window and a sliding counter are evaluated and charged at t − guard: their
//     windows begin a guard later; and no job starts in the last two guards of a window, which the
//     target may count in the next. JetStream's clock, which aligns them, has a known error: t is
//     its earliest reading, and the end is longer by its largest lead.
//
// The first costs a guard of each window. The second is free under a backlog, because the rest of a
// window is used before its end, or made up after it.
//
// # Limits that count from the answer
//
// They need no guard: see [algorithms.Holding]. A unit is held from the decision to the answer, and
// charged as of an instant that was read after it. The policy's margin is then for a target whose
// clocks differ; windows and refills take 0.1 % longer, because clocks run at different rates. A
// fixed window keeps its margin at both edges: an answer in the last two guards of a window may
// belong to the next one, where it is charged; nothing starts there.
//
// Units of starts that another process made, or whose answer never comes, are held until a time
// after which none of them arrives.
package quota

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/policy"
)

// Limits are a policy's limits on each bucket, or on all. Immutable.
type Limits struct {
	all   []limit
	guard time.Duration
	// maxDelay is the longest from the end of an attempt without an answer to its arrival, timeout
	// that of an attempt.
	maxDelay, timeout time.Duration
	starts, arrivals  bool // some limits count from the start, or from the answer or the end
	names             string
	none              *Set
	most              uint8 // doublings of the lag
	// largest error of JetStream's clock with time left in clock windows
	mostOff time.Duration

	budgets Units
	of      policy.Limits
}

// longestDebt bounds the time for which runs that used more than estimated delay the next job,
// unless the whole limit takes longer: a broken target may report any usage.
const longestDebt = time.Hour

func New(p policy.Policy) *Limits { return limitsOf(p, false) }

func Together(p policy.Policy) *Limits { return limitsOf(p, true) }

func limitsOf(p policy.Policy, together bool) *Limits {
	return newLimits(p, slices.DeleteFunc(p.Enforced(), func(l policy.Limit) bool {
		return l.Together() != together || l.Shared != ""
	}))
}

func newLimits(p policy.Policy, all policy.Limits) *Limits {
	l := &Limits{guard: time.Duration(p.WindowMargin), maxDelay: time.Duration(p.MaxDelay),
		timeout: time.Duration(p.Timeout), mostOff: math.MaxInt64, budgets: Units{}, of: all}
	var names []string
	for _, of := range all {
		rule, name := of.OnStarts(), of.Name+"/"+string(of.Algorithm)
		if of.Arrivals() {
			rule, name = slowed(of).OnStarts(), name+"/"+string(of.CountFrom)
		}
		made := limit{Rule: rule.Erased(), bound: rule.Bound(), name: of.Name, cost: of.Cost,
			interval: rule.Bound().Interval(), arrivals: of.Arrivals(),
			atEnd: of.CountFrom == policy.CountFromEnd}
		l.starts, l.arrivals = l.starts || !made.arrivals, l.arrivals || made.arrivals
		if made.bound.Aligned {
			l.mostOff = min(l.mostOff, made.bound.Window/8)
		}
		made.budget = budgetOf(made.Most(), made.interval)
		made.mostOwed = max(made.Most(), int64(longestDebt/max(1, made.interval)))
		l.all = append(l.all, made)
		l.budgets[of.Cost] = least(l.budgets[of.Cost], made.budget)
		names = append(names, name)
	}
	if len(l.all) == 0 {
		return nil
	}
	l.names, l.none = strings.Join(names, " "), l.newSet()
	for l.most = mostLatency; l.most > 0 && !l.bears(l.most); l.most-- {
	}
	return l
}

func (l *Limits) bears(latency uint8) bool {
	for i := range l.all {
		of := &l.all[i]
		if of.bound.Aligned && l.quiet(of, &Set{latency: latency}, Now{}) > of.bound.Window/2 {
			return false
		}
	}
	return true
}

// slowed lengthens a limit's times by 0.1 %, unless they are the clock's windows.
func slowed(l policy.Limit) policy.Limit {
	if l.OnStarts().Bound().Aligned {
		return l
	}
	for _, d := range []*time.Duration{(*time.Duration)(&l.Window), &l.Refill.Per, &l.Outflow.Per} {
		*d += (*d/1000 + time.Microsecond - 1).Truncate(time.Microsecond)
	}
	return l
}

// quiet returns the end of a window in which no job starts.
func (l *Limits) quiet(of *limit, s *Set, now Now) time.Duration {
	quiet := 2*l.guard + 2*l.off(now)
	if !of.arrivals {
		quiet += l.late(s)
	}
	return quiet
}

func (l *Limits) off(now Now) time.Duration { return min(now.Off, l.mostOff) }

type Now struct {
	Own  time.Duration // the process's clock, which never steps
	Wall time.Time     // JetStream's clock, which aligns windows
	Off  time.Duration // largest error of Wall
}

// Cost is a job's cost, and named ones that replace it for some limits.
type Cost struct {
	Job   int64
	Named map[string]int64
}

func (c Cost) Of(name string) int64 {
	if name != "" {
		if n, told := c.Named[name]; told {
			return n
		}
	}
	return c.Job
}

const mostLatency = 5

// Lag returns the longest delay between a decision and its final check: half of the guard, or
// forever if no limit counts from the start. On slow machines it is doubled, and with it that part
// of the guard.
func (l *Limits) Lag(s *Set) time.Duration {
	if !l.starts {
		return math.MaxInt64
	}
	lag := l.guard / 2
	if s != nil {
		lag <<= s.latency
	}
	return lag
}

func (l *Limits) late(s *Set) time.Duration {
	if !l.starts {
		return 0
	}
	return l.Lag(s) - l.guard/2
}

func own(at time.Duration) time.Time { return time.Unix(1<<31, 0).Add(at) }

type times struct{ own, wall time.Time }

func (t times) of(l *limit) time.Time {
	if l.bound.Aligned {
		return t.wall
	}
	return t.own
}

func (l *Limits) asked(now Now) times {
	return times{own(now.Own), now.Wall.Add(-l.guard - l.off(now))}
}

// answers returns the instant as of which units count whose answer was read at an instant, which
// may be in the next window as the target sees it.
func (l *Limits) answers(at Now) times {
	asked := l.asked(at)
	return times{asked.own.Add(l.guard), asked.wall.Add(2*l.guard + 2*l.off(at))}
}

// Longest returns how long any charge counts, or unit that another process holds.
func (l *Limits) Longest() (longest time.Duration) {
	at := own(0)
	for i := range l.all {
		var full state
		of := &l.all[i]
		of.takeUpTo(&full, at, at, of.Most())
		reset := of.resetAfter(&full, at)
		if of.bound.Aligned {
			reset += of.bound.Window * 5 / 4 // for calendars
		}
		longest = max(longest, reset)
	}
	if l.arrivals {
		longest += l.timeout + travel
	}
	if l.starts {
		longest += l.guard << l.most
	}
	return longest + 3*l.guard + l.maxDelay
}

// Interval returns the time per slot under the slowest limit.
func (l *Limits) Interval() (longest time.Duration) {
	for i := range l.all {
		if l.all[i].cost == "" {
			longest = max(longest, l.all[i].interval)
		}
	}
	return longest
}
