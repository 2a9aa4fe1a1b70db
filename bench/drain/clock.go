package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonic reads the clock that all processes of one host share, in nanoseconds.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // the clock exists everywhere
	}
	return t.Nano()
}

// clockOffset turns instants that Go took in this process into readings of the shared clock.
type clockOffset struct {
	instant time.Time
	reading int64
}

func newClockOffset() clockOffset { return clockOffset{time.Now(), monotonic()} }

func (c clockOffset) reads(t time.Time) int64 { return c.reading + int64(t.Sub(c.instant)) }
