package memstore

import (
	"sync/atomic"
	"time"
)

// clock tells the wall clock's time at half the cost of time.Now, which reads two clocks: the wall
// clock and the monotonic one. They differ by a constant until the wall clock is set. So both are
// read once per maxAge, and in between only the monotonic one.
type clock struct {
	both atomic.Pointer[time.Time] // as last read
}

// maxAge is how long the wall clock may have been set without being noticed.
const maxAge = time.Millisecond

func (c *clock) now() time.Time {
	if both := c.both.Load(); both != nil {
		if since := time.Since(*both); since < maxAge {
			return both.Add(since)
		}
	}
	now := time.Now()
	c.both.Store(&now)
	return now
}
