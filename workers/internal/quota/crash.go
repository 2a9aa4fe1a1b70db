package quota

import (
	"math"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

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

// Crash is the time of starts that another process may have made without a record, by limits of its
// own sizes. Recorded charges may be older, by up to Slack.
type Crash struct {
	From, To Now
	Slack    time.Duration
	Sizes    map[string]int64
}

// Crashed charges the most that can have started in a crash, by the limits and by units per cost.
// What may be unanswered is held until the longest delay after it, unless the set is awaited.
func (l *Limits) Crashed(s *Set, c Crash, units Units) *Set {
	if s == nil {
		s = l.newSet()
	}
	l, to := l.sized(c.Sizes), c.To
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
		of.ChargeUnseen(&st.State, algorithms.Unseen{From: l.asked(c.From).of(of),
			To: asked.of(of), At: charges.of(of), Slack: c.Slack, Most: most, Loose: st.loose})
		st.loose = 0
	}
	return s
}

// Sizes returns each limit's units.
func (l *Limits) Sizes() map[string]int64 {
	sizes := map[string]int64{}
	for i := range l.all {
		sizes[l.all[i].name] = l.all[i].Most()
	}
	return sizes
}

// sized returns the limits with at least another process's sizes: its starts count even if they are
// smaller now, because they may be raised again.
func (l *Limits) sized(sizes map[string]int64) *Limits {
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
