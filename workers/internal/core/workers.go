package core

import (
	"iter"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Next is whose turn it is now or soon.
func (c *Core) Next(name string) valve.NextTurn {
	if v := c.valves[name]; v != nil {
		return v.Next()
	}
	return valve.NextTurn{}
}

func (e Offered) apply(c *Core, now pace.Instant) {
	if v := c.valve(e.Policy); v != nil {
		v.Offered(e.Result, now)
	}
}

func (e Refused) apply(c *Core, _ pace.Instant) {
	if v := c.valve(e.Policy); v != nil {
		v.Refused(e.Key)
	}
}

// advance gives the worker the job whose turn it is, or refuses.
func (e Claimed) apply(c *Core, _ pace.Instant) {
	if v := c.valve(e.Policy); v != nil {
		v.Claimed(e.Claim)
	} else {
		c.out.Refusals = append(c.out.Refusals, e.Worker)
	}
}

// Reservation is a local worker that runs a job for another drainer's valve. The zero one is of no
// worker of this core's.
type Reservation struct {
	policy string
	valve  uint64 // its tenure
}

// Reserve takes a local worker for another drainer's valve.
func (c *Core) Reserve(name string) (r Reservation, ok bool) {
	v := c.valve(name)
	if v == nil || c.Leaving || !v.Reserve() {
		return r, false
	}
	return Reservation{name, v.tenure}, true
}

// Release gives a worker back, unless its policy has gone meanwhile, and its valve with it.
func (c *Core) Release(r Reservation) {
	if v := c.valve(r.policy); v != nil && v.tenure == r.valve {
		v.Release()
	}
}

// Workers returns how many local workers of a policy are busy, for its valve or for others', and
// how many are free. It has a valve of the policy only if known.
func (c *Core) Workers(name string) (busy, free int, known bool) {
	v := c.valves[name]
	if v == nil {
		return 0, 0, false
	}
	return v.Busy + v.Reserved, v.Free(), true
}

// Running returns how many jobs run, here or elsewhere.
func (c *Core) Running() (jobs int) {
	for _, v := range c.valves {
		jobs += v.Running()
	}
	return jobs
}

// Breakers are those of policies that have a valve, by name: of those that are open nobody who knew
// of none may miss any, and of others that are known.
func (c *Core) Breakers(known iter.Seq[string]) iter.Seq2[string, valve.Breakers] {
	return func(yield func(string, valve.Breakers) bool) {
		for _, v := range c.awake {
			if !v.shared && !yield(v.Policy.Name, v.Breakers()) {
				return
			}
		}
		for name := range known {
			v := c.valves[name]
			if v != nil && !v.awake && !v.shared && !yield(name, v.Breakers()) {
				return
			}
		}
	}
}

// Lowered hands out how many buckets of each policy have learnt to be slower than their outflow.
func (c *Core) Lowered(tell func(policy string, buckets int)) {
	for _, v := range c.sorted {
		if !v.shared {
			tell(v.Policy.Name, v.Lowered())
		}
	}
}

// LimitsLeft hands out what is left of the limits that all buckets of a policy obey together, of
// those whose state is here.
func (c *Core) LimitsLeft(now pace.Instant, tell func(policy string, left []job.LimitLeft)) {
	for _, v := range c.sorted {
		if !v.shared {
			tell(v.Policy.Name, v.LeftOfAll(now))
		}
	}
}

// TakeHeld hands out for how long limits on starts have held buckets since it was called last, by
// policy and limit.
func (c *Core) TakeHeld(now pace.Instant, tell func(policy, limit string, held time.Duration)) {
	for _, v := range c.sorted {
		v.TakeHeld(now, func(limit string, held time.Duration) { tell(v.Policy.Name, limit, held) })
	}
}

// TakeLost hands out by how much starts became later than their buckets' rates allowed since it was
// called last, by policy and cause.
func (c *Core) TakeLost(tell func(policy, cause string, lost time.Duration)) {
	for _, v := range c.sorted {
		v.TakeLost(func(cause string, lost time.Duration) { tell(v.Policy.Name, cause, lost) })
	}
}
