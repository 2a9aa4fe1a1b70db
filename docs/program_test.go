package docs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/proctest"
	"github.com/penstock-mq/penstock/internal/waittest"
)

const around = `package main

import (
	"context"
	"fmt"
	"os"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

func call(_ context.Context, body []byte) error {
	fmt.Printf("call %%s\n", body)
	return nil
}

func main() {
	if err := run(context.Background(), []byte("first")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, body []byte) error {
%s
	if err != nil {
		return err
	}
	fmt.Println("ready", "verdict="+ticket.Verdict)
	for i := range 40 {
		if len(os.Args) < 2 {
			break
		}
		body := fmt.Appendf(nil, "%%d", i)
		if _, err := p.Submit(ctx, penstock.Job{Policy: "api", Key: "customer-1", Body: body}); err != nil {
			return err
		}
	}
	fmt.Println("submitted")
	select {}
}
`

func TestTheProgramOfTheReadmeKeepsItsJobs(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "### All of it in a Go program\n")
	_, snippet, _ := strings.Cut(section, "```go\n")
	snippet, _, found := strings.Cut(snippet, "```\n")
	if !found {
		t.Fatal("the README has no such program")
	}
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, fmt.Appendf(nil, around, snippet), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	called := map[string]bool{}
	start := func(args ...string) *proctest.Process {
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		return proctest.Start(t, cmd)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience())
	defer cancel()
	until := func(p *proctest.Process, what string, done func(line string) bool) {
		t.Helper()
		for {
			select {
			case line, open := <-p.Lines:
				if !open {
					t.Fatalf("the program has ended before %s", what)
				}
				if body, call := strings.CutPrefix(line, "call "); call {
					called[body] = true
				}
				if done(line) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("not %s: %d jobs were called", what, len(called))
			}
		}
	}
	first := start("submit")
	until(first, "all jobs are stored", func(line string) bool { return line == "submitted" })
	if len(called) > 35 {
		t.Fatalf("%d of 40 jobs had started already", len(called))
	}
	first.Kill()
	until(start(), "all jobs were called", func(string) bool { return len(called) == 41 })
}
