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

// ratio returns the median over the rounds of what a row does compared with its base: both are
// measured within seconds of each other in each round, and what else the machine does changes.
func (r *report) ratio(x *row) float64 {
	base := r.row(x.base)
	ratios := make([]float64, len(x.samples))
	for i := range ratios {
		ratios[i] = x.samples[i].perSecond / base.samples[i].perSecond
	}
	return paper.Median(ratios)
}

// p50Ratio is ratio for the p50 and the row that it is compared with.
func (r *report) p50Ratio(x *row) float64 {
	like := r.row(x.likeP50)
	ratios := make([]float64, len(x.samples))
	for i := range ratios {
		ratios[i] = float64(x.samples[i].p50) / float64(like.samples[i].p50)
	}
	return paper.Median(ratios)
}

// verdict says whether a row reaches its goals; empty: it has none.
func (r *report) verdict(x *row) string {
	switch {
	case x.atLeast == 0:
		return ""
	case r.ratio(x) < x.atLeast && (x.enough == 0 || x.perSecond() < x.enough),
		x.likeP50 != "" && r.p50Ratio(x) > timesP50,
		x.lessP99 && x.p99() >= r.row(x.base).p99():
		return "MISSED"
	}
	return "ok"
}

func (r *report) table() paper.Table {
	t := paper.Table{{"", "what", "/s", "p50 ms", "p99 ms", "ratio", "must be", "p50 ratio", ""}}
	ms := func(ns float64) string { return fmt.Sprintf("%.2f", ns/float64(time.Millisecond)) }
	for i := range r.rows {
		x := &r.rows[i]
		ratio, goal, p50 := "", "", ""
		if x.base != "" {
			ratio = fmt.Sprintf("%.2f", r.ratio(x))
		}
		if x.atLeast > 0 {
			goal = fmt.Sprintf("≥ %.2f", x.atLeast)
		}
		if x.likeP50 != "" {
			p50 = fmt.Sprintf("%.2f", r.p50Ratio(x))
		}
		t.Add(x.part, x.name, paper.Grouped(int(x.perSecond())), ms(x.p50()), ms(x.p99()), ratio,
			goal, p50, r.verdict(x))
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
