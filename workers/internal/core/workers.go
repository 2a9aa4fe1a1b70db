package core

import (
	"iter"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Fits reports whether a claim of a worker that takes no jobs of some buckets may get one.
func (c *Core) Fits(policy string, except []job.Key, now pace.Instant) bool {
	v := c.valves[policy]
	return v != nil && v.Fits(except, now)
}

func (e Offered) apply(c *Core, now pace.Instant) {
	if v := c.valve(e.Policy); v != nil {
		v.Offered(e.Result, now)
	}
}

func (e Claimed) apply(c *Core, _ pace.Instant) {
	if v := c.valve(e.Policy); v != nil {
		v.Crew.Claim(e.Claim)
	} else {
		c.out.Refusals = append(c.out.Refusals, e.Worker)
	}
}

// Reservation is a local worker lent to another drainer's valve, of a valve that stays meanwhile;
// nil: there is none here.
type Reservation struct{ of *livePolicy }

// Reserve takes a slot and, if the policy has a valve here, one of its workers.
func (c *Core) Reserve(name string) (r Reservation, ok bool) {
	switch v := c.valve(name); {
	case c.Leaving || c.slots.Left() <= 0 || v != nil && !v.Crew.Reserve():
		return r, false
	case v == nil:
		c.slots.Used++
		return r, true
	default:
		return Reservation{v}, true
	}
}

func (c *Core) Release(r Reservation) {
	if r.of == nil {
		c.slots.Used--
		return
	}
	c.rouse(r.of)
	r.of.Crew.Release()
}

func (c *Core) Workers(name string) (busy, free int, known bool) {
	v := c.valves[name]
	if v == nil {
		return 0, c.slots.Left(), false
	}
	return v.Crew.Busy + v.Crew.Reserved, v.Crew.Free(), true
}

func (c *Core) Running() (jobs int) {
	for _, v := range c.valves {
		jobs += v.Crew.Running()
	}
	return jobs
}

// Awake returns the policies whose valves do not rest, and more, each once.
func (c *Core) Awake(more iter.Seq[string]) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, v := range c.awake {
			if !v.of.shared && !yield(v.Policy.Name) {
				return
			}
		}
		for name := range more {
			if v := c.valves[name]; (v == nil || !v.awake) && !yield(name) {
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
	since := now.Since(c.told)
	if c.told == 0 {
		since = 0
	}
	c.told = now
	for _, v := range c.sorted {
		if v.told && !v.toldLeft {
			continue
		}
		v.told = !v.awake
		name := v.Policy.Name
		v.Losses.TakeLost(func(cause string, took time.Duration) { lost(name, cause, took) })
		v.TakeHeld(now, since, func(limit string, took time.Duration) { held(name, limit, took) })
		if v.of.shared {
			continue
		}
		if n := v.Lowered(); n != v.toldLowered {
			v.toldLowered = n
			lowered(name, n)
		}
		if b := v.Breakers(); b != v.toldBroken {
			v.toldBroken = b
			broken(name, b)
		}
		if balances := append(v.LeftOfAll(now), v.OpenOfKeys()...); balances != nil || v.toldLeft {
			v.toldLeft = balances != nil
			left(name, balances)
		}
	}
}
