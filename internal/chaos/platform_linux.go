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

const inOwnNamespace = "CHAOS_NAMESPACE"

func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func mountDisk(dir string, size int) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		return fmt.Errorf("mount a small disk at %s: %w", dir, err)
	}
	return nil
}

// ownNamespace runs this program again in a private mount namespace, for ordinary users within a
// user namespace. It returns the exit status, or whether this is that program.
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
				_ = cmd.Process.Signal(s)
			}
		}()
		_ = cmd.Wait()
		return cmd.ProcessState.ExitCode(), true, false
	}
	return 0, false, false
}
