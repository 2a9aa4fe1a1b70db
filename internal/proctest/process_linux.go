package proctest

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel kill a process when this one dies, even if that is by a signal or a
// test's time-out.
func endWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
