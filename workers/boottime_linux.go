package workers

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot reads the clock that goes on while the machine sleeps.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("workers: read CLOCK_BOOTTIME: %v", err)) // every Linux that Go runs on has it
	}
	return time.Duration(t.Nano())
}
