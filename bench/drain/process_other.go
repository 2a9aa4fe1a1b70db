//go:build unix && !linux

package main

import (
	"errors"
	"time"
)

// cpuTime needs Linux.
func cpuTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }
