package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// seize binds this thread to the i-th processor, in real time if permitted, otherwise with the
// highest priority.
func seize(i int) error {
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("read which processors there are: %w", err)
	}
	for cpu := 0; ; cpu++ {
		if allowed.IsSet(cpu) {
			if i--; i < 0 {
				one.Set(cpu)
				break
			}
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("bind a thread to a processor: %w", err)
	}
	return beforeOthers()
}

func beforeOthers() error {
	const firstInFirstOut = 1 // SCHED_FIFO in sched.h
	err := unix.SchedSetAttr(0,
		&unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: firstInFirstOut, Priority: 1}, 0)
	if err != nil {
		err = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
	}
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("a neighbour needs CAP_SYS_NICE, as root has it: %w", err)
	}
	return err
}

func sleepUntil(reading int64) {
	at := unix.NsecToTimespec(reading)
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &at, nil) != nil {
	}
}
