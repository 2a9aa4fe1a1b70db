package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/penstock-mq/penstock/internal/buildinfo"
	"github.com/penstock-mq/penstock/workers/whatif"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is an HTML report.
type page struct {
	Title, About, Version string
	Table                 [][]string
	Pictures              []template.HTML
	Policy                string // as YAML; empty: none
}

func (p page) write(file string) error {
	p.Version = buildinfo.Version()
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil {
		return err
	}
	return writeFile(file, out.Bytes())
}

func (p *page) add(c chart) error {
	svg, err := c.svg()
	// The plot library escapes the text in it.
	p.Pictures = append(p.Pictures, template.HTML(svg)) //nolint:gosec
	return err
}

func writePage(file string, t traced, all []*play, window time.Duration) error {
	p := page{Title: "Simulation", About: t.String(),
		Table: cells(playTable(all, whatif.Options{Window: window}))}
	for _, c := range chartsOf(all) {
		if err := p.add(c); err != nil {
			return err
		}
	}
	return p.write(file)
}

func chartsOf(all []*play) []chart {
	unit, name := timeUnit(all)
	rate := chart{title: "Requests, and starts", x: name, y: "per second"}
	refused := chart{title: "Refused", x: name, y: "per second"}
	depth := chart{title: "Jobs waiting and running, all buckets", x: name, y: "jobs"}
	wait := chart{title: "The longest wait", x: name, y: "s"}
	labels := titles(all)
	for i, p := range all {
		seconds := p.Width.Seconds()
		over := func(value func(whatif.Bin) float64) (points plotter.XYs) {
			for j, b := range p.Bins {
				points = append(points, plotter.XY{
					X: float64(j) * float64(p.Width) / float64(unit), Y: value(b)})
			}
			return points
		}
		add := func(c *chart, name string, value func(whatif.Bin) float64) {
			c.curves = append(c.curves,
				curve{name: name, color: ink(i), points: over(value), steps: true})
		}
		if i == 0 {
			rate.curves = append(rate.curves, curve{name: "requests", color: grey, steps: true,
				points: over(func(b whatif.Bin) float64 { return float64(b.Requests) / seconds })})
		}
		add(&rate, labels[i],
			func(b whatif.Bin) float64 { return float64(b.Started) / seconds })
		add(&refused, labels[i],
			func(b whatif.Bin) float64 { return float64(b.Refused) / seconds })
		add(&depth, labels[i], func(b whatif.Bin) float64 { return float64(b.Depth) })
		add(&wait, labels[i], func(b whatif.Bin) float64 { return b.Wait.Seconds() })
	}
	return []chart{rate, refused, depth, wait}
}

// timeUnit makes the longest play tens or hundreds of units long.
func timeUnit(all []*play) (unit time.Duration, name string) {
	longest := 0.0
	for _, p := range all {
		longest = math.Max(longest, float64(p.Width)*float64(len(p.Bins)))
	}
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "days"}, {time.Hour, "hours"}, {time.Minute, "minutes"}} {
		if longest > 4*float64(u.unit) {
			return u.unit, fmt.Sprintf("%s since the first request", u.name)
		}
	}
	return time.Second, "seconds since the first request"
}
