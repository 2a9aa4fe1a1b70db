package core

import (
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Fits reports whether a claim of a worker that takes no jobs of some buckets may get one.
func (c *Core) Fits(policy string, except []queue.Key, now pace.Instant) bool {
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

// workersOf returns this process's workers of a policy, whoever owns its valves.
func (c *Core) workersOf(policy string) *crew.Workers {
	w := c.workers[policy]
	if w == nil {
		w = &crew.Workers{Slots: &c.slots}
		c.workers[policy] = w
	}
	return w
}

// dismiss forgets the workers of a policy that is gone, unless they still work: it may come back.
func (c *Core) dismiss(policy string) {
	w := c.workers[policy]
	if w != nil && w.Reserved == 0 && c.policies[policy] == nil && c.valves.all[policy] == nil {
		delete(c.workers, policy)
	}
}

// Reserve lends a worker to another drainer's valve, until Release.
func (c *Core) Reserve(policy string) bool {
	if w := c.workers[policy]; w == nil || c.Leaving || !w.Reserve() {
		return false
	}
	c.valves.visit(policy)
	return true
}

func (c *Core) Release(policy string) {
	c.valves.visit(policy)
	c.workers[policy].Release()
	c.dismiss(policy)
}

// Workers returns a policy's workers here, or none.
func (c *Core) Workers(policy string) (w crew.Workers) {
	if known := c.workers[policy]; known != nil {
		w = *known
	}
	return w
}

func (c *Core) Running() (jobs int) {
	for _, w := range c.workers {
		jobs += w.Busy + w.Reserved
	}
	for _, v := range c.valves.sorted {
		jobs += v.Crew.Claimants.Working
	}
	return jobs
}
