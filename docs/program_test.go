package docs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// The first lines of Go are those of the package's example, which go test runs.
func TestTheReadmeBeginsWithTheExample(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, snippet, _ := strings.Cut(string(readme), "```go\n")
	snippet, _, _ = strings.Cut(snippet, "```\n")
	if strings.Count(snippet, "\n") < 8 {
		t.Fatalf("the README begins with %q", snippet)
	}
	for line := range strings.Lines(snippet) {
		if !strings.Contains(string(example), line) {
			t.Errorf("example_test.go has no line %q", line)
		}
	}
}

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
	program := buildElsewhere(t, dir, snippet, section)
	called := map[string]bool{}
	start := func() *proctest.Process {
		cmd := exec.Command(program)
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
				if job, call := strings.CutPrefix(line, "call "); call {
					called[job] = true
				}
				if done(line) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("not %s: %d jobs were called", what, len(called))
			}
		}
	}
	first := start()
	until(first, "all jobs are stored", func(line string) bool {
		return strings.HasPrefix(line, "job api:20 ")
	})
	first.Kill()
	until(start(), "the jobs of both have run", func(string) bool { return len(called) == 40 })
	for i := range 20 {
		if job := fmt.Sprintf("api:%d: hello %d", i+1, i); !called[job] {
			t.Errorf("no %s in %v", job, called)
		}
	}
}

// buildElsewhere builds a program in a module of its own, by the commands of the README. What "go
// mod tidy" adds comes from this module's files, because it needs the network.
func buildElsewhere(t *testing.T, dir, source, section string) (program string) {
	t.Helper()
	_, commands, _ := strings.Cut(section, "mkdir app && cd app && ")
	commands, _, found := strings.Cut(commands, "go mod tidy && go run .\n")
	root, err := filepath.Abs("..")
	if err != nil || !found {
		t.Fatal("the README has no such commands", err)
	}
	program = filepath.Join(dir, "program")
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("sh", "-ec", strings.ReplaceAll(commands, "../penstock", root)+`
sed -n '/^require/,/^)/p' `+root+`/go.mod >> go.mod
cp `+root+`/go.sum .
go mod edit -require github.com/penstock-mq/penstock@v0.0.0
go build -o `+program+` .`)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}
