package workers

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes the loop at an instant. The runtime's timers are late by up to 1 ms and more, because an idle process waits
// in epoll_wait(2) for whole milliseconds: too coarse for rates of 1,000/s and up. A timerfd is late by some 50 µs.
// Its clock is that of instants, which goes on while the machine sleeps.
type alarm struct {
	rings chan struct{}
	file  *os.File
	fd    int
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a timer: %w", err)
	}
	return &alarm{rings: make(chan struct{}, 1), file: os.NewFile(uintptr(fd), "timerfd"), fd: fd}, nil
}

// run passes the alarm's rings on until stop.
func (a *alarm) run() {
	var expirations [8]byte
	for {
		if _, err := a.file.Read(expirations[:]); err != nil {
			return
		}
		select {
		case a.rings <- struct{}{}:
		default:
		}
	}
}

// reset makes the alarm ring after d, and not before for earlier calls, but for a ring that is already there.
func (a *alarm) reset(d time.Duration) error {
	after := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))} // 0 would disarm
	if err := unix.TimerfdSettime(a.fd, 0, &after, nil); err != nil {
		return fmt.Errorf("set a timer: %w", err)
	}
	return nil
}

func (a *alarm) stop() { _ = a.file.Close() }
