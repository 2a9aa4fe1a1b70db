// Package quota decides when a bucket's next job may start by all limits of its policy at once,
// with the rules of package algorithms. It is pure: instants and states in, waits and states out.
//
// # Arrivals
//
// Who sets a limit counts arrivals, not starts. What is decided at an instant t starts up to a lag
// later, and arrives a little after that; where the other side's windows are aligned to the clock,
// its clock is another as well. The guard bounds all of this: what is decided at t arrives from t
// to t + guard. So each rule is asked by the earliest instant and charged by the latest:
//
//   - A sliding log, a token bucket and a leaking bucket are asked at t, and charged at t + guard.
//     Of two arrivals in one window the earlier one counts then still when the later one is
//     decided, and what a bucket has refilled it has refilled by the time of the arrival.
//   - A fixed window and a sliding counter are asked and charged at t − guard, so that their
//     windows begin a guard later; and nothing starts in the last two guards of one, which the
//     other side may count in the next.
//
// The first costs a guard of each window; the second costs nothing while there is a backlog, for
// what is left of a window is used before its end, or made up after it.
package quota

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/policy"
)

// Limits are those that each bucket of a policy obeys. They are replaced, and never changed.
type Limits struct {
	all   []limit
	guard time.Duration
	names string
	none  *Set  // that of a bucket which has used nothing; never changed
	most  uint8 // how often the lag may be doubled

	budgets Units // see Budgets
}

type limit struct {
	rule
	name, cost string
	aligned    bool // to the clock
	// between two units where it is used up all the time
	interval time.Duration
	budget   int64 // see Budgets
}

// New returns what each bucket of a policy obeys; nil: nothing.
func New(p policy.Policy) *Limits { return limitsOf(p, false) }

// Together returns what all its buckets obey together; nil: nothing.
func Together(p policy.Policy) *Limits { return limitsOf(p, true) }

func limitsOf(p policy.Policy, together bool) *Limits {
	return newLimits(p, slices.DeleteFunc(p.Enforced(), func(l policy.Limit) bool {
		return l.Together() != together || l.Shared != ""
	}))
}

func newLimits(p policy.Policy, all policy.Limits) *Limits {
	l := &Limits{guard: time.Duration(p.Guard), budgets: Units{}}
	var names []string
	for _, of := range all {
		made := limit{rule: ruleOf(of.Rule), name: of.Name, cost: of.Cost}
		switch of.Algorithm {
		case policy.TokenBucket:
			made.interval = of.Refill.Interval()
		case policy.LeakingBucket:
			made.interval = of.Outflow.Interval()
		default:
			made.aligned = of.Algorithm != policy.SlidingLog
			made.interval = time.Duration(of.Window) / time.Duration(of.Limit)
		}
		made.budget = budgetOf(made.most(), made.interval)
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

// bears reports whether the clock's windows leave time for starts with a lag that is doubled so
// often.
func (l *Limits) bears(latency uint8) bool {
	for i := range l.all {
		if of := &l.all[i]; of.aligned && l.quiet(&Set{latency: latency}) > of.window()/2 {
			return false
		}
	}
	return true
}

// quiet is the end of a clock's window in which nothing starts.
func (l *Limits) quiet(s *Set) time.Duration { return 2*l.guard + l.late(s) }

// Now is an instant by two clocks.
type Now struct {
	Own  time.Duration // by the process's, which never steps
	Wall time.Time     // by JetStream's, to which windows are aligned
}

// Cost is what a job takes: of each limit its own cost, or else that of the job.
type Cost struct {
	Job   int64
	Named map[string]int64
}

// Of is what the job takes of limits that count a cost; "": its own.
func (c Cost) Of(name string) int64 {
	if name != "" {
		if n, told := c.Named[name]; told {
			return n
		}
	}
	return c.Job
}

// Set is what one bucket has used of its limits; nil: nothing that counts.
type Set struct {
	states  []state
	latest  time.Time // of the instants that were charged, by the process's clock
	latency uint8     // how often the lag was too short lately
}

// newSet returns a set that has used nothing. Nearly all have their states beside them: where there
// are many sets, most of the time goes into waiting for memory.
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

// Charge is what one start took, for the case that it does not happen, or used another amount.
type Charge struct {
	at  times
	of  []charged // each limit
	few [3]charged
}

// charged is how many units a start took of a limit, which then had charged so many in all.
type charged struct{ units, by int64 }

// notCharged is of a limit that was not there at the start.
var notCharged = charged{units: -1}

// mostLatency bounds by how often the lag is doubled.
const mostLatency = 5

// Lag is for how long a start may be on its way from its decision to its last check: half of the
// guard. Where a machine is too slow for that it is doubled, and so that part of the guard.
func (l *Limits) Lag(s *Set) time.Duration {
	lag := l.guard / 2
	if s != nil {
		lag <<= s.latency
	}
	return lag
}

// late is what the lag is longer than half of the guard.
func (l *Limits) late(s *Set) time.Duration { return l.Lag(s) - l.guard/2 }

// own is an instant of the process's clock in the form of the rules. Any origin would do that lies
// after 1970 by more than a window.
func own(at time.Duration) time.Time { return time.Unix(1<<31, 0).Add(at) }

// times is an instant by the clocks that limits go by.
type times struct{ own, wall time.Time }

func (t times) of(l *limit) time.Time {
	if l.aligned {
		return t.wall
	}
	return t.own
}

// asked is when limits are asked.
func (l *Limits) asked(now Now) times { return times{own(now.Own), now.Wall.Add(-l.guard)} }

// charges is when limits are charged that are asked at an instant. By the process's clock it never
// goes back, since what a rule finds ahead of it moves to it.
func (l *Limits) charges(s *Set, asked times) times {
	if at := asked.own.Add(l.guard + l.late(s)); at.After(s.latest) {
		s.latest = at
	}
	return times{s.latest, asked.wall}
}

// Next is how long the next start must wait, and for which limit.
func (l *Limits) Next(s *Set, now Now, c Cost) (wait time.Duration, by string) {
	wait, by, _ = l.Ask(s, now, c)
	return wait, by
}

// Ask is Next that also says, of a start that need not wait, until when that is so while nothing
// else is charged: nothing starts before the end of a clock's window.
//
// Where one limit holds it back the others are asked again by when it does not: of a window that
// ends meanwhile all is different then.
func (l *Limits) Ask(s *Set, now Now, c Cost) (wait time.Duration, by string,
	until time.Duration) {

	if s == nil {
		s = l.none
	}
	asked, quiet := l.asked(now), l.quiet(s)
	l.pay(s, asked)
	for again := true; again; {
		again, until = false, math.MaxInt64
		for i := range l.all {
			of, st := &l.all[i], &s.states[i]
			n := min(c.Of(of.cost)+st.owed, of.most())
			at := asked.of(of)
			more := of.wait(st, at, n)
			if of.aligned && more == 0 {
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

// Left tells how many units of each limit may start now, and how many may at most.
func (l *Limits) Left(s *Set, now Now, tell func(name string, left, most int64)) {
	if s == nil {
		s = l.none
	}
	asked := l.asked(now)
	l.pay(s, asked)
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		tell(of.name, of.left(st, asked.of(of)), of.most())
	}
}

// pay charges what is owed, as far as there is room for it, in windows that are at most one ahead
// of a clock that was set back.
func (l *Limits) pay(s *Set, asked times) {
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		of.clamp(st, asked.of(of))
		if st.owed > 0 {
			paid := of.takeUpTo(st, asked.of(of), l.charges(s, asked).of(of), st.owed)
			st.owed -= paid
			st.charged += paid
		}
	}
}

// Take charges a start, which Next lets happen now. It returns the set, which is made if there was
// none, and what Return and Done must know of the start.
func (l *Limits) Take(s *Set, now Now, c Cost) (*Set, *Charge) {
	if s == nil {
		s = l.newSet()
	}
	asked := l.asked(now)
	ch := &Charge{at: l.charges(s, asked)}
	ch.of = ch.few[:0]
	for i := range l.all {
		of, st, n := &l.all[i], &s.states[i], c.Of(l.all[i].cost)
		if n <= of.most() && of.take(st, asked.of(of), ch.at.of(of), n) {
			st.charged += n
		} else {
			st.owed += n // more than a limit of now lets pass, or its clock stepped back
		}
		ch.of = append(ch.of, charged{n, st.charged})
		st.out += n
	}
	return s, ch
}

// Return takes a start back that did not happen.
func (l *Limits) Return(s *Set, ch *Charge, now Now) {
	s.latency = min(s.latency+1, l.most)
	for i := range l.all {
		l.refund(s, i, ch, now, max(0, ch.of[i].units))
	}
	l.close(s, ch)
}

// Done is called when a run has ended. What it used is told by name, if it is: too much is given
// back of the limits that count it, and too little is taken, also beyond a limit, so that the next
// job waits for it. Noted says which checkpoints tell of that.
func (l *Limits) Done(s *Set, ch *Charge, now Now, used map[string]int64, noted Noted) {
	s.latency -= min(s.latency, 1)
	for i := range l.all {
		if n, told := used[l.all[i].cost]; told && l.all[i].cost != "" && ch.of[i] != notCharged {
			l.settle(s, i, ch, now, n-ch.of[i].units, noted)
		}
	}
	l.close(s, ch)
}

// Late is Done for a run of a former owner: only what is too little is known.
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

// close ends what could still be given back of a start.
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
	if n = min(n-uncharged, of.most()); n <= 0 {
		return
	}
	of.refund(st, l.asked(now).of(of), ch.at.of(of), s.latest, n, st.charged-ch.of[i].by)
}

// Crashed charges the most that somebody can have started between two instants by the limits and by
// what else is known of it: at most so many units of each cost that is listed. What the set tells
// of may have been slack earlier than it says.
func (l *Limits) Crashed(s *Set, from, to Now, slack time.Duration, units Units) *Set {
	if s == nil {
		s = l.newSet()
	}
	asked := l.asked(to)
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
		of.crashed(st, crashed{from: l.asked(from).of(of), to: asked.of(of), at: charges.of(of),
			slack: slack, most: most, loose: st.loose})
		st.loose = 0
	}
	return s
}

// window is the length of a clock's window.
func (of *limit) window() time.Duration {
	switch r := of.rule.(type) {
	case *fixed:
		return r.Window
	case counter:
		return r.Window
	}
	return 0
}

// FreshIn is how long it takes until a set is as good as none.
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
			wait = max(wait, of.wait(st, asked.of(of), min(st.owed, of.most())), 1)
		}
	}
	return wait
}

// MostLag is the longest lag.
func (l *Limits) MostLag() time.Duration { return l.guard / 2 << l.most }

// Longest is how long it takes until what counts now counts no more.
func (l *Limits) Longest() (longest time.Duration) {
	at := own(0)
	for i := range l.all {
		var full state
		of := &l.all[i]
		of.takeUpTo(&full, at, at, of.most())
		longest = max(longest, of.resetAfter(&full, at)+of.window()*5/4) // of a calendar
	}
	return longest + 3*l.guard + 2*l.MostLag()
}

// Most is how many slots can start within a time.
func (l *Limits) Most(within time.Duration) int64 {
	least := int64(math.MaxInt64)
	for i := range l.all {
		if of := &l.all[i]; of.cost == "" {
			least = min(least, of.within(within+l.guard))
		}
	}
	return least
}

// Interval is how long a slot takes at the slowest of the limits.
func (l *Limits) Interval() (longest time.Duration) {
	for i := range l.all {
		if l.all[i].cost == "" {
			longest = max(longest, l.all[i].interval)
		}
	}
	return longest
}

// Adapt fits a set to limits that were others before: those of the same name and algorithm keep
// their state, and others begin with none.
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

// AdaptCharge fits what a start took of limits that were others before, as Adapt fits what it was
// taken from: what is given back or owed when the run ends counts for the limits that still stand.
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
