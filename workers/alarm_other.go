//go:build !linux

package workers

import "time"

// alarm wakes the loop at an instant.
type alarm struct {
	timer *time.Timer
	rings chan struct{}
	ended chan struct{}
}

func newAlarm() (*alarm, error) {
	return &alarm{timer: time.NewTimer(0), rings: make(chan struct{}, 1), ended: make(chan struct{})}, nil
}

// run passes the alarm's rings on until stop.
func (a *alarm) run() {
	for {
		select {
		case <-a.timer.C:
		case <-a.ended:
			return
		}
		select {
		case a.rings <- struct{}{}:
		default:
		}
	}
}

// reset makes the alarm ring after d.
func (a *alarm) reset(d time.Duration) error {
	a.timer.Reset(d)
	return nil
}

func (a *alarm) stop() {
	a.timer.Stop()
	close(a.ended)
}
