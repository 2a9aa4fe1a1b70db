package main

import (
	"image/color"
	"maps"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/penstock-mq/penstock/bench/paper"
)

func (d *depths) draw(file string) error {
	var plots [][]*plot.Plot
	for _, row := range []struct {
		title, y string
		curves   []curve
	}{
		{"waiting jobs", "thousands", []curve{{"", paper.Ink, d.over(func(s sample) float64 {
			return s.jobs / 1000
		})}}},
		{"memory", "MiB", []curve{
			{"server", paper.Limit, d.over(func(s sample) float64 { return s.server / (1 << 20) })},
			{"drainer", paper.Ink, d.over(func(s sample) float64 { return s.drainer / (1 << 20) })},
			{"its live heap", paper.Ideal, d.over(func(s sample) float64 {
				return s.heap / (1 << 20)
			})},
		}},
		{"lateness, p99 of each second", "ms", d.lateness()},
	} {
		p := paper.NewPlot(titleSize, row.title, "s", row.y)
		p.Y.Min = 0
		p.Legend.TextStyle.Font.Size = vg.Points(titleSize - 2)
		for _, c := range row.curves {
			line, err := plotter.NewLine(c.points)
			if err != nil {
				return err
			}
			line.Color, line.Width = c.color, vg.Points(0.8)
			p.Add(line)
			if c.name != "" {
				p.Legend.Add(c.name, line)
			}
		}
		if err := d.markPhases(p, len(plots) == 0); err != nil {
			return err
		}
		plots = append(plots, []*plot.Plot{p})
	}
	return paper.WriteSVG(file, plots, 2*plotWidth, plotHeight,
		vg.Centimeter/2)
}

type curve struct {
	name   string
	color  color.Color
	points plotter.XYs
}

func (d *depths) since(at int64) float64 { return float64(at-d.begin) / 1e9 }

func (d *depths) over(value func(sample) float64) (points plotter.XYs) {
	for _, s := range d.samples {
		points = append(points, plotter.XY{X: d.since(s.at), Y: value(s)})
	}
	return points
}

func (d *depths) lateness() (curves []curve) {
	for _, ph := range d.phases {
		var points plotter.XYs
		of := map[int64][]time.Duration{}
		for _, s := range latenesses(d.starts, ph.from, ph.to, nil) {
			second := (s.at - d.begin) / 1e9
			of[second] = append(of[second], s.late)
		}
		for _, second := range slices.Sorted(maps.Keys(of)) {
			slices.Sort(of[second])
			points = append(points, plotter.XY{X: float64(second),
				Y: float64(paper.Quantile(of[second], 0.99)) / 1e6})
		}
		if len(points) > 0 {
			curves = append(curves, curve{"", paper.Ink, points})
		}
	}
	return curves
}

func (d *depths) markPhases(p *plot.Plot, named bool) error {
	var names plotter.XYLabels
	for _, ph := range d.phases {
		at := d.since(ph.from)
		line, err := plotter.NewLine(plotter.XYs{{X: at, Y: 0}, {X: at, Y: p.Y.Max}})
		if err != nil {
			return err
		}
		line.Color, line.Width = paper.Ideal, vg.Points(0.4)
		p.Add(line)
		names.XYs = append(names.XYs, plotter.XY{X: at, Y: 0})
		names.Labels = append(names.Labels, " "+ph.name)
	}
	if !named {
		return nil
	}
	labels, err := plotter.NewLabels(names)
	if err != nil {
		return err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Rotation = math.Pi / 2
		labels.TextStyle[i].Font.Size = vg.Points(titleSize - 3)
		labels.TextStyle[i].Color = paper.Limit
	}
	p.Add(labels)
	return nil
}
