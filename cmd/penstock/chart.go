package main

import (
	"bytes"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// distinct with red-green colour blindness (Okabe and Ito, 2008)
var inks = []color.RGBA{rgb(0x0072b2), rgb(0xd55e00), rgb(0x009e73), rgb(0xcc79a7), rgb(0xe69f00),
	rgb(0x56b4e9)}

var grey = rgb(0xb0b0b0)

func rgb(hex uint32) color.RGBA {
	return color.RGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 0xff}
}

func ink(i int) color.RGBA { return inks[i%len(inks)] }

type curve struct {
	name   string
	color  color.Color
	points plotter.XYs
	steps  bool
	dashed bool
}

type chart struct {
	title, x, y string
	curves      []curve
	dots        []dots
}

type dots struct {
	name   string
	color  color.Color
	shape  draw.GlyphDrawer
	radius float64
	points plotter.XYs
}

const chartWidth, chartHeight = 17 * vg.Centimeter, 6.5 * vg.Centimeter

func (c chart) svg() (string, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.Title.TextStyle.Font.Size, p.Legend.TextStyle.Font.Size = vg.Points(11), vg.Points(9)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Tick.Marker = plainTicks{}
		axis.Label.TextStyle.Font.Size, axis.Tick.Label.Font.Size = vg.Points(9), vg.Points(8)
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = rgb(0xe4e4e4), rgb(0xe4e4e4)
	p.Add(grid)
	p.Legend.Top, p.Legend.Padding = true, vg.Points(2)
	for _, curve := range c.curves {
		if len(curve.points) == 0 {
			continue
		}
		l, err := plotter.NewLine(curve.points)
		if err != nil {
			return "", err
		}
		l.Color, l.Width = curve.color, vg.Points(1.4)
		if curve.steps {
			l.StepStyle = plotter.PostStep
		}
		if curve.dashed {
			l.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		}
		p.Add(l)
		if curve.name != "" {
			p.Legend.Add(curve.name, l)
		}
	}
	for _, d := range c.dots {
		if len(d.points) == 0 {
			continue
		}
		s, err := plotter.NewScatter(d.points)
		if err != nil {
			return "", err
		}
		s.GlyphStyle = draw.GlyphStyle{Color: d.color, Radius: vg.Points(d.radius), Shape: d.shape}
		p.Add(s)
		if d.name != "" {
			p.Legend.Add(d.name, s)
		}
	}
	p.Y.Min = math.Min(0, p.Y.Min)
	if p.Y.Max <= p.Y.Min {
		p.Y.Max = p.Y.Min + 1
	}
	return drawn(p)
}

// drawn puts the legend beside the plot, where it covers no curve.
func drawn(p *plot.Plot) (string, error) {
	canvas := vgsvg.New(chartWidth, chartHeight)
	area := draw.New(canvas)
	legend := p.Legend
	r := legend.Rectangle(area)
	// Leave room for a wider font, and align the charts of a page.
	beside := max(2.7*vg.Centimeter, 1.25*(r.Max.X-r.Min.X))
	p.Legend = plot.NewLegend()
	p.Draw(draw.Crop(area, 0, -beside-vg.Points(6), 0, 0))
	legend.Left = true
	legend.YOffs = -p.Title.TextStyle.FontExtents().Height
	legend.Draw(draw.Crop(area, chartWidth-beside, 0, 0, 0))
	var out bytes.Buffer
	_, err := canvas.WriteTo(&out)
	text := out.Bytes()
	if i := bytes.Index(text, []byte("<svg")); i > 0 { // drop the XML header
		text = text[i:]
	}
	return string(text), err
}

type plainTicks struct{ plot.DefaultTicks }

// Ticks implements [plot.Ticker].
func (s plainTicks) Ticks(least, most float64) []plot.Tick {
	ticks := s.DefaultTicks.Ticks(least, most)
	for i, t := range ticks {
		if strings.Contains(t.Label, ".") {
			ticks[i].Label = strings.TrimRight(strings.TrimRight(t.Label, "0"), ".")
		}
	}
	return ticks
}
