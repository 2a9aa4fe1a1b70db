//go:build !unix || solaris || illumos || aix

package embedded

import "os"

// halfOfTheDisk cannot be asked for here: a bound that no disk reaches stands for it.
func halfOfTheDisk(dir string) (int64, error) { return 1 << 59, os.MkdirAll(dir, 0o750) }
