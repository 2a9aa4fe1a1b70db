package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"time"

	"github.com/penstock-mq/penstock/internal/buildinfo"
	"github.com/penstock-mq/penstock/workers/whatif"
)

var (
	//go:embed page.html
	pageText     string
	pageTemplate = template.Must(template.New("page").Parse(pageText))

	//go:embed chartjs/chart.umd.min.js
	chartJS string
)

type page struct {
	Title, About string
	Table        [][]string
	Charts       []chart
	Policy       string // as YAML; may be empty
}

func (p page) write(file string) error {
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, struct {
		page
		Version string
		ChartJS template.JS
	}{p, buildinfo.Version(), template.JS(chartJS)}) //nolint:gosec // not from users
	if err != nil {
		return err
	}
	return writeFile(file, out.Bytes())
}

func chartsOf(all []*play) []chart {
	unit, name := timeUnit(all)
	over := func(p *play, name, color string, value func(whatif.Bin) float64) series {
		s := series{Label: name, Color: color, Line: true, Stepped: true}
		for i, b := range p.Bins {
			at := float64(p.Width) * float64(i) / float64(unit)
			s.Points = append(s.Points, point{at, value(b)})
		}
		return s
	}
	perSecond := func(p *play, n int64) float64 { return float64(n) / p.Width.Seconds() }
	rate := chart{Title: "Requests and starts", X: name, Y: "per second"}
	refused := chart{Title: "Refused", X: name, Y: "per second"}
	depth := chart{Title: "Jobs waiting and running, all buckets", X: name, Y: "jobs"}
	wait := chart{Title: "The longest wait", X: name, Y: "s"}
	labels := titles(all)
	for i, p := range all {
		add := func(c *chart, value func(whatif.Bin) float64) {
			c.Series = append(c.Series, over(p, labels[i], ink(i), value))
		}
		add(&rate, func(b whatif.Bin) float64 { return perSecond(p, b.Started) })
		add(&refused, func(b whatif.Bin) float64 { return perSecond(p, b.Refused) })
		add(&depth, func(b whatif.Bin) float64 { return float64(b.Depth) })
		add(&wait, func(b whatif.Bin) float64 { return b.Wait.Seconds() })
	}
	rate.Series = append(rate.Series, over(all[0], "requests", grey,
		func(b whatif.Bin) float64 { return perSecond(all[0], b.Requests) }))
	return []chart{rate, refused, depth, wait}
}

// timeUnit makes the longest play tens or hundreds of units long.
func timeUnit(all []*play) (unit time.Duration, name string) {
	var longest time.Duration
	for _, p := range all {
		longest = max(longest, p.Width*time.Duration(len(p.Bins)))
	}
	unit, name = time.Second, "seconds"
	switch {
	case longest > 4*24*time.Hour:
		unit, name = 24*time.Hour, "days"
	case longest > 4*time.Hour:
		unit, name = time.Hour, "hours"
	case longest > 4*time.Minute:
		unit, name = time.Minute, "minutes"
	}
	return unit, fmt.Sprintf("%s since the first request", name)
}

// inks are distinct with red-green colour blindness (Okabe and Ito, 2008).
var inks = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

const grey = "#b0b0b0"

func ink(i int) string { return inks[i%len(inks)] }

type chart struct {
	Title, X, Y string
	Series      []series
}

type series struct {
	Label   string  `json:"label"`
	Color   string  `json:"borderColor"`
	Fill    string  `json:"backgroundColor,omitempty"` // of points; empty: rings
	Line    bool    `json:"showLine"`
	Stepped bool    `json:"stepped"`
	Dash    []int   `json:"borderDash,omitempty"`
	Radius  float64 `json:"pointRadius"`
	Points  []point `json:"data"`
}

type point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}
