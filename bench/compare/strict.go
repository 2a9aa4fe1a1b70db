package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/penstock-mq/penstock/bench/paper"
)

// latencies are how long the strict target takes for a request.
var latencies = []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond,
	500 * time.Millisecond}

const (
	strictSlots = 30 // enough for the limit at the longest latency
	strictJobs  = 3000
	strictFor   = 15 * time.Second
	// settled is after the first start: leases of the former crew have expired, and units counted.
	settled = 5 * time.Second
)

// strictRow is what a system did at the strict target, one cell per latency.
type strictRow struct {
	name, setting, version string
	cells                  []strictCell
}

type strictCell struct {
	perSecond float64 // accepted
	accepted  int
	refused   int
}

func formula(latency time.Duration) float64 { return limit / (time.Second + latency).Seconds() }

func runStrict(ctx context.Context, dir string, o options) error {
	slots = strictSlots
	rule := fmt.Sprintf("outflow: %d/s, limits: [{algorithm: sliding_log, limit: %[1]d, window: 1s",
		limit)
	all := append([]system{&penstock{dir: dir, rule: rule + ", count_from: answer}]"},
		&penstock{dir: dir, rule: rule + "}]"}}, systems(dir)[1:]...)
	var rows []strictRow
	for _, s := range all {
		if !o.only.MatchString(s.name()) {
			continue
		}
		row, err := measureStrict(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
		rows = append(rows, row)
	}
	if err := strictTable(rows).Print(os.Stdout); err != nil || o.out == "" {
		return err
	}
	return writeStrict(o.out, rows)
}

func measureStrict(ctx context.Context, s system) (strictRow, error) {
	say("%s, %s", s.name(), s.setting())
	defer s.close()
	if err := s.open(ctx); err != nil {
		return strictRow{}, err
	}
	row := strictRow{name: s.name(), setting: s.setting(), version: s.version()}
	for _, latency := range latencies {
		cell, err := strictly(ctx, s, latency)
		if err != nil {
			return row, err
		}
		say("at %v: %.1f/s, %d refused", latency, cell.perSecond, cell.refused)
		row.cells = append(row.cells, cell)
	}
	return row, nil
}

// strictly lets a crew work at a target with a latency, which knows nothing of former ones.
func strictly(ctx context.Context, s system, latency time.Duration) (c strictCell, err error) {
	t, err := newTarget()
	if err != nil {
		return c, err
	}
	defer t.close()
	t.strict = true
	t.begin(latency)
	if err := s.pause(ctx); err != nil {
		return c, err
	}
	if _, err := s.add(ctx, strictJobs, false); err != nil {
		return c, err
	}
	all, err := hire(ctx, s, t.url)
	if err != nil {
		return c, err
	}
	defer dismiss(all)
	if err := s.resume(ctx); err != nil {
		return c, err
	}
	var from time.Duration
	passed := func(of time.Duration) func() (bool, error) {
		return func() (bool, error) {
			all := t.arrived()
			from = time.Since(t.began)
			return len(all) > 0 && from-all[0].at > of, nil
		}
	}
	if ok, err := until(ctx, time.Minute, passed(settled)); err != nil || !ok {
		return c, fmt.Errorf("no start: %w", err)
	}
	refused, begin := t.refusals(), from
	if _, err := until(ctx, time.Minute, passed(settled+strictFor)); err != nil {
		return c, err
	}
	c.refused = t.refusals() - refused
	var seen []arrival
	for _, a := range t.arrived() {
		if a.at >= begin {
			seen = append(seen, a)
		}
	}
	c.accepted = len(seen)
	if whole := (len(seen) - 1) / limit * limit; whole > 0 { // windows' starts may come together
		c.perSecond = perSecond(seen[:whole+1])
	}
	return c, nil
}

func (t *target) refusals() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused
}

func strictTable(rows []strictRow) paper.Table {
	head := []string{"", "limit"}
	for _, l := range latencies {
		head = append(head, fmt.Sprintf("at %v: accepted/s", l), "429s")
	}
	t := paper.Table{head}
	line := []string{"N ÷ (T + latency)", ""}
	for _, l := range latencies {
		line = append(line, fmt.Sprintf("%.1f", formula(l)), "")
	}
	t.Add(line...)
	for _, r := range rows {
		line := []string{r.name, r.setting}
		for i, c := range r.cells {
			line = append(line, fmt.Sprintf("%.1f (%+.1f %%)", c.perSecond,
				100*(c.perSecond/formula(latencies[i])-1)), paper.Grouped(c.refused))
		}
		t.Add(line...)
	}
	return t
}

//go:embed strict/page.md
var strictPage string

func writeStrict(dir string, rows []strictRow) error {
	made, err := template.New("page").Parse(strictPage)
	if err != nil {
		return err
	}
	versions := ""
	for i, r := range rows {
		if r.name != "Penstock" && (i == 0 || rows[i-1].name != r.name) {
			versions += fmt.Sprintf(", %s %s", r.name, r.version)
		}
	}
	var b bytes.Buffer
	if err := made.Execute(&b, map[string]any{
		"Machine":  paper.Machine("github.com/nats-io/nats-server/v2"),
		"Versions": versions, "Table": strictTable(rows).Markdown(), "Limit": limit, "Crew": crew,
		"Slots": strictSlots, "For": strictFor, "Each": limit / crew,
	}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "compare-strict.md"), b.Bytes(), 0o644); err != nil {
		return err
	}
	return drawStrict(filepath.Join(dir, "compare-strict.svg"), rows)
}

var strictColors = []uint32{0x1f4e9c, 0x7fa8e0, 0xc0392b, 0xe67e22, 0x16a085, 0x8e44ad}

// drawStrict draws what the target accepted and refused, by its latency.
func drawStrict(file string, rows []strictRow) error {
	accepted := paper.NewPlot(11, fmt.Sprintf("accepted in a second, of %d", limit),
		"latency", "")
	refused := paper.NewPlot(11, "429s in a minute", "latency", "")
	var ideal plotter.XYs
	var names []string
	for i, l := range latencies {
		ideal = append(ideal, plotter.XY{X: float64(i), Y: formula(l)})
		names = append(names, l.String())
	}
	line, err := plotter.NewLine(ideal)
	if err != nil {
		return err
	}
	line.Color, line.Dashes = paper.Ideal, paper.Dashes(3, 2)
	accepted.Add(line)
	refused.Legend.Add("N ÷ (T + latency)", line)
	for i, r := range rows {
		if err := drawRow(accepted, refused, r, strictColors[i%len(strictColors)]); err != nil {
			return err
		}
	}
	refused.Legend.TextStyle.Font.Size = vg.Points(8)
	for _, p := range []*plot.Plot{accepted, refused} {
		p.NominalX(names...)
		p.X.Tick.Label.Font.Size, p.Y.Min = vg.Points(8), 0
	}
	return paper.WriteSVG(file, [][]*plot.Plot{{accepted}, {refused}}, 20*vg.Centimeter,
		6*vg.Centimeter, vg.Centimeter/2)
}

func drawRow(accepted, refused *plot.Plot, r strictRow, color uint32) error {
	var yes, no plotter.XYs
	for i, c := range r.cells {
		yes = append(yes, plotter.XY{X: float64(i), Y: c.perSecond})
		no = append(no, plotter.XY{X: float64(i),
			Y: float64(c.refused) * time.Minute.Seconds() / strictFor.Seconds()})
	}
	for _, part := range []struct {
		of *plot.Plot
		at plotter.XYs
	}{{accepted, yes}, {refused, no}} {
		line, points, err := plotter.NewLinePoints(part.at)
		if err != nil {
			return err
		}
		line.Color, points.Color = paper.RGB(color), paper.RGB(color)
		line.Width = vg.Points(1.5)
		part.of.Add(line, points)
		if part.of == refused {
			part.of.Legend.Add(r.name+", "+short(r.setting), line)
		}
	}
	return nil
}
