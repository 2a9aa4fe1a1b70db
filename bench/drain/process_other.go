//go:build unix && !linux

package main

import (
	"errors"
	"os/exec"
	"time"
)

// dieWithParent has nothing to do: children in a role of this program end when their input does.
func dieWithParent(*exec.Cmd) {}

// cpuTime needs Linux.
func cpuTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }
