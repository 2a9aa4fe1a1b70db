package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
)

// report is everything that was measured.
type report struct {
	options
	machine string
	others  string // load average before; empty: not known
	noPeer  string // why envoyproxy/ratelimit was not measured; empty: it was
	rows    []row
}

// row returns the row of a name.
func (r *report) row(name string) *row {
	for i := range r.rows {
		if r.rows[i].name == name {
			return &r.rows[i]
		}
	}
	return nil
}

// ratio returns the median over the rounds of a row's value divided by its base's: both are
// measured within seconds of each other in each round, and the machine's other load changes.
func (r *report) ratio(x *row, value func(s sample) float64) float64 {
	base := r.row(x.base)
	ratios := make([]float64, len(x.samples))
	for i := range ratios {
		ratios[i] = value(x.samples[i]) / value(base.samples[i])
	}
	return paper.Median(ratios)
}

func rate(s sample) float64 { return s.perSecond }
func p50(s sample) float64  { return float64(s.p50) }
func p99(s sample) float64  { return float64(s.p99) }

// verdict says whether a row reaches its goals; empty: it has none.
func (r *report) verdict(x *row) string {
	switch {
	case x.atLeast == 0 && x.mostP50 == 0 && x.mostP99 == 0:
		return ""
	case r.ratio(x, rate) < x.atLeast,
		x.mostP50 > 0 && r.ratio(x, p50) > x.mostP50,
		x.mostP99 > 0 && r.ratio(x, p99) > x.mostP99:
		return "MISSED"
	}
	return "ok"
}

func (r *report) table() paper.Table {
	t := paper.Table{{"", "what", "/s", "CPU µs", "p50 ms", "p99 ms", "beside", "rate", "p50",
		"p99", ""}}
	in := func(unit time.Duration, ns float64) string {
		return fmt.Sprintf("%.2f", ns/float64(unit))
	}
	for i := range r.rows {
		x := &r.rows[i]
		cells := []string{x.part, x.name, paper.Grouped(int(x.perSecond())),
			in(time.Microsecond, x.cpu()), in(time.Millisecond, x.p50()),
			in(time.Millisecond, x.p99()), x.base}
		for _, g := range []struct {
			value func(sample) float64
			goal  float64
			sign  string
		}{{rate, x.atLeast, "≥"}, {p50, x.mostP50, "≤"}, {p99, x.mostP99, "≤"}} {
			cell := ""
			if x.base != "" {
				cell = fmt.Sprintf("%.2f", r.ratio(x, g.value))
			}
			if g.goal > 0 {
				cell += fmt.Sprintf(" %s %g", g.sign, g.goal)
			}
			cells = append(cells, cell)
		}
		t.Add(append(cells, r.verdict(x))...)
	}
	return t
}

// print writes the table for a terminal.
func (r *report) print(w io.Writer) error {
	fmt.Fprintf(w, "%s, load average before: %s\n\n", r.machine, r.others)
	return r.table().Print(w)
}

//go:embed page.md
var page string

// write makes the page of what was measured.
func (r *report) write(dir string) error {
	made, err := template.New("page").Parse(page)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	err = made.Execute(&b, map[string]any{"Machine": r.machine, "Rounds": r.rounds,
		"Length": r.length, "Table": r.table().Markdown(), "Peer": peerModule, "NoPeer": r.noPeer,
		"Others":      r.others,
		"Connections": connections, "BatchJobs": batchJobs, "BatchClients": batchClients})
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "bench-service.md"), b.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
