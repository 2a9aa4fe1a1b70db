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
}

// New returns an alarm that is not set.
func New() (*Alarm, error) {
	a := &Alarm{at: pace.Never, Rings: make(chan struct{}, 1)}
	a.timer = time.AfterFunc(pace.Forever, func() {
		select {
		case a.Rings <- struct{}{}:
		default:
		}
	})
	return a, nil
}

// Run returns at once: the timer delivers the rings.
func (a *Alarm) Run() {}

func (a *Alarm) reset(d time.Duration) error {
	a.timer.Reset(d)
	return nil
}

// Stop ends the rings.
func (a *Alarm) Stop() { a.timer.Stop() }
