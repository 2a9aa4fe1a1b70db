package core

import (
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Fits reports whether a claim of a worker that takes no jobs of some buckets may get one.
func (c *Core) Fits(policy string, except []job.Key, now pace.Instant) bool {
	v := c.valves.all[policy]
	return v != nil && v.Fits(except, now)
}

func (e Offered) apply(c *Core, now pace.Instant) {
	if v := c.valves.visit(e.Policy); v != nil {
		v.Offered(e.Result, now)
	}
}

func (e Claimed) apply(c *Core, _ pace.Instant) {
	if v := c.valves.visit(e.Policy); v != nil {
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
	switch v := c.valves.visit(name); {
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
	c.valves.rouse(r.of)
	r.of.Crew.Release()
}

func (c *Core) Workers(name string) (busy, free int, known bool) {
	v := c.valves.all[name]
	if v == nil {
		return 0, c.slots.Left(), false
	}
	return v.Crew.Busy + v.Crew.Reserved, v.Crew.Free(), true
}

func (c *Core) Running() (jobs int) {
	for _, v := range c.valves.sorted {
		jobs += v.Crew.Running()
	}
	return jobs
}
