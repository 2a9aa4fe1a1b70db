//go:build !unix || solaris || aix

package embedded

import "os"

// Without advisory locks, usually the port prevents a second server.
func tryLock(*os.File) error { return nil }
