package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience is how long a process may take to be ready, or to stop.
const patience = 15 * time.Second

// process is a program that the demo started. Nothing else is ever signalled.
type process struct {
	name  string
	ready map[string]string // of its ready line: http=… nats=…
	log   lockedBuffer

	cmd    *exec.Cmd
	exited chan struct{}
}

// start starts a program and waits for its ready line. The program is told to stop when ctx ends.
func start(ctx context.Context, name, program string, args ...string) (*process, error) {
	p := &process{name: name, ready: map[string]string{}, exited: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, program, args...)
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 5 * time.Second
	p.cmd.Stderr = &p.log
	lines, stdout := io.Pipe()
	p.cmd.Stdout = stdout
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // its status is read from ProcessState
		_ = stdout.Close()
		close(p.exited)
	}()

	first := make(chan string, 1)
	go func() {
		scanner := bufio.NewScanner(lines)
		for scanner.Scan() {
			select {
			case first <- scanner.Text():
			default:
			}
		}
	}()
	select {
	case line := <-first:
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "ready" {
			p.kill()
			return nil, fmt.Errorf("start %s: it said %q instead of ready", name, line)
		}
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, "=")
			p.ready[key] = value
		}
		return p, nil
	case <-p.exited:
		return nil, fmt.Errorf("start %s: %s\n%s", name, p.cmd.ProcessState, p.log.String())
	case <-time.After(patience):
		p.kill()
		return nil, fmt.Errorf("start %s: not ready within %v\n%s", name, patience, p.log.String())
	case <-ctx.Done():
		p.kill()
		return nil, ctx.Err()
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the process with SIGKILL, if it still runs, and waits for that.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // its only error is that the process has ended
	<-p.exited
}

// stop asks the process to stop and waits until it has.
func (p *process) stop() error {
	select {
	case <-p.exited:
	default:
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // its only error is that the process has ended
	}
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.kill()
		return fmt.Errorf("%s did not stop within %v", p.name, patience)
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("%s: %s", p.name, p.cmd.ProcessState)
	}
	return nil
}

// lockedBuffer is a process's log, which may be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

// Write implements [io.Writer].
func (b *lockedBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(data)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}
