//go:build unix

package proctest

import "syscall"

const freeze, thaw = syscall.SIGSTOP, syscall.SIGCONT
