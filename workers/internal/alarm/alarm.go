// Package alarm wakes a goroutine at an instant, more precisely than the runtime's timers.
// Without timerfd it uses one of those.
package alarm

import "github.com/penstock-mq/penstock/workers/internal/pace"

// Set makes no system call if the alarm is already set to this instant.
func (a *Alarm) Set(at pace.Instant, clock func() pace.Instant) error {
	if at == a.at {
		return nil
	}
	a.at = at
	return a.reset(max(0, at.Since(clock())))
}

// Rang must follow a receive from Rings.
func (a *Alarm) Rang() { a.at = pace.Never }
