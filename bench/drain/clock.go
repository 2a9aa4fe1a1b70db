package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonic reads the host's clock in nanoseconds, which all processes share.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

type clockOffset struct {
	instant time.Time
	reading int64
}

func newClockOffset() clockOffset { return clockOffset{time.Now(), monotonic()} }

func (c clockOffset) reads(t time.Time) int64 { return c.reading + int64(t.Sub(c.instant)) }
