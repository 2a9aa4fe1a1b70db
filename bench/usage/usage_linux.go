package usage

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the processor time of a process, user and system, with the resolution of its rusage.
func CPU(pid int) (time.Duration, error) {
	// CPUCLOCK_SCHED of the kernel's posix-timers.h; clock_getcpuclockid(3) computes the same
	const schedulerClock = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedulerClock), &t); err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
