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
package quota

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

// Limits are a policy's limits on each bucket, or on all. Immutable.
type Limits struct {
	all   []limit
	guard time.Duration
	names string
	none  *Set
	most  uint8 // doublings of the lag
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
	l := &Limits{guard: time.Duration(p.WindowMargin), mostOff: math.MaxInt64, budgets: Units{},
		of: all}
	var names []string
	for _, of := range all {
		rule := of.OnStarts()
		made := limit{Rule: rule.Erased(), bound: rule.Bound(), name: of.Name, cost: of.Cost,
			interval: rule.Bound().Interval()}
		if made.bound.Aligned {
			l.mostOff = min(l.mostOff, made.bound.Window/8)
		}
		made.budget = budgetOf(made.Most(), made.interval)
		made.mostOwed = max(made.Most(), int64(longestDebt/max(1, made.interval)))
		l.all = append(l.all, made)
		l.budgets[of.Cost] = least(l.budgets[of.Cost], made.budget)
		names = append(names, of.Name+"/"+string(of.Algorithm))
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
		if quiet := l.quiet(&Set{latency: latency}, Now{}); of.bound.Aligned &&
			quiet > of.bound.Window/2 {
			return false
		}
	}
	return true
}

func (l *Limits) quiet(s *Set, now Now) time.Duration {
	return 2*l.guard + l.late(s) + 2*l.off(now)
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

// Set is a bucket's usage; nil if no usage counts.
type Set struct {
	states  []state
	latest  time.Time // last instant charged
	latency uint8     // doublings of the lag after overruns
}

// newSet allocates a set together with its states.
func (l *Limits) newSet() *Set {
	if len(l.all) > 3 {
		return &Set{states: make([]state, len(l.all))}
	}
	s := &struct {
		Set
		few [3]state
	}{}
	s.states = s.few[:len(l.all):len(l.all)]
	return &s.Set
}

type Charge struct {
	at  times
	of  []charged // per limit
	few [3]charged
}

type charged struct{ units, by int64 }

// notCharged marks a limit newer than the start.
var notCharged = charged{units: -1}

const mostLatency = 5

// Lag returns the longest delay between a decision and its final check: half of the guard. On slow
// machines it is doubled, and with it that part of the guard.
func (l *Limits) Lag(s *Set) time.Duration {
	lag := l.guard / 2
	if s != nil {
		lag <<= s.latency
	}
	return lag
}

func (l *Limits) late(s *Set) time.Duration { return l.Lag(s) - l.guard/2 }

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

func (l *Limits) charges(s *Set, asked times) times {
	if at := asked.own.Add(l.guard + l.late(s)); at.After(s.latest) {
		s.latest = at
	}
	return times{s.latest, asked.wall}
}

func (l *Limits) Next(s *Set, now Now, c Cost) (wait time.Duration, by string) {
	wait, by, _ = l.Ask(s, now, c)
	return wait, by
}

// Ask returns the wait until the next start, its limit, and the end of the permission if no other
// start is charged. After a wait for one limit, it evaluates the others at its end.
func (l *Limits) Ask(s *Set, now Now, c Cost) (wait time.Duration, by string, until time.Duration) {
	if s == nil {
		s = l.none
	}
	asked, quiet := l.asked(now), l.quiet(s, now)
	l.pay(s, asked)
	for again := true; again; {
		again, until = false, math.MaxInt64
		for i := range l.all {
			of, st := &l.all[i], &s.states[i]
			n := min(c.Of(of.cost)+st.owed, of.Most())
			at := asked.of(of)
			more := of.wait(st, at, n)
			if of.bound.Aligned && more == 0 {
				left := of.end(at).Sub(at)
				if left <= quiet {
					more = left
				} else {
					until = min(until, now.Own+left-quiet)
				}
			}
			if more > 0 {
				wait, by, again = wait+more, of.name, true
				asked = times{asked.own.Add(more), asked.wall.Add(more)}
			}
		}
	}
	return wait, by, until
}

// Left reports each limit's units that may start now, and the maximum.
func (l *Limits) Left(s *Set, now Now, tell func(name string, left, most int64)) {
	if s == nil {
		s = l.none
	}
	asked := l.asked(now)
	l.pay(s, asked)
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		tell(of.name, of.left(st, asked.of(of)), of.Most())
	}
}

func (l *Limits) pay(s *Set, asked times) {
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		if of.bound.Aligned {
			of.clamp(st, asked.of(of))
		}
		if st.owed = min(st.owed, of.mostOwed); st.owed > 0 {
			paid := of.takeUpTo(st, asked.of(of), l.charges(s, asked).of(of), st.owed)
			st.owed -= paid
			st.charged += paid
		}
	}
}

// Take charges a start that Next allows.
func (l *Limits) Take(s *Set, now Now, c Cost) (*Set, *Charge) {
	if s == nil {
		s = l.newSet()
	}
	asked := l.asked(now)
	ch := &Charge{at: l.charges(s, asked)}
	ch.of = ch.few[:0]
	for i := range l.all {
		of, st, n := &l.all[i], &s.states[i], c.Of(l.all[i].cost)
		if at := asked.of(of); n <= of.left(st, at) {
			of.Charge(&st.State, at, ch.at.of(of), n)
			st.charged += n
		} else {
			st.owed += n // more than the limit allows now, or its clock stepped back
		}
		ch.of = append(ch.of, charged{n, st.charged})
		st.out += n
	}
	return s, ch
}

// Return refunds a start that did not happen.
func (l *Limits) Return(s *Set, ch *Charge, now Now) {
	s.latency = min(s.latency+1, l.most)
	for i := range l.all {
		l.refund(s, i, ch, now, max(0, ch.of[i].units))
	}
	l.close(s, ch)
}

// Done ends a run. Of usage reported by name, the rest is refunded and an excess charged, even
// beyond a limit, within longestDebt.
func (l *Limits) Done(s *Set, ch *Charge, now Now, used map[string]int64, noted Noted) {
	s.latency -= min(s.latency, 1)
	for i := range l.all {
		if n, told := used[l.all[i].cost]; told && l.all[i].cost != "" && ch.of[i] != notCharged {
			l.settle(s, i, ch, now, n-ch.of[i].units, noted)
		}
	}
	l.close(s, ch)
}

// Late is Done for a former owner's run: only an excess is charged.
func (l *Limits) Late(s *Set, c Cost, used map[string]int64) *Set {
	for i := range l.all {
		n, told := used[l.all[i].cost]
		if more := n - c.Of(l.all[i].cost); told && more > 0 && l.all[i].cost != "" {
			if s == nil {
				s = l.newSet()
			}
			s.states[i].owed += more
		}
	}
	return s
}

// close ends the possibility of a refund.
func (l *Limits) close(s *Set, ch *Charge) {
	for i := range l.all {
		st := &s.states[i]
		st.out -= min(st.out, max(0, ch.of[i].units))
	}
}

func (l *Limits) settle(s *Set, i int, ch *Charge, now Now, more int64, noted Noted) {
	if more > 0 {
		s.states[i].owed += more
		s.states[i].untold.add(more, noted)
	} else {
		l.refund(s, i, ch, now, -more)
	}
}

func (l *Limits) refund(s *Set, i int, ch *Charge, now Now, n int64) {
	of, st := &l.all[i], &s.states[i]
	uncharged := min(n, st.owed)
	st.owed -= uncharged
	if n = min(n-uncharged, of.Most()); n <= 0 {
		return
	}
	of.Uncharge(&st.State, l.asked(now).of(of), algorithms.Charged{At: ch.at.of(of),
		Last: s.latest, Units: n, Since: st.charged - ch.of[i].by})
}

// Crashed charges the most that another process can have started between two instants, by the
// limits and by units per cost. Recorded charges may be older, by up to slack.
func (l *Limits) Crashed(s *Set, from, to Now, slack time.Duration, units Units) *Set {
	if s == nil {
		s = l.newSet()
	}
	asked := l.asked(to)
	asked.wall = asked.wall.Add(2 * l.off(to))
	charges := l.charges(s, asked)
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		most, known := units[of.cost]
		switch {
		case !known:
			most = math.MaxInt64
		case most == 0:
			continue
		}
		of.ChargeUnseen(&st.State, algorithms.Unseen{From: l.asked(from).of(of),
			To: asked.of(of), At: charges.of(of), Slack: slack, Most: most, Loose: st.loose})
		st.loose = 0
	}
	return s
}

// Sizes returns each limit's units, for Sized.
func (l *Limits) Sizes() map[string]int64 {
	sizes := map[string]int64{}
	for i := range l.all {
		sizes[l.all[i].name] = l.all[i].Most()
	}
	return sizes
}

// Sized returns the limits with at least another process's sizes: its starts count even if they are
// smaller now, because they may be raised again.
func (l *Limits) Sized(sizes map[string]int64) *Limits {
	all := slices.Clone(l.of)
	for i := range all {
		if n := sizes[all[i].Name]; n > l.all[i].Most() {
			all[i].Limit, all[i].Capacity, all[i].Burst = n, n, n
		}
	}
	if slices.Equal(all, l.of) {
		return l
	}
	return newLimits(policy.Policy{WindowMargin: policy.Duration(l.guard)}, all)
}

// FreshIn returns how long a set still counts.
func (l *Limits) FreshIn(s *Set, now Now) (wait time.Duration) {
	if s == nil {
		return 0
	}
	asked := l.asked(now)
	l.pay(s, asked)
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		wait = max(wait, of.resetAfter(st, asked.of(of)))
		if st.owed > 0 {
			wait = max(wait, of.wait(st, asked.of(of), min(st.owed, of.Most())), 1)
		}
	}
	return wait
}

func (l *Limits) MostLag() time.Duration { return l.guard / 2 << l.most }

// Longest returns how long any charge counts.
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
	return longest + 3*l.guard + 2*l.MostLag()
}

func (l *Limits) Most(within time.Duration) int64 {
	least := int64(math.MaxInt64)
	for i := range l.all {
		if of := &l.all[i]; of.cost == "" {
			least = min(least, of.bound.Within(within+l.guard))
		}
	}
	return least
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

func (l *Limits) Adapt(s *Set, before *Limits) *Set {
	if s == nil || before == nil || l.names == before.names {
		return s
	}
	fitted := l.newSet()
	fitted.latest, fitted.latency = s.latest, s.latency
	for i, from := range places(before.names, l.names) {
		if from >= 0 {
			fitted.states[i] = s.states[from]
		}
	}
	return fitted
}

func (l *Limits) AdaptCharge(ch *Charge, before *Limits) *Charge {
	if ch == nil || l.names == before.names {
		return ch
	}
	fitted := &Charge{at: ch.at}
	fitted.of = fitted.few[:0]
	for _, from := range places(before.names, l.names) {
		of := notCharged
		if from >= 0 {
			of = ch.of[from]
		}
		fitted.of = append(fitted.of, of)
	}
	return fitted
}
