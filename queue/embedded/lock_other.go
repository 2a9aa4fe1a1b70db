//go:build !unix || solaris || aix

package embedded

import "os"

// There are no advisory locks; usually the port keeps a second server out.
func tryLock(*os.File) error { return nil }
