//go:build !unix || solaris || illumos || aix

package files

import "math"

// Limit returns the number of files that this process may have open.
func Limit() int { return math.MaxInt }
