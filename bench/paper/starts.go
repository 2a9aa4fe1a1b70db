package paper

import (
	"fmt"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// InSecond returns, per instant, the number in the second up to it.
func InSecond(at []time.Duration) []int {
	counts := make([]int, len(at))
	first := 0
	for i := range at {
		for at[i]-at[first] >= time.Second {
			first++
		}
		counts[i] = i - first + 1
	}
	return counts
}

// WorstSecond returns the most instants in a second, and its end.
func WorstSecond(at []time.Duration) (most int, ends time.Duration) {
	for i, n := range InSecond(at) {
		if n > most {
			most, ends = n, at[i]
		}
	}
	return most, ends
}

// Starts plots instants as dots, as high as their number in the second up to each, with the worst
// second and a limit.
func Starts(title string, at []time.Duration, limit float64) (*plot.Plot, error) {
	most, ends := WorstSecond(at)
	p := NewPlot(11, fmt.Sprintf("%s: worst second %d", title, most), "s", "in the last second")
	var starts plotter.XYs
	for i, n := range InSecond(at) {
		starts = append(starts, plotter.XY{X: (at[i] - at[0]).Seconds(), Y: float64(n)})
	}
	every, err := plotter.NewScatter(starts)
	if err != nil {
		return nil, err
	}
	every.GlyphStyle = draw.GlyphStyle{Color: Ink, Radius: vg.Points(1), Shape: draw.CircleGlyph{}}
	mark, err := plotter.NewScatter(plotter.XYs{{X: (ends - at[0]).Seconds(), Y: float64(most)}})
	if err != nil {
		return nil, err
	}
	mark.GlyphStyle = draw.GlyphStyle{Color: Limit, Radius: vg.Points(5), Shape: draw.RingGlyph{}}
	allowed := plotter.NewFunction(func(float64) float64 { return limit })
	allowed.Color, allowed.Dashes = Limit, Dashes(3, 2)
	p.Add(allowed, every, mark)
	return p, nil
}

func WriteStarts(file string, plots []*plot.Plot) error {
	var rows [][]*plot.Plot
	most, longest := 0.0, 0.0
	for _, p := range plots {
		most, longest = max(most, p.Y.Max), max(longest, p.X.Max)
	}
	for _, p := range plots {
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, longest, 0, 1.2*most
		rows = append(rows, []*plot.Plot{p})
	}
	return WriteSVG(file, rows, 20*vg.Centimeter, 5*vg.Centimeter, vg.Centimeter/2)
}
