//go:build !unix || solaris || illumos || aix

package embedded

import "os"

// Not supported here: no disk reaches the bound.
func halfOfTheDisk(dir string) (int64, error) { return 1 << 59, os.MkdirAll(dir, 0o750) }
