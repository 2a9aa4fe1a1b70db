//go:build !unix || solaris || aix

package embedded

import "os"

// tryLock does nothing where the standard library has no advisory locks; the port usually keeps a
// second server out.
func tryLock(*os.File) error { return nil }
