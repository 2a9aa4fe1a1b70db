// Package proctest runs programs as processes, for tests and for other programs. Where the system
// permits, no process outlives its parent.
package proctest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// Patience bounds the time to become ready, and to end.
const Patience = 60 * time.Second

// unread is the number of unread lines that a process may have before it blocks.
const unread = 1 << 16

// Process is a program started by this one. Only such processes are signalled.
type Process struct {
	Cmd    *exec.Cmd
	Log    *waittest.Log   // standard error
	Lines  <-chan string   // standard output, without the ready line; closed at the end
	Exited <-chan struct{} // closed when it has ended and Cmd.ProcessState is set

	ready <-chan string
}

// Start starts a command for a test. It is killed when the test ends, and its log is shown if the
// test failed.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p, err := Open(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		go func() {
			for range p.Lines {
			}
		}()
		p.Kill()
		if t.Failed() {
			t.Logf("log of %s, %s:\n%s", p.name(), cmd.ProcessState, p.Log)
		}
	})
	return p
}

// Open is [Start] for programs and TestMain. The caller must Kill the process. A command with its
// own standard output or error has no Lines or Log.
func Open(cmd *exec.Cmd) (*Process, error) {
	lines, ready, exited := make(chan string, unread), make(chan string, 1), make(chan struct{})
	p := &Process{Cmd: cmd, Log: new(waittest.Log), Lines: lines, Exited: exited, ready: ready}
	if cmd.Stderr == nil {
		cmd.Stderr = p.Log
	}
	output := bufio.NewScanner(strings.NewReader(""))
	if cmd.Stdout == nil {
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", p.name(), err)
		}
		output = bufio.NewScanner(pipe)
		output.Buffer(nil, 1<<20)
	}
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name(), err)
	}
	go func() {
		defer close(exited)
		for told := false; output.Scan(); {
			if line := output.Text(); !told && strings.HasPrefix(line, "ready") {
				told = true
				ready <- line
			} else {
				lines <- line
			}
		}
		close(lines)
		_ = cmd.Wait()
	}()
	return p, nil
}

func (p *Process) name() string { return filepath.Base(p.Cmd.Path) }

// Ready waits for the line beginning with "ready", and returns its key=value words.
func (p *Process) Ready(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	select {
	case line := <-p.ready:
		words := map[string]string{}
		for word := range strings.FieldsSeq(line) {
			if key, value, ok := strings.Cut(word, "="); ok {
				words[key] = value
			}
		}
		return words, nil
	case <-p.Exited:
		return nil, fmt.Errorf("%s is not ready: %s\n%s", p.name(), p.Cmd.ProcessState, p.Log)
	case <-ctx.Done():
		return nil, fmt.Errorf("%s is not ready: %w\n%s", p.name(), ctx.Err(), p.Log)
	}
}

// Signal sends a signal, also to an ended process.
func (p *Process) Signal(s os.Signal) { _ = p.Cmd.Process.Signal(s) }

// Freeze stops the process like a hanging machine: its connections stay open but do not answer.
func (p *Process) Freeze() { p.Signal(freeze) }

// Thaw resumes a frozen process.
func (p *Process) Thaw() { p.Signal(thaw) }

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Exited
}

// Stop sends SIGTERM, and waits like [Process.End].
func (p *Process) Stop() error {
	p.Signal(syscall.SIGTERM)
	return p.End()
}

// End waits for the end of the process, and kills it after a time. It returns an error unless the
// status is 0.
func (p *Process) End() error {
	select {
	case <-p.Exited:
	case <-time.After(Patience):
		p.Kill()
		return fmt.Errorf("%s did not end within %v\n%s", p.name(), Patience, p.Log)
	}
	if !p.Cmd.ProcessState.Success() {
		return fmt.Errorf("%s: %s", p.name(), p.Cmd.ProcessState)
	}
	return nil
}

// programs is the variable with the directory of programs for a test's children. It does not begin
// with PENSTOCK_, which programs take for settings.
const programs = "PROCTEST_PROGRAMS"

// Main builds programs by arguments of go build, runs the tests and exits. It is the last call of a
// TestMain. Programs are named by their directory or path.
func Main(m *testing.M, build ...string) {
	os.Exit(func() int {
		if os.Getenv(programs) != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "penstock-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := buildInto(dir, build); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if err := os.Setenv(programs, dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

func buildInto(dir string, build []string) error {
	var flags []string
	for _, program := range build {
		within := "."
		switch {
		case strings.HasPrefix(program, "-"):
			flags = append(flags, program)
			continue
		case strings.HasPrefix(program, "."):
			within, program = program, "."
		}
		args := slices.Concat([]string{"build", "-C", within, "-o", dir + "/"}, flags,
			[]string{program})
		command := exec.Command("go", args...)
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", command, err, out)
		}
	}
	return nil
}

// Raced adds to arguments for [Main] that the programs look for data races, if the tests do.
func Raced(build ...string) []string {
	if raced {
		return append([]string{"-race"}, build...)
	}
	return build
}

// Program returns the path of a program built by [Main].
func Program(name string) string { return filepath.Join(os.Getenv(programs), name) }

// FreeAddress returns an unused address of 127.0.0.1 outside the system's range of dynamic ports,
// which a server can bind repeatedly.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// Ports below the dynamic ports of systems, and the ports of make chaos. Processes start at
// different ports and do not reuse one immediately.
const firstPort, ports = 10000, 10000

var nextPort atomic.Int64

func init() { nextPort.Store(rand.Int64N(ports)) }

// FreePort returns the port of a [FreeAddress].
func FreePort() (int, error) {
	for range ports {
		port := firstPort + int(nextPort.Add(1)%ports)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port")
}
