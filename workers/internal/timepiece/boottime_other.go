//go:build !linux

package timepiece

import "time"

var loaded = time.Now()

// sinceBoot reads the monotonic clock, which on some systems stops while the machine sleeps.
// The wall clock then jumps at wake-up, which closes the fence as well.
func sinceBoot() time.Duration { return time.Since(loaded) }
