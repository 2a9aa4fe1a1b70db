package main

import (
	"fmt"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/penstock-mq/penstock/bench/paper"
)

// drawAll makes the picture: for each system and setting every start as a dot on time, as high as
// the number of starts in the second up to it, and the limit.
func drawAll(file string, results []result) error {
	var plots [][]*plot.Plot
	most, longest := 0, 0.0
	for _, r := range results {
		n, _ := worst(r.paced)
		most = max(most, n)
		longest = max(longest, (r.paced[len(r.paced)-1].at - r.paced[0].at).Seconds())
	}
	for _, r := range results {
		p, err := dots(r)
		if err != nil {
			return err
		}
		p.X.Min, p.X.Max = 0, longest
		p.Y.Min, p.Y.Max = 0, 1.2*float64(most)
		plots = append(plots, []*plot.Plot{p})
	}
	return paper.WriteSVG(file, plots, 20*vg.Centimeter, 5*vg.Centimeter, vg.Centimeter/2)
}

func dots(r result) (*plot.Plot, error) {
	most, ends := worst(r.paced)
	p := paper.NewPlot(11, fmt.Sprintf("%s, %s: worst second %d", r.name, plain(r.setting), most),
		"s", "in the last second")
	begin := r.paced[0].at
	var starts plotter.XYs
	for i, n := range inSecond(r.paced) {
		starts = append(starts, plotter.XY{X: (r.paced[i].at - begin).Seconds(), Y: float64(n)})
	}
	every, err := plotter.NewScatter(starts)
	if err != nil {
		return nil, err
	}
	every.GlyphStyle = draw.GlyphStyle{Color: paper.Ink, Radius: vg.Points(1),
		Shape: draw.CircleGlyph{}}
	mark, err := plotter.NewScatter(plotter.XYs{{X: (ends - begin).Seconds(), Y: float64(most)}})
	if err != nil {
		return nil, err
	}
	mark.GlyphStyle = draw.GlyphStyle{Color: paper.Limit, Radius: vg.Points(5),
		Shape: draw.RingGlyph{}}
	allowed := plotter.NewFunction(func(float64) float64 { return limit })
	allowed.Color, allowed.Dashes = paper.Limit, paper.Dashes(3, 2)
	p.Add(allowed, every, mark)
	return p, nil
}

// plain is a text without the marks of Markdown.
func plain(text string) string { return strings.ReplaceAll(text, "`", "") }
