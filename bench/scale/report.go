package main

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/penstock-mq/penstock/bench/paper"
)

type figure struct {
	what, unit string
	ours, bare float64
}

type curve struct {
	part, what, unit string
	sizes            []int
	ours, bare       []float64
}

type report struct{ curves []*curve }

func (r *report) add(part string, n int, figures []figure) {
	for _, f := range figures {
		c := r.curve(part, f)
		c.sizes = append(c.sizes, n)
		c.ours, c.bare = append(c.ours, f.ours), append(c.bare, f.bare)
	}
}

func (r *report) curve(part string, f figure) *curve {
	for _, c := range r.curves {
		if c.part == part && c.what == f.what {
			return c
		}
	}
	c := &curve{part: part, what: f.what, unit: f.unit}
	r.curves = append(r.curves, c)
	return c
}

// exponent is a figure's growth between the last two sizes; 1: in proportion.
func (c *curve) exponent() string {
	i := len(c.sizes) - 1
	if i < 1 {
		return ""
	}
	x := math.Log(c.ours[i]/c.ours[i-1]) /
		math.Log(float64(c.sizes[i])/float64(c.sizes[i-1]))
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return ""
	}
	return fmt.Sprintf("%.2f", x)
}

func (r *report) table() paper.Table {
	t := paper.Table{{"", "of", "what", "unit", "Penstock", "bare", "ratio", "grows as n^"}}
	for _, c := range r.curves {
		for i, n := range c.sizes {
			grows, ratio := "", ""
			if i == len(c.sizes)-1 {
				grows = c.exponent()
			}
			if c.bare[i] > 0 {
				ratio = fmt.Sprintf("%.1f", c.ours[i]/c.bare[i])
			}
			t.Add(c.part, paper.Grouped(n), c.what, c.unit, number(c.ours[i]), number(c.bare[i]),
				ratio, grows)
		}
	}
	return t
}

func number(x float64) string {
	switch {
	case math.IsNaN(x):
		return ""
	case x >= 100:
		return paper.Grouped(int(math.Round(x)))
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

func (r *report) print(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\n", paper.Machine("github.com/nats-io/nats-server/v2"))
	return r.table().Print(w)
}

func (r *report) write(dir string) error {
	text := fmt.Sprintf("Made by `make bench-scale` on %s. [What the columns mean](scale.md)."+
		"\n\n%s\n", paper.Machine("github.com/nats-io/nats-server/v2"), r.table().Markdown())
	if err := os.WriteFile(filepath.Join(dir, "scale-table.md"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	for _, p := range parts {
		var row []*plot.Plot
		for _, c := range r.curves {
			if c.part == p.name && len(c.sizes) > 1 {
				drawn, err := c.draw()
				if err != nil {
					return err
				}
				row = append(row, drawn)
			}
		}
		if len(row) == 0 {
			continue
		}
		const columns = 3
		var plots [][]*plot.Plot
		for len(row) > 0 {
			plots = append(plots, make([]*plot.Plot, columns))
			last := plots[len(plots)-1]
			for i := copy(last, row); i < columns; i++ {
				last[i] = plot.New()
				last[i].HideAxes()
			}
			row = row[min(columns, len(row)):]
		}
		if err := paper.WriteSVG(filepath.Join(dir, "scale-"+p.name+".svg"), plots,
			8*vg.Centimeter, 5*vg.Centimeter, vg.Centimeter/2); err != nil {
			return err
		}
	}
	return nil
}

func (c *curve) draw() (*plot.Plot, error) {
	p := paper.NewPlot(9, c.what, c.part, c.unit)
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	for _, of := range []struct {
		name   string
		values []float64
		color  color.Color
	}{{"Penstock", c.ours, paper.Ink}, {"bare", c.bare, paper.Ideal}} {
		var points plotter.XYs
		for i, v := range of.values {
			if v > 0 {
				points = append(points, plotter.XY{X: float64(c.sizes[i]), Y: v})
			}
		}
		if len(points) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, marks.Color, marks.Shape = of.color, of.color, draw.CircleGlyph{}
		marks.Radius = vg.Points(1.5)
		p.Add(line, marks)
		p.Legend.Add(of.name, line)
	}
	p.Legend.TextStyle.Font.Size = vg.Points(7)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} { // whole decades, which have labels
		axis.Min = math.Pow(10, math.Floor(math.Log10(axis.Min)))
		axis.Max = math.Pow(10, math.Ceil(math.Log10(axis.Max)))
	}
	return p, nil
}
