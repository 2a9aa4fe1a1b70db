package alarm

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Alarm rings at an instant. The runtime's timers are late by 1 ms or more, because an idle process
// waits in epoll_wait(2) for whole milliseconds: too coarse for 1,000/s and up. A timerfd is late
// by some 50 µs, and counts time asleep, as instants do.
type Alarm struct {
	Rings chan struct{}
	at    pace.Instant // its setting; Never once it has rung
	file  *os.File
	fd    int
}

func New() (*Alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a timer: %w", err)
	}
	return &Alarm{at: pace.Never, Rings: make(chan struct{}, 1),
		file: os.NewFile(uintptr(fd), "timerfd"), fd: fd}, nil
}

// Run delivers rings until Stop.
func (a *Alarm) Run() {
	var expirations [8]byte
	for {
		if _, err := a.file.Read(expirations[:]); err != nil {
			return
		}
		select {
		case a.Rings <- struct{}{}:
		default:
		}
	}
}

func (a *Alarm) reset(d time.Duration) error {
	after := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))} // 0 would disarm
	if err := unix.TimerfdSettime(a.fd, 0, &after, nil); err != nil {
		return fmt.Errorf("set a timer: %w", err)
	}
	return nil
}

func (a *Alarm) Stop() { _ = a.file.Close() }
