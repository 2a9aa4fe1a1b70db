package proctest

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel kill a process when this one ends for any reason.
func endWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
