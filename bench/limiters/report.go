package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
)

type table struct {
	part  string
	title string
	paper.Table
}

type report struct {
	machine string
	rounds  int
	length  time.Duration
	tables  []table
}

// peers named with their versions
var modules = []string{
	"golang.org/x/time", "github.com/sethvargo/go-limiter", "github.com/throttled/throttled/v2",
	"github.com/ulule/limiter/v3", "github.com/go-redis/redis_rate/v10",
	"github.com/redis/go-redis/v9",
}

func (r *report) print(w io.Writer) error {
	fmt.Fprintln(w, r.machine)
	for _, t := range r.tables {
		fmt.Fprintf(w, "\n%s\n\n", t.title)
		if err := t.Print(w); err != nil {
			return err
		}
	}
	return nil
}

//go:embed page.md
var page string

func (r *report) markdown() ([]byte, error) {
	tables := func(part string) string {
		var texts []string
		for _, t := range r.tables {
			if t.part == part {
				texts = append(texts, fmt.Sprintf("### %s\n\n%s\n", t.title, t.Markdown()))
			}
		}
		return strings.Join(texts, "\n")
	}
	made, err := template.New("page").Funcs(template.FuncMap{"tables": tables}).Parse(page)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = made.Execute(&b,
		map[string]any{"Machine": r.machine, "Rounds": r.rounds, "Length": r.length,
			"Turn": r.length * redisTurn})
	return b.Bytes(), err
}

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
