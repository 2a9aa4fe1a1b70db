//go:build !unix

package proctest

import "syscall"

// Nothing can be frozen here.
const freeze, thaw = syscall.Signal(0), syscall.Signal(0)
