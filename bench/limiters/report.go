package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"
)

// table is a part of the report.
type table struct {
	part  string // that measured it
	title string
	lines [][]string // the first is the heading
}

func (t *table) add(cells ...string) { t.lines = append(t.lines, cells) }

// markdown is the table for a page.
func (t table) markdown() string {
	var b strings.Builder
	for i, line := range t.lines {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "%s|\n", strings.Repeat("|---", len(line)))
		}
	}
	return b.String()
}

// report is everything that was measured.
type report struct {
	machine string
	rounds  int
	length  time.Duration
	tables  []table
}

// modules are the peers, whose versions the report names.
var modules = []string{
	"golang.org/x/time", "github.com/sethvargo/go-limiter", "github.com/throttled/throttled/v2",
	"github.com/ulule/limiter/v3", "github.com/go-redis/redis_rate/v10", "github.com/redis/go-redis/v9",
}

// describeMachine says on what, and of what, the numbers were made.
func describeMachine() string {
	cpu := "processor not known"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	text := fmt.Sprintf("%d × %s, %s/%s, %s", runtime.NumCPU(), cpu, runtime.GOOS, runtime.GOARCH, runtime.Version())
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, path := range modules {
			for _, m := range build.Deps {
				if m.Path == path {
					text += fmt.Sprintf(", %s %s", path, m.Version)
				}
			}
		}
	}
	return text
}

// print writes the tables for a terminal.
func (r *report) print(w io.Writer) error {
	fmt.Fprintln(w, r.machine)
	for _, t := range r.tables {
		fmt.Fprintf(w, "\n%s\n\n", t.title)
		tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, line := range t.lines {
			fmt.Fprintln(tab, strings.Join(line, "\t"))
		}
		if err := tab.Flush(); err != nil {
			return err
		}
	}
	return nil
}

//go:embed page.md
var page string

// markdown is the page: what was done, and the tables of each part where they belong.
func (r *report) markdown() ([]byte, error) {
	tables := func(part string) string {
		var texts []string
		for _, t := range r.tables {
			if t.part == part {
				texts = append(texts, fmt.Sprintf("### %s\n\n%s", t.title, t.markdown()))
			}
		}
		return strings.Join(texts, "\n")
	}
	made, err := template.New("page").Funcs(template.FuncMap{"tables": tables}).Parse(page)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = made.Execute(&b, map[string]any{"Machine": r.machine, "Rounds": r.rounds, "Length": r.length,
		"Turn": r.length * redisTurn})
	return b.Bytes(), err
}

// write makes the page of what was measured.
func (r *report) write(dir string) error {
	text, err := r.markdown()
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "bench-limiters.md"), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
