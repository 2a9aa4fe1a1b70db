package main

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/penstock-mq/penstock/bench/paper"
)

const (
	plotWidth  = 11 * vg.Centimeter
	plotHeight = 5 * vg.Centimeter
	titleSize  = 10
	teeth      = 40
	points     = 300
)

func (r *report) draw(file string) error {
	var plots [][]*plot.Plot
	for _, row := range r.rows {
		rate, err := row.ratePlot()
		if err != nil {
			return err
		}
		counts, err := row.countPlot()
		if err != nil {
			return err
		}
		plots = append(plots, []*plot.Plot{row.combPlot(), rate, counts})
	}
	return paper.WriteSVG(file, plots, plotWidth, plotHeight, vg.Centimeter/2)
}

func (r row) title(what string) string {
	beside := paper.Plural(r.drainers, "drainer")
	if r.busy {
		beside = "busy"
	}
	return fmt.Sprintf("%s, %s: %s", r.setting, beside, what)
}

// seconds since the beginning
func (r row) seconds(at int64) float64 { return float64(at-r.from) / 1e9 }

func (r row) combPlot() *plot.Plot {
	p := paper.NewPlot(titleSize, r.title("departures"), "ms", "")
	p.HideY()
	shown := r.at[:min(teeth, len(r.at))]
	milliseconds := make([]float64, len(shown))
	ideal := make([]float64, len(shown))
	for i, at := range shown {
		milliseconds[i] = float64(at-shown[0]) / 1e6
		ideal[i] = float64(i) * 1e3 / float64(r.rate)
	}
	p.Add(comb{milliseconds, 0.4, 1, paper.Ink}, comb{ideal, 0, 0.3, paper.Ideal})
	return p
}

type comb struct {
	at         []float64
	from, upTo float64
	color      color.Color
}

func (c comb) Plot(canvas draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&canvas)
	style := draw.LineStyle{Color: c.color, Width: vg.Points(0.8)}
	for _, at := range c.at {
		canvas.StrokeLine2(style, x(at), y(c.from), x(at), y(c.upTo))
	}
}

func (c comb) DataRange() (xmin, xmax, ymin, ymax float64) {
	return c.at[0], c.at[len(c.at)-1], 0, 1
}

func (r row) ratePlot() (*plot.Plot, error) {
	p := paper.NewPlot(titleSize, r.title("rate"), "s", "starts/s")
	step := max(1, r.rate/10, (len(r.at)-1)/points)
	var curve plotter.XYs
	for i := step; i < len(r.at); i += step {
		took := float64(r.at[i]-r.at[i-step]) / 1e9
		curve = append(curve, plotter.XY{X: r.seconds(r.at[i]), Y: float64(step) / took})
	}
	p.Y.Min, p.Y.Max = 0.97*float64(r.rate), 1.03*float64(r.rate)
	return p, r.addCurve(p, curve, float64(r.rate), paper.Ideal)
}

func (r row) countPlot() (*plot.Plot, error) {
	p := paper.NewPlot(titleSize, r.title("in one second"), "s", "starts")
	step := max(1, len(r.at)/points)
	var curve plotter.XYs
	most := 0
	for i, j := 0, 0; j < len(r.at); j++ {
		for r.at[j]-r.at[i] >= 1e9 {
			i++
		}
		most = max(most, j-i+1)
		if j%step == step-1 {
			if r.at[j]-r.at[0] >= 1e9 {
				curve = append(curve, plotter.XY{X: r.seconds(r.at[j]), Y: float64(most)})
			}
			most = 0
		}
	}
	limit := float64(r.mostIn1s())
	p.Y.Min, p.Y.Max = 0.97*float64(r.rate)-1, 1.01*limit+1
	return p, r.addCurve(p, curve, limit, paper.Limit)
}

func (r row) addCurve(p *plot.Plot, curve plotter.XYs, level float64, of color.Color) error {
	if len(curve) == 0 {
		return nil
	}
	p.X.Min, p.X.Max = 0, r.seconds(r.at[len(r.at)-1])
	reference, err := plotter.NewLine(plotter.XYs{{X: p.X.Min, Y: level}, {X: p.X.Max, Y: level}})
	if err != nil {
		return err
	}
	reference.Color, reference.Dashes = of, paper.Dashes(3, 2)
	line, err := plotter.NewLine(curve)
	if err != nil {
		return err
	}
	line.Color, line.Width = paper.Ink, vg.Points(0.8)
	p.Add(reference, line)
	return nil
}
