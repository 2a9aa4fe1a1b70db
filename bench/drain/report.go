package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
)

//go:embed page.md
var explained string

type figure struct {
	part, what string
	value      float64
	unit       string
	goal       float64
	direction  int // of the goal: 1 at least, -1 at most
}

func milliseconds(part, what string, d time.Duration) figure {
	return figure{part: part, what: what, value: float64(d) / 1e6, unit: "ms"}
}

func perSecond(part, what string, n float64) figure {
	return figure{part: part, what: what, value: n, unit: "/s"}
}

func processorTime(part, what string, used time.Duration, jobs int) figure {
	return figure{part: part, what: what + "processor time of server and drainer per 1000 jobs",
		value: used.Seconds() * 1e6 / float64(jobs), unit: "ms"}
}

func (f figure) atLeast(goal float64) figure { f.goal, f.direction = goal, 1; return f }
func (f figure) atMost(goal float64) figure  { f.goal, f.direction = goal, -1; return f }

func (f figure) must() string {
	switch f.direction {
	case 1:
		return "≥ " + number(f.goal)
	case -1:
		return "≤ " + number(f.goal)
	}
	return ""
}

func (f figure) verdict() string {
	switch {
	case f.direction == 0:
		return ""
	case float64(f.direction)*(f.value-f.goal) >= 0:
		return "ok"
	}
	return "MISSED"
}

func number(x float64) string {
	switch abs := max(x, -x); {
	case abs >= 1000:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case abs >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 3, 64)
}

type report struct {
	machine string
	name    string
	command string // of make; its first word is the heading in page.md
	rows    []row
	figures []figure
}

// headings for people and programs
var rowColumns = []struct {
	heading, name string
	value         func(row) string
}{
	{"outflow", "outflow_per_second", func(r row) string { return strconv.Itoa(r.rate) }},
	{"peak", "peak_per_second", func(r row) string { return given(r.peak) }},
	{"burst", "burst", func(r row) string { return given(r.burst) }},
	{"beside", "beside", func(r row) string {
		if r.busy {
			return "target, neighbour"
		}
		return ""
	}},
	{"drainers", "drainers", func(r row) string { return strconv.Itoa(r.drainers) }},
	{"measured /s", "measured_per_second", func(r row) string {
		return fmt.Sprintf("%.3f", r.pace.measured)
	}},
	{"error %", "error_percent", func(r row) string {
		return fmt.Sprintf("%+.3f", r.pace.err(float64(r.rate)))
	}},
	{"net of stalls %", "error_net_percent", func(r row) string {
		return fmt.Sprintf("%+.3f", r.net)
	}},
	{"most in 1 s", "most_in_1s", func(r row) string { return strconv.Itoa(r.in1s) }},
	{"may", "may_in_1s", func(r row) string { return strconv.Itoa(r.mostIn1s()) }},
	{"in 100 ms", "most_in_100ms", func(r row) string { return strconv.Itoa(r.in100) }},
	{"gap p50 ms", "gap_p50_ms", func(r row) string { return ms(r.gap[0]) }},
	{"p99", "gap_p99_ms", func(r row) string { return ms(r.gap[1]) }},
	{"max", "gap_max_ms", func(r row) string { return ms(r.gap[2]) }},
	{"late p50 ms", "late_p50_ms", func(r row) string { return ms(r.late[0]) }},
	{"p99", "late_p99_ms", func(r row) string { return ms(r.late[1]) }},
	{"returned %", "returned_percent", func(r row) string {
		return fmt.Sprintf("%.2f", 100*r.returned)
	}},
	{"CPU s/1000", "cpu_seconds_per_1000", func(r row) string {
		if r.cpu < 0 {
			return ""
		}
		return fmt.Sprintf("%.3f", r.cpu.Seconds())
	}},
	{"bystander gap p99 ms", "bystander_gap_p99_ms", func(r row) string {
		return ms(r.bystanderGap)
	}},
	{"longest stall ms", "bystander_stall_ms", func(r row) string { return ms(r.stall) }},
	{"stalled %", "bystander_stalled_percent", func(r row) string {
		return fmt.Sprintf("%.2f", 100*r.stalled)
	}},
	{"", "verdict", func(r row) string {
		if missed := r.missed(); len(missed) > 0 {
			return "MISSED: " + strings.Join(missed, ", ")
		}
		return "ok"
	}},
}

func given(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.3f", float64(d)/1e6) }

func (r *report) rowTable(heading func(i int) string) paper.Table {
	lines := paper.Table{nil}
	for i := range rowColumns {
		lines[0] = append(lines[0], heading(i))
	}
	for _, row := range r.rows {
		var line []string
		for _, column := range rowColumns {
			line = append(line, column.value(row))
		}
		lines = append(lines, line)
	}
	return lines
}

func (r *report) figureTable() paper.Table {
	lines := paper.Table{{"part", "what", "measured", "unit", "must be", "verdict"}}
	for _, f := range r.figures {
		lines = append(lines,
			[]string{f.part, f.what, number(f.value), f.unit, f.must(), f.verdict()})
	}
	return lines
}

func people(i int) string   { return rowColumns[i].heading }
func programs(i int) string { return rowColumns[i].name }

func (r *report) print(w io.Writer) error {
	fmt.Fprintln(w, r.machine)
	for _, table := range []paper.Table{r.rowTable(people), r.figureTable()} {
		if len(table) == 1 {
			continue
		}
		fmt.Fprintln(w)
		if err := table.Print(w); err != nil {
			return err
		}
	}
	return nil
}

func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of the report: %w", err)
	}
	name := func(ending string) string { return filepath.Join(dir, r.name+ending) }
	err := os.WriteFile(name("-table.md"), r.markdown(), 0o644)
	if len(r.rows) > 0 {
		err = errors.Join(err, r.draw(name(".svg")))
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func (r *report) writeData(dir string) error {
	return errors.Join(r.rowTable(programs).WriteCSV(dir, r.name+".csv"),
		r.figureTable().WriteCSV(dir, r.name+"-figures.csv"))
}

func (r *report) markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Made by `make %s` on %s.", r.command, r.machine)
	if r.command == "bench-drain" {
		fmt.Fprintf(&b, "\n\n%s", explained)
	} else {
		b.WriteString(" [What the columns mean](benchmarks.md#bench-depth).\n")
	}
	for _, table := range []paper.Table{r.rowTable(people), r.figureTable()} {
		if len(table) == 1 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", table.Markdown())
	}
	return b.Bytes()
}
