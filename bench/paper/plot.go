package paper

import (
	"bytes"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

var (
	Ink   = RGB(0x1f4e9c)
	Ideal = RGB(0xa8a8a8)
	Limit = RGB(0xc0392b)
)

// RGB returns a color such as 0x1f4e9c.
func RGB(hex uint32) color.RGBA {
	return color.RGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 0xff}
}

// Dashes is the style of a reference line, in points.
func Dashes(stroke, gap float64) []vg.Length {
	return []vg.Length{vg.Points(stroke), vg.Points(gap)}
}

// NewPlot returns a plot with a title of a height in points, and the rest in proportion.
func NewPlot(points float64, title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font.Size = vg.Points(points)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font.Size = vg.Points(points - 2)
		axis.Tick.Label.Font.Size = vg.Points(points - 3)
	}
	return p
}

// WriteSVG draws plots of one size in rows and columns. Legends are next to their plots.
func WriteSVG(file string, plots [][]*plot.Plot, width, height, gap vg.Length) error {
	rows, columns := len(plots), len(plots[0])
	canvas := vgsvg.New(width*vg.Length(columns), height*vg.Length(rows))
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: gap, PadY: gap,
		PadTop: gap / 2, PadBottom: gap / 2, PadLeft: gap / 2, PadRight: gap / 2}
	area := draw.New(canvas)
	var beside vg.Length
	legends := make([][]plot.Legend, rows)
	for i, row := range plots {
		for _, p := range row {
			beside = max(beside, legendWidth(p.Legend, area))
			legends[i] = append(legends[i], p.Legend)
			p.Legend = plot.NewLegend()
		}
	}
	for i, canvases := range plot.Align(plots, tiles, area) {
		for j, c := range canvases {
			p, legend := plots[i][j], legends[i][j]
			p.Draw(draw.Crop(c, 0, -beside, 0, 0))
			legend.Left, legend.Top = true, true
			legend.YOffs = -p.Title.TextStyle.FontExtents().Height
			legend.Draw(draw.Crop(c, c.Max.X-c.Min.X-beside+gap/2, 0, 0, 0))
		}
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	return os.WriteFile(file, compact(svg.Bytes()), 0o644)
}

// legendWidth has a margin: the viewer's font may be wider.
func legendWidth(l plot.Legend, c draw.Canvas) vg.Length {
	r := l.Rectangle(c)
	return 1.3 * (r.Max.X - r.Min.X)
}
