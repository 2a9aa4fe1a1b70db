//go:build !unix || solaris || illumos || aix

package embedded

import "os"

// halfOfTheDisk is not supported here: it returns a bound that no disk reaches.
func halfOfTheDisk(dir string) (int64, error) { return 1 << 59, os.MkdirAll(dir, 0o750) }
