// Package proctest runs programs as processes of their own: for tests, and for programs that try
// others out. Where the system can see to it, no process outlives the one that started it, whatever
// becomes of that.
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

	"github.com/penstock-mq/penstock/internal/waittest"
)

// Patience is how long a process may take for what takes a moment: to be ready, or to end.
const Patience = 60 * time.Second

// unread is how many lines may wait to be read before their process is held up, also at its end.
const unread = 1 << 16

// Process is a program that this one has started. Nothing else is ever signalled.
type Process struct {
	Cmd    *exec.Cmd
	Log    *waittest.Log   // its standard error
	Lines  <-chan string   // its standard output, without the ready line; closed at its end
	Exited <-chan struct{} // closed when it has ended, and Cmd.ProcessState is known

	ready <-chan string
}

// Start starts a command for a test. It is killed when the test ends; if that has failed, the log
// is shown.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p, err := Open(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		go func() {
			for range p.Lines { // what nobody has read must not keep it
			}
		}()
		p.Kill()
		if t.Failed() {
			t.Logf("log of %s, %s:\n%s", p.name(), cmd.ProcessState, p.Log)
		}
	})
	return p
}

// Open is [Start] for programs, and for a TestMain. Its caller must Kill the process. A command
// with a standard output or error of its own has no Lines or Log.
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
		_ = cmd.Wait() // its status is read from ProcessState
	}()
	return p, nil
}

func (p *Process) name() string { return filepath.Base(p.Cmd.Path) }

// Ready waits for the line that begins with "ready", and returns its words of the form key=value.
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

// Signal sends the process a signal. It may have ended.
func (p *Process) Signal(s os.Signal) { _ = p.Cmd.Process.Signal(s) }

// Freeze stops the process as a hanging machine would: connections stay open, nothing is answered.
func (p *Process) Freeze() { p.Signal(freeze) }

// Thaw lets a frozen process go on.
func (p *Process) Thaw() { p.Signal(thaw) }

// Kill ends the process with SIGKILL, if it still runs, and waits for that.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // its only error is that the process has ended
	<-p.Exited
}

// Stop asks the process to end, and waits for that as [Process.End] does.
func (p *Process) Stop() error {
	p.Signal(syscall.SIGTERM)
	return p.End()
}

// End waits for the end of the process, and kills it when that takes too long. It returns an error
// unless the process ended with status 0.
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

// programs is the environment variable that tells the children of a test where its programs are,
// which take those that begin with PENSTOCK_ for settings.
const programs = "PROCTEST_PROGRAMS"

// Main builds programs, given as arguments of go build, runs the tests and exits. A TestMain ends
// with it. Programs are named by their directory, which may be in another module, or by their path.
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

// buildInto builds programs into a directory.
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

// Program returns the path of a program that [Main] has built.
func Program(name string) string { return filepath.Join(os.Getenv(programs), name) }

// FreeAddress returns an address of 127.0.0.1 that nobody listens on, and that the system gives to
// nobody who leaves the choice to it: a server finds it free, again and again.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// Ports below those that systems choose from, and those that make chaos takes. Processes begin far
// from one another, and none takes a port twice in a row.
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
