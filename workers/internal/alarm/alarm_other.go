//go:build !linux

package alarm

import (
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Alarm rings at an instant.
type Alarm struct {
	timer *time.Timer
	Rings chan struct{}
	at    pace.Instant // its setting; Never once it has rung
	ended chan struct{}
}

// New returns an alarm that is not set.
func New() (*Alarm, error) {
	return &Alarm{at: pace.Never, timer: time.NewTimer(0), Rings: make(chan struct{}, 1),
		ended: make(chan struct{})}, nil
}

// Run delivers the alarm's rings until Stop.
func (a *Alarm) Run() {
	for {
		select {
		case <-a.timer.C:
		case <-a.ended:
			return
		}
		select {
		case a.Rings <- struct{}{}:
		default:
		}
	}
}

// reset sets the alarm to ring after d.
func (a *Alarm) reset(d time.Duration) error {
	a.timer.Reset(d)
	return nil
}

// Stop ends Run.
func (a *Alarm) Stop() {
	a.timer.Stop()
	close(a.ended)
}
