package memstore

import (
	"sync/atomic"
	"time"
)

// clock returns the wall-clock time at half the cost of time.Now: it reads both the wall clock and
// the monotonic clock once per maxAge, and otherwise only the monotonic one.
type clock struct {
	both atomic.Pointer[time.Time] // as last read
}

// maxAge bounds how long a change of the wall clock goes unnoticed.
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
