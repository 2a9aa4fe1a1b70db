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

type report struct {
	options
	machine string
	others  string
	noPeer  string
	rows    []row
}

func (r *report) row(name string) *row {
	for i := range r.rows {
		if r.rows[i].name == name {
			return &r.rows[i]
		}
	}
	return nil
}

// ratio is the median over rounds of a row's value ÷ its base's, measured within seconds, because
// load changes.
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

// verdict reports whether a row reaches its goals, if it has some.
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

func (r *report) print(w io.Writer) error {
	fmt.Fprintf(w, "%s, load average before: %s\n\n", r.machine, r.others)
	return r.table().Print(w)
}

//go:embed page.md
var page string

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
