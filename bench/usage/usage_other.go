//go:build unix && !linux

package usage

import (
	"errors"
	"time"
)

// CPU needs Linux.
func CPU(int) (time.Duration, error) { return 0, errors.ErrUnsupported }
