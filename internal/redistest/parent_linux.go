package redistest

import (
	"os/exec"
	"syscall"
)

// endWithParent has a process killed when this one dies, even if that is by a signal or a test's time-out.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
