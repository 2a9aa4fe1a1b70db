package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// inOwnNamespace is set for a process in a private mount namespace.
const inOwnNamespace = "CHAOS_NAMESPACE"

// endWithParent makes the kernel kill a process when this one dies.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// mountDisk mounts a small disk for this process and its children.
func mountDisk(dir string, size int) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		return fmt.Errorf("mount a small disk at %s: %w", dir, err)
	}
	return nil
}

// ownNamespace runs this program again in a private mount namespace, with a user namespace for
// ordinary users. It returns the exit status, or whether this is that program; neither if
// namespaces are unavailable.
func ownNamespace() (status int, ran, isIt bool) {
	if os.Getenv(inOwnNamespace) != "" {
		return 0, false, syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "") == nil
	}
	self, err := os.Executable()
	if err != nil {
		return 0, false, false
	}
	runtime.LockOSThread() // its end would be the child's
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	for _, user := range []bool{false, true} {
		cmd := exec.Command(self, os.Args[1:]...)
		cmd.Env = append(os.Environ(), inOwnNamespace+"=1")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS,
			Pdeathsig: syscall.SIGKILL}
		if user {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0,
				HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0,
				HostID: os.Getgid(), Size: 1}}
		}
		err := cmd.Start()
		if errors.Is(err, syscall.EPERM) {
			continue
		}
		if err != nil {
			return 0, false, false
		}
		go func() {
			for s := range signals {
				_ = cmd.Process.Signal(s) // fails only for an ended process
			}
		}()
		_ = cmd.Wait() // ProcessState has its status
		return cmd.ProcessState.ExitCode(), true, false
	}
	return 0, false, false
}
