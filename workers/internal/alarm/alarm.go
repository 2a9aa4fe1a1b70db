// Package alarm wakes a goroutine at an instant, more exactly than the runtime's timers do. Where
// there is no timerfd it is one of those.
package alarm

import "github.com/penstock-mq/penstock/workers/internal/pace"

// Set makes the alarm ring at an instant of the clock. It costs a system call only when the alarm
// is not set for that instant already.
func (a *Alarm) Set(at pace.Instant, clock func() pace.Instant) error {
	if at == a.at {
		return nil
	}
	a.at = at
	return a.reset(max(0, at.Since(clock())))
}

// Rang is called by whoever has received of Rings: the alarm may be set for the same instant again.
func (a *Alarm) Rang() { a.at = pace.Never }
