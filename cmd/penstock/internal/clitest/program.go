// Package clitest runs our command lines in tests.
package clitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// Program is a command line with its environment.
type Program struct {
	T    *testing.T
	Name string // as of proctest.Main
	Env  []string
}

// Result is what a run printed, and its exit status.
type Result struct {
	Out, Err string
	Status   int
}

// Command is a run that has not started.
func (p *Program) Command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.T.Context(), proctest.Program(p.Name), args...)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "PENSTOCK_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(append(cmd.Env, "TZ=UTC"), p.Env...)
	return cmd
}

// Feed runs the program with an input.
func (p *Program) Feed(input string, args ...string) Result {
	p.T.Helper()
	cmd := p.Command(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		p.T.Fatal(err)
	}
	return Result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// Run returns what a run prints, which ends with this status.
func (p *Program) Run(status int, args ...string) string {
	p.T.Helper()
	r := p.Feed("", args...)
	if r.Status != status {
		p.T.Fatalf("%s %q: status %d, want %d\n%s%s", p.Name, args, r.Status, status, r.Out, r.Err)
	}
	return r.Out + r.Err
}

// Says runs the program, which ends with this status, and wants words in what it prints.
func (p *Program) Says(status int, args []string, words ...string) {
	p.T.Helper()
	out := p.Run(status, args...)
	for _, word := range words {
		if !strings.Contains(out, word) {
			p.T.Errorf("%s %q says\n%s\nwant %q in it", p.Name, args, out, word)
		}
	}
}

// Until runs the program until it prints words.
func (p *Program) Until(words string, args ...string) {
	p.T.Helper()
	waittest.Until(p.T, fmt.Sprintf("%s %q says %q", p.Name, args, words), func() bool {
		return strings.Contains(p.Feed("", args...).Out, words)
	})
}

// Document decodes what a run with --json prints, which ends with this status.
func (p *Program) Document(status int, into any, args ...string) {
	p.T.Helper()
	r := p.Feed("", append(args, "--json")...)
	if err := json.Unmarshal([]byte(r.Out), into); err != nil || r.Status != status {
		p.T.Fatalf("%s %q --json: status %d, want %d, %v\n%s%s", p.Name, args, r.Status, status,
			err, r.Out, r.Err)
	}
}
