package core

import (
	"iter"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

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

func (e Claimed) apply(c *Core, _ pace.Instant) {
	if v := c.valve(e.Policy); v != nil {
		v.Claimed(e.Claim)
	} else {
		c.out.Refusals = append(c.out.Refusals, e.Worker)
	}
}

// Reservation is a local worker lent to another drainer's valve.
type Reservation struct {
	policy string
	valve  uint64 // its tenure; 0: none
}

// Reserve takes a slot and, if the policy has a valve here, one of its workers.
func (c *Core) Reserve(name string) (r Reservation, ok bool) {
	switch v := c.valve(name); {
	case c.Leaving || c.slots.Left() <= 0 || v != nil && !v.Reserve():
		return r, false
	case v == nil:
		c.slots.Used++
		return r, true
	default:
		return Reservation{name, v.tenure}, true
	}
}

// Release returns a worker, unless its valve has gone.
func (c *Core) Release(r Reservation) {
	if r.valve == 0 {
		c.slots.Used--
	} else if v := c.valve(r.policy); v != nil && v.tenure == r.valve {
		v.Release()
	}
}

func (c *Core) Workers(name string) (busy, free int, known bool) {
	v := c.valves[name]
	if v == nil {
		return 0, c.slots.Left(), false
	}
	return v.Busy + v.Reserved, v.Free(), true
}

func (c *Core) Running() (jobs int) {
	for _, v := range c.valves {
		jobs += v.Running()
	}
	return jobs
}

// Breakers returns the breakers of awake valves and of known policies.
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

// Lowered reports changed numbers of buckets with a learnt, lower rate.
func (c *Core) Lowered(tell func(policy string, buckets int)) {
	for _, v := range c.sorted {
		if n := v.Lowered(); n != v.toldLowered && !v.shared {
			v.toldLowered = n
			tell(v.Policy.Name, n)
		}
	}
}

// LimitsLeft reports the balances that are kept here, and once that none is any more.
func (c *Core) LimitsLeft(now pace.Instant, tell func(policy string, left []job.LimitLeft)) {
	for _, v := range c.sorted {
		if left := v.LeftOfAll(now); !v.shared && (left != nil || v.toldLeft) {
			v.toldLeft = left != nil
			tell(v.Policy.Name, left)
		}
	}
}

func (c *Core) TakeHeld(now pace.Instant, tell func(policy, limit string, held time.Duration)) {
	for _, v := range c.sorted {
		v.TakeHeld(now, func(limit string, held time.Duration) { tell(v.Policy.Name, limit, held) })
	}
}

func (c *Core) TakeLost(tell func(policy, cause string, lost time.Duration)) {
	for _, v := range c.sorted {
		v.TakeLost(func(cause string, lost time.Duration) { tell(v.Policy.Name, cause, lost) })
	}
}
