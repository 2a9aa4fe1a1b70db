package core

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// roster has the valves of this drainer. An idle one rests: it is not visited until something
// happens to it.
type roster struct {
	all    map[string]*livePolicy
	sorted []*livePolicy // by name, because a seed must reproduce a run
	awake  []*livePolicy // to be visited in each iteration, by name
	acted  pace.Instant  // when starts were last allowed
	told   pace.Instant
}

// livePolicy is a policy with a valve here.
type livePolicy struct {
	*valve.Valve
	of     *QueuePolicy
	ending bool // this drainer may no longer own it
	shares []*share
	awake  bool
	told   tidings
}

// tidings are what was last told of a valve.
type tidings struct {
	all      bool // since it rests
	lowered  int
	breakers valve.Breakers
	left     bool
}

// visit returns a policy's valve for an event, or nil, and wakes it.
func (r *roster) visit(policy string) *livePolicy {
	v := r.all[policy]
	if v != nil {
		r.rouse(v)
	}
	return v
}

func (r *roster) rouse(v *livePolicy) {
	if !v.awake {
		v.awake, v.told.all = true, false
		v.Rested(r.acted)
		r.awake = inserted(r.awake, v, byPolicy)
	}
}

func (r *roster) rouseAll() {
	r.awake = r.awake[:0]
	for _, v := range r.sorted {
		v.awake = false
		r.rouse(v)
	}
}

// rest drops idle valves from further iterations.
func (r *roster) rest() {
	r.awake = slices.DeleteFunc(r.awake, func(v *livePolicy) bool {
		v.awake = v.of.shared || !v.Idle() || v.checkpointDue() != pace.Never
		return !v.awake
	})
}

func (r *roster) add(v *livePolicy) {
	r.all[v.Policy.Name], r.sorted = v, inserted(r.sorted, v, byPolicy)
	r.rouse(v)
}

// prune removes ending valves without partitions or runs, and returns their names.
func (r *roster) prune() (names []string) {
	gone := func(v *livePolicy) bool {
		return v.ending && v.Crew.Running() == 0 &&
			!slices.ContainsFunc(v.shares, func(s *share) bool { return s.state != shareIdle })
	}
	for _, v := range r.sorted {
		if gone(v) {
			delete(r.all, v.Policy.Name)
			names = append(names, v.Policy.Name)
		}
	}
	if len(names) > 0 {
		r.sorted, r.awake = slices.DeleteFunc(r.sorted, gone), slices.DeleteFunc(r.awake, gone)
	}
	return names
}

// runnable returns the policies, of so many, whose valves this drainer may own.
func (r *roster) runnable(of int) []string {
	names := make([]string, 0, len(r.sorted))
	for _, v := range r.sorted {
		if !v.ending {
			names = append(names, v.Policy.Name)
		}
	}
	if len(names) > 0 && len(names) == of {
		return []string{record.Every}
	}
	return names
}

// link lets valves affect each other.
func (r *roster) link(of lines, slots *crew.Slots) {
	if len(of) > 0 || slots.Most > 0 {
		r.rouseAll()
	}
	joined := map[string][]*valve.Valve{}
	for _, v := range r.sorted {
		var shared []valve.SharedLimit
		for _, l := range v.Policy.SharedLimits() {
			s := valve.SharedLimit{Name: l.Shared}
			if of := r.all[record.SharedName(l.Shared)]; of != nil {
				s.Of = of.Valve
			}
			shared = append(shared, s)
		}
		v.ShareLimits(shared)
		line := of[v.Policy.Name]
		if slots.Most > 0 {
			line = "all"
		}
		if line != "" && !v.of.shared {
			joined[line] = append(joined[line], v.Valve)
		} else {
			valve.Join([]*valve.Valve{v.Valve})
		}
	}
	for _, line := range joined {
		valve.Join(line)
	}
}

// checkpointDue returns when the next checkpoint of any partition is due.
func (v *livePolicy) checkpointDue() pace.Instant {
	at := pace.Never
	for _, s := range v.shares {
		if s.part != nil {
			at = min(at, s.part.checkpointDue())
		}
	}
	return at
}

// Awake returns the policies whose valves do not rest, and more, each once.
func (c *Core) Awake(more iter.Seq[string]) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, v := range c.valves.awake {
			if !v.of.shared && !yield(v.Policy.Name) {
				return
			}
		}
		for name := range more {
			if v := c.valves.all[name]; (v == nil || !v.awake) && !yield(name) {
				return
			}
		}
	}
}

// Tell reports changes since the last call: lost time by cause, time held by limits, buckets with a
// learnt, lower rate, open breakers, and the balances kept here, also once after the last. A valve
// at rest is reported once.
func (c *Core) Tell(now pace.Instant, lost, held func(policy, name string, took time.Duration),
	lowered func(policy string, buckets int), broken func(policy string, b valve.Breakers),
	left func(policy string, left []api.LimitLeft)) {
	since := now.Since(cmp.Or(c.valves.told, now))
	c.valves.told = now
	for _, v := range c.valves.sorted {
		was := &v.told
		if was.all && !was.left {
			continue
		}
		was.all = !v.awake
		name := v.Policy.Name
		v.Losses.TakeLost(func(cause string, took time.Duration) { lost(name, cause, took) })
		v.TakeHeld(now, since, func(limit string, took time.Duration) { held(name, limit, took) })
		if v.of.shared {
			continue
		}
		view := v.View(now)
		if n := view.Lowered(); n != was.lowered {
			was.lowered = n
			lowered(name, n)
		}
		if b := v.Breakers(); b != was.breakers {
			was.breakers = b
			broken(name, b)
		}
		if balances := append(view.LeftOfAll(), view.OpenOfKeys()...); balances != nil || was.left {
			was.left = balances != nil
			left(name, balances)
		}
	}
}
