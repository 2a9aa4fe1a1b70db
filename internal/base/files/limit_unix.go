//go:build unix && !solaris && !illumos && !aix

package files

import (
	"math"

	"golang.org/x/sys/unix"
)

// Limit returns the number of files that this process may have open; Go has raised it to the hard
// limit.
func Limit() int {
	var most unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &most); err != nil ||
		uint64(most.Cur) > math.MaxInt {
		return math.MaxInt
	}
	return int(most.Cur)
}
