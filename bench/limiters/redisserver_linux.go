package main

import (
	"os/exec"
	"syscall"
)

// endWithParent has a process killed when this one dies, even if that is by a signal.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
