//go:build !unix

package proctest

import "syscall"

// This system cannot freeze processes.
const freeze, thaw = syscall.Signal(0), syscall.Signal(0)
