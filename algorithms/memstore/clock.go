package memstore

import (
	"sync/atomic"
	"time"
)

// clock tells what the wall clock says at half the cost of time.Now, which asks the machine twice: for the wall clock and
// for the monotonic one. Both count alike but for steps of the wall clock, so it is asked once per maxAge, and between the
// monotonic time since then is added. A step is noticed after maxAge at most.
type clock struct {
	asked atomic.Pointer[time.Time]
}

const maxAge = time.Millisecond

func (c *clock) now() time.Time {
	if asked := c.asked.Load(); asked != nil {
		if since := time.Since(*asked); since < maxAge {
			return asked.Add(since)
		}
	}
	now := time.Now()
	c.asked.Store(&now)
	return now
}
