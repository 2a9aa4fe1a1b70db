package main

import (
	"errors"
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	plotWidth  = 14 * vg.Centimeter
	plotHeight = 9 * vg.Centimeter
)

var (
	// lineColors are those of allTraffic, and barColors those of barLengths.
	lineColors = []color.Color{rgb(0x1f4e9c), rgb(0x3a9a6b), rgb(0xe0a030), rgb(0xc0392b)}
	barColors  = []color.Color{rgb(0xa9c1e8), rgb(0x5f8fd0), rgb(0x1f4e9c)}
	limitColor = rgb(0xc0392b)
)

// barLengths are places in lengths that the bars show: a hundredth of a window, half of one, and a window.
var barLengths = []int{1, 3, 4}

func rgb(hex uint32) color.RGBA {
	return color.RGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 0xff}
}

// draw makes the picture.
func (r *report) draw(file string) (err error) {
	plots, err := r.plots()
	if err != nil {
		return err
	}
	canvas := vgsvg.New(2*plotWidth, 2*plotHeight)
	tiles := draw.Tiles{Rows: 2, Cols: 2, PadX: vg.Centimeter, PadY: vg.Centimeter,
		PadTop: vg.Centimeter / 2, PadBottom: vg.Centimeter / 2, PadLeft: vg.Centimeter / 2, PadRight: vg.Centimeter / 2}
	for i, canvases := range plot.Align(plots, tiles, draw.New(canvas)) {
		for j, c := range canvases {
			plots[i][j].Draw(c)
		}
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = canvas.WriteTo(f)
	return err
}

// plots are what is decided otherwise than by a log, by limit and by load, and the most that each algorithm lets pass.
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
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font.Size = vg.Points(11)
	p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = vg.Points(9), vg.Points(9)
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = vg.Points(8), vg.Points(8)
	p.Legend.TextStyle.Font.Size = vg.Points(8)
	p.Legend.Top = true
	p.Y.Min = 0
	return p
}

// addLine draws a curve with its name.
func addLine(p *plot.Plot, name string, points plotter.XYs, of color.Color, dashed bool) error {
	line, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, line.Width = of, vg.Points(1.2)
	if dashed {
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
	}
	marks.Color, marks.Radius, marks.Shape = of, vg.Points(2), draw.CircleGlyph{}
	p.Add(line, marks)
	p.Legend.Add(name, line, marks)
	return nil
}

// limitPlot shows shares of all requests (dashed) and of those of keys that come near their limit, by limit.
func (r *report) limitPlot(title string, v view) (*plot.Plot, error) {
	p := newPlot(title, "limit per window", "%")
	var names []string
	for _, limit := range limits {
		names = append(names, grouped(limit))
	}
	p.NominalX(names...)
	for i, o := range r.outcomes {
		var all, near plotter.XYs
		for k, t := range o.byLimit {
			all = append(all, plotter.XY{X: float64(k), Y: 100 * quotient(t.wrong[v].sum(), t.requests)})
			near = append(near, plotter.XY{X: float64(k), Y: 100 * quotient(t.wrong[v].sum(), t.ofNearKeys)})
		}
		if err := addLine(p, o.traffic.name+", all requests", all, lineColors[i], true); err != nil {
			return nil, err
		}
		if err := addLine(p, o.traffic.name+", keys near their limit", near, lineColors[i], false); err != nil {
			return nil, err
		}
	}
	p.Y.Max *= 1.5 // for the legend
	return p, nil
}

// loadPlot shows what is decided wrongly by load, given the same past and when all is counted, of steady and of bursty
// traffic.
func (r *report) loadPlot() (*plot.Plot, error) {
	p := newPlot(fmt.Sprintf("decided wrongly by what the key offers, limit %d", shownLimit), "offered ÷ limit, from", "%")
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
				points = append(points, plotter.XY{X: float64(part), Y: 100 * quotient(t.wrong[v].sum(), t.requests)})
			}
			if err := addLine(p, o.traffic.name+", "+v.String(), points, lineColors[i], v == countingAll); err != nil {
				return nil, err
			}
		}
	}
	p.Y.Max *= 1.2 // for the legend
	p.Legend.Left = true
	return p, nil
}

// worstPlot shows the most ÷ limit that each algorithm let pass, as bars for intervals of some lengths.
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
	once, err := plotter.NewLine(plotter.XYs{{X: -0.5, Y: 1}, {X: float64(len(subjects)) - 0.5, Y: 1}})
	if err != nil {
		return nil, err
	}
	once.Color, once.Dashes = limitColor, []vg.Length{vg.Points(3), vg.Points(2)}
	p.Add(once)
	p.Y.Max = 2.6 // for the legend
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 1, Label: "1"}, {Value: 2, Label: "2"}}
	p.Legend.Left = true
	return p, nil
}
