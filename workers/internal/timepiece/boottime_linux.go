package timepiece

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot reads the clock that continues while the machine sleeps.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		// Every Linux that Go supports has it.
		panic(fmt.Sprintf("workers: read CLOCK_BOOTTIME: %v", err))
	}
	return time.Duration(t.Nano())
}
