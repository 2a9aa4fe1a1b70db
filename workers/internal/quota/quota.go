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

	"github.com/penstock-mq/penstock/algorithms"
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

// Set is a bucket's usage; nil if no usage counts.
type Set struct {
	states  []state
	latest  time.Time // last instant charged
	latency uint8     // doublings of the lag after overruns
	awaited bool      // loose units may be of runs that another process reports
	// lapses is when loose units that are held count as answered, by the process's clock.
	lapses time.Duration
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
	at       times     // for limits that count from the start
	answered times     // for those that count from the answer
	of       []charged // per limit
	few      [3]charged
}

// charged is the units of a start, and those charged until then; or held or abroad.
type charged struct{ units, by int64 }

// notCharged marks a limit newer than the start.
var notCharged = charged{units: -1}

const (
	held   = -1 // the units wait for their answer
	abroad = -2 // another process charged them
)

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

func (l *Limits) charges(s *Set, asked times) times {
	if at := asked.own.Add(l.guard + l.late(s)); at.After(s.latest) {
		s.latest = at
	}
	return times{s.latest, asked.wall}
}

// answers returns the instant as of which units count whose answer was read at an instant, which
// may be in the next window as the target sees it.
func (l *Limits) answers(at Now) times {
	asked := l.asked(at)
	return times{asked.own.Add(l.guard), asked.wall.Add(2*l.guard + 2*l.off(at))}
}

func (l *Limits) Next(s *Set, now Now, c Cost) (wait time.Duration, by string) {
	wait, by, _ = l.Ask(s, now, c)
	return wait, by
}

// Ask returns the wait until the next start, its limit, and the end of the permission if no other
// start is charged. After a wait for one limit, it evaluates the others at its end.
// [algorithms.UntilAnswered]: until an answer comes, or units are given back.
func (l *Limits) Ask(s *Set, now Now, c Cost) (wait time.Duration, by string, until time.Duration) {
	if s == nil {
		s = l.none
	}
	asked := l.asked(now)
	l.pay(s, now)
	for again := true; again; {
		again, until = false, math.MaxInt64
		for i := range l.all {
			of, st := &l.all[i], &s.states[i]
			n := min(c.Of(of.cost)+st.owed, of.Most())
			at := asked.of(of)
			more := of.wait(st, at, n)
			if more == algorithms.UntilAnswered {
				return l.untilLapsed(s, st, now, more), of.name, now.Own
			}
			if of.bound.Aligned && more == 0 {
				left, quiet := of.end(at).Sub(at), l.quiet(of, s, now)
				// an answer may have begun the next window, by a clock that stepped back since
				begun := of.arrivals && of.resetAfter(st, at) > left+time.Microsecond
				if left <= quiet || begun {
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

// untilLapsed shortens a wait if loose units lapse.
func (l *Limits) untilLapsed(s *Set, st *state, now Now, wait time.Duration) time.Duration {
	if st.loose > 0 {
		wait = min(wait, max(1, s.lapses-now.Own))
	}
	return wait
}

// Left reports each limit's units that may start now, the maximum, and those that wait for their
// answer; the others count.
func (l *Limits) Left(s *Set, now Now, tell func(name string, left, most, open int64)) {
	if s == nil {
		s = l.none
	}
	asked := l.asked(now)
	l.pay(s, now)
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		tell(of.name, of.left(st, asked.of(of)), of.Most(), of.held(st))
	}
}

// Counted returns the units that count of each cost, and whether some wait for their answer.
func (l *Limits) Counted(s *Set, now Now) (units Units, open bool) {
	units = Units{}
	asked := l.asked(now)
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		units[of.cost] = max(units[of.cost],
			min(of.Most(), of.Most()-of.left(st, asked.of(of))+st.owed))
		open = open || of.held(st) > 0
	}
	return units, open
}

// pay charges debts, and held units that lapsed.
func (l *Limits) pay(s *Set, now Now) {
	asked := l.asked(now)
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		if of.bound.Aligned {
			of.clamp(st, asked.of(of))
		}
		if of.arrivals && st.loose > 0 && s.lapses <= now.Own {
			l.charge(s, i, now, now.plus(s.lapses-now.Own), &st.loose, st.loose)
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
		by := int64(held)
		if !of.arrivals {
			if at := asked.of(of); n <= of.left(st, at) {
				of.Charge(&st.State, at, ch.at.of(of), n)
				st.charged += n
			} else {
				st.owed += n // more than the limit allows now, or its clock stepped back
			}
			by = st.charged
		}
		ch.of = append(ch.of, charged{n, by})
		st.out += n
	}
	return s, ch
}

// Adopt continues a start of another process, of whose units the loose ones are held until its
// end, or also for its answer.
func (l *Limits) Adopt(s *Set, c Cost, ends, answers bool) (*Set, *Charge) {
	if s == nil {
		s = l.newSet()
	}
	ch := &Charge{}
	ch.of = ch.few[:0]
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		n := charged{c.Of(of.cost), abroad}
		if of.arrivals && (answers || ends && of.atEnd) && n.units <= st.loose {
			n.by = held
			st.loose, st.out = st.loose-n.units, st.out+n.units
		}
		ch.of = append(ch.of, n)
	}
	return s, ch
}

// charge charges n of some held units as of their answer.
func (l *Limits) charge(s *Set, i int, now, answered Now, from *int64, n int64) {
	of, st := &l.all[i], &s.states[i]
	at := l.answers(answered)
	if at.own.After(s.latest) {
		s.latest = at.own
	}
	h := of.holding().Answer(algorithms.Held[*algorithms.State]{Counted: &st.State, Units: *from},
		l.asked(now).of(of), at.of(of), n)
	st.charged += *from - h.Units
	*from = h.Units
}

// IsAnswered reports whether Answered has charged the start.
func (ch *Charge) IsAnswered() bool { return ch.answered != times{} }

// Answered charges a start whose answer had begun by an instant, which was read after it.
func (l *Limits) Answered(s *Set, ch *Charge, now, at Now) {
	for i := range l.all {
		if c := &ch.of[i]; c.by == held && !l.all[i].atEnd {
			l.charge(s, i, now, at, &s.states[i].out, c.units)
			ch.answered, c.by = l.answers(at), s.states[i].charged
		}
	}
}

// Open reports the units of a start that wait for its answer.
func (l *Limits) Open(ch *Charge, tell func(limit string, units int64)) {
	for i, c := range ch.of {
		if c.by == held {
			tell(l.all[i].name, c.units)
		}
	}
}

// Return refunds a start that did not happen.
func (l *Limits) Return(s *Set, ch *Charge, now Now) {
	s.latency = min(s.latency+1, l.most)
	for i := range l.all {
		st, c := &s.states[i], ch.of[i]
		if c.by >= 0 {
			l.refund(s, i, ch, now, max(0, c.units))
		}
		l.close(st, i, c)
	}
}

// End is what is known at the end of a run.
type End struct {
	Used map[string]int64 // by name of the cost
	// Unanswered requests may still arrive, within the longest delay from now; Unsent ones will
	// not.
	Unanswered, Unsent bool
}

// Done ends a run. Of usage reported by name, the rest is refunded and an excess charged, even
// beyond a limit, within longestDebt. For a former owner's run only an excess is charged.
func (l *Limits) Done(s *Set, ch *Charge, now Now, e End, noted Noted) {
	s.latency -= min(s.latency, 1)
	for i := range l.all {
		of, st, c := &l.all[i], &s.states[i], ch.of[i]
		n, told := e.Used[of.cost]
		if told = told && of.cost != "" && c != notCharged; !told {
			n = c.units
		}
		switch {
		case c.by != held:
			if told && (c.by != abroad || n > c.units) {
				l.settle(s, i, ch, now, n-c.units, noted)
			}
		case e.Unsent:
		case e.Unanswered:
			st.loose += c.units
			s.lapses = max(s.lapses, now.Own+l.maxDelay)
		default:
			from := c.units
			l.charge(s, i, now, now, &from, min(n, c.units))
			st.owed += max(0, n-c.units)
			st.untold.add(max(0, n-c.units), noted)
		}
		l.close(st, i, c)
	}
}

// travel is the time for messages about a run of another process.
const travel = time.Second

// Await holds loose units, also those of a crash that is still to be counted, until other processes
// must have reported their ends.
func (l *Limits) Await(s *Set, now Now) *Set {
	if s == nil {
		s = l.newSet()
	}
	s.awaited, s.lapses = true, max(s.lapses, now.Own+l.timeout+travel+l.maxDelay)
	return s
}

// close ends the possibility of a refund.
func (l *Limits) close(st *state, i int, c charged) {
	if c.by == held || c.by >= 0 && !l.all[i].arrivals {
		st.out -= min(st.out, max(0, c.units))
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
	at := ch.at
	if of.arrivals {
		at = ch.answered
	}
	of.Uncharge(&st.State, l.asked(now).of(of), algorithms.Charged{At: at.of(of),
		Last: s.latest, Units: n, Since: st.charged - ch.of[i].by})
}

// Crashed charges the most that another process can have started between two instants, by the
// limits and by units per cost. Recorded charges may be older, by up to slack. What may be
// unanswered is held until the longest delay after the second instant, unless the set is awaited.
func (l *Limits) Crashed(s *Set, from, to Now, slack time.Duration, units Units) *Set {
	if s == nil {
		s = l.newSet()
	}
	asked := l.asked(to)
	asked.wall = asked.wall.Add(2 * l.off(to))
	charges := l.charges(s, asked)
	if !s.awaited {
		s.lapses = 0
	}
	s.lapses = max(s.lapses, to.Own+l.maxDelay)
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		most, known := units[of.cost]
		switch {
		case !known:
			most = math.MaxInt64
		case most == 0 && !of.arrivals:
			continue
		}
		if of.arrivals {
			st.loose = min(of.Most(), st.loose+min(most, of.Most()))
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
	return newLimits(policy.Policy{WindowMargin: policy.Duration(l.guard),
		MaxDelay: policy.Duration(l.maxDelay), Timeout: policy.Duration(l.timeout)}, all)
}

// FreshIn returns how long a set still counts.
func (l *Limits) FreshIn(s *Set, now Now) (wait time.Duration) {
	if s == nil {
		return 0
	}
	asked := l.asked(now)
	l.pay(s, now)
	for i := range l.all {
		of, st := &l.all[i], &s.states[i]
		wait = max(wait, of.resetAfter(st, asked.of(of)))
		if of.held(st) > 0 {
			wait = max(wait, l.untilLapsed(s, st, now, time.Second))
		}
		if st.owed > 0 {
			wait = max(wait, of.wait(st, asked.of(of), min(st.owed, of.Most())), 1)
		}
	}
	return wait
}

// MostLag returns the largest Lag; 0 if no limit counts from the start.
func (l *Limits) MostLag() time.Duration {
	if !l.starts {
		return 0
	}
	return l.guard / 2 << l.most
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
	return longest + 3*l.guard + 2*l.MostLag() + l.maxDelay
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
	fitted.latest, fitted.latency, fitted.lapses, fitted.awaited = s.latest, s.latency, s.lapses,
		s.awaited
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
	fitted := &Charge{at: ch.at, answered: ch.answered}
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
