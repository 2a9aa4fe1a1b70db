package main

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/penstock-mq/penstock/bench/paper"
)

const (
	plotWidth  = 20 * vg.Centimeter
	plotHeight = 9 * vg.Centimeter
)

var (
	lineColors = []color.Color{paper.Ink, paper.RGB(0x3a9a6b), paper.RGB(0xe0a030), paper.Limit}
	barColors  = []color.Color{paper.RGB(0xa9c1e8), paper.RGB(0x5f8fd0), paper.Ink}
)

// a hundredth, a half and a whole window
var barLengths = []int{1, 3, 4}

func (r *report) draw(file string) error {
	plots, err := r.plots()
	if err != nil {
		return err
	}
	return paper.WriteSVG(file, plots, plotWidth, plotHeight, vg.Centimeter)
}

func (r *report) plots() ([][]*plot.Plot, error) {
	systems, err := r.limitPlot("decided otherwise than by a log fed the same stream", twoSystems)
	if err != nil {
		return nil, err
	}
	past, err := r.limitPlot("decided wrongly, given the same past", samePast)
	if err != nil {
		return nil, err
	}
	load, err := r.loadPlot()
	if err != nil {
		return nil, err
	}
	worst, err := r.worstPlot()
	if err != nil {
		return nil, err
	}
	return [][]*plot.Plot{{systems, past}, {load, worst}}, nil
}

func newPlot(title, x, y string) *plot.Plot {
	p := paper.NewPlot(11, title, x, y)
	p.Legend.TextStyle.Font.Size, p.Legend.Padding = vg.Points(8), vg.Points(3)
	p.Y.Min = 0
	return p
}

func addLine(p *plot.Plot, name string, points plotter.XYs, of color.Color, dashed bool) error {
	line, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, line.Width = of, vg.Points(1.2)
	if dashed {
		line.Dashes = paper.Dashes(4, 2)
	}
	marks.Color, marks.Radius, marks.Shape = of, vg.Points(2), draw.CircleGlyph{}
	p.Add(line, marks)
	p.Legend.Add(name, line, marks)
	return nil
}

// limitPlot shows shares of all requests (dashed) and of requests of keys near their limit.
func (r *report) limitPlot(title string, v view) (*plot.Plot, error) {
	p := newPlot(title, "limit per window", "%")
	var names []string
	for _, limit := range limits {
		names = append(names, paper.Grouped(limit))
	}
	p.NominalX(names...)
	for i, o := range r.outcomes {
		var all, near plotter.XYs
		for k, t := range o.byLimit {
			all = append(all,
				plotter.XY{X: float64(k), Y: 100 * quotient(t.wrong[v].sum(), t.requests)})
			near = append(near,
				plotter.XY{X: float64(k), Y: 100 * quotient(t.wrong[v].sum(), t.ofNearKeys)})
		}
		if err := addLine(p, o.traffic.name+", all requests", all, lineColors[i], true); err !=
			nil {
			return nil, err
		}
		if err := addLine(p, o.traffic.name+", keys near their limit", near, lineColors[i],
			false); err != nil {
			return nil, err
		}
	}
	p.Y.Max = 10 * math.Ceil(p.Y.Max/10)
	return p, nil
}

// loadPlot shows wrong decisions by load, for steady and bursty traffic.
func (r *report) loadPlot() (*plot.Plot, error) {
	p := newPlot(fmt.Sprintf("decided wrongly by what the key offers, limit %d", shownLimit),
		"offered ÷ limit, from", "%")
	var names []string
	for _, from := range loadEdges {
		names = append(names, ratio(from, 100, 2))
	}
	p.NominalX(names...)
	for _, v := range []view{samePast, countingAll} {
		for _, i := range []int{0, 2} {
			o := r.outcomes[i]
			var points plotter.XYs
			for part, t := range o.byLoad[shownIndex()] {
				points = append(points,
					plotter.XY{X: float64(part), Y: 100 * quotient(t.wrong[v].sum(), t.requests)})
			}
			if err := addLine(p, o.traffic.name+", "+v.String(), points, lineColors[i],
				v == countingAll); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// worstPlot shows the most ÷ limit of each algorithm, by interval.
func (r *report) worstPlot() (*plot.Plot, error) {
	p := newPlot(fmt.Sprintf("the most that ever passed ÷ limit, limit %d", shownLimit), "", "")
	width := vg.Points(14)
	for i, length := range barLengths {
		var ratios plotter.Values
		for k := range subjects {
			ratios = append(ratios, r.worstOf(k, shownIndex(), length).ratio())
		}
		bars, err := plotter.NewBarChart(ratios, width)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = barColors[i], 0
		bars.Offset = width * vg.Length(2*i+1-len(barLengths)) / 2
		p.Add(bars)
		p.Legend.Add("in "+lengthName(lengths[length]), bars)
	}
	var names []string
	for _, s := range subjects {
		names = append(names, s.short)
	}
	p.NominalX(names...)
	once, err := plotter.NewLine(plotter.XYs{{X: -0.5, Y: 1},
		{X: float64(len(subjects)) - 0.5, Y: 1}})
	if err != nil {
		return nil, err
	}
	once.Color, once.Dashes = paper.Limit, paper.Dashes(3, 2)
	p.Add(once)
	p.Y.Max = 2.1
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 1, Label: "1"},
		{Value: 2, Label: "2"}}
	return p, nil
}
