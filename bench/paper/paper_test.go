package paper

import (
	"bytes"
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

func TestATableIsTheSameForPagesTerminalsAndPrograms(t *testing.T) {
	table := Table{{"limiter", "ns"}}
	table.Add("ours, in memory", "60")
	if got, want := table.Markdown(),
		"| limiter | ns |\n|---|---|\n| ours, in memory | 60 |"; got != want {
		t.Errorf("page:\n%s\nwant\n%s", got, want)
	}
	var terminal bytes.Buffer
	if err := table.Print(&terminal); err != nil {
		t.Fatal(err)
	}
	if got, want := terminal.String(), "limiter          ns\nours, in memory  60\n"; got != want {
		t.Errorf("terminal:\n%s\nwant\n%s", got, want)
	}
	dir := filepath.Join(t.TempDir(), "new")
	if err := table.WriteCSV(dir, "table.csv"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "table.csv"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil || !slices.EqualFunc(got, table, slices.Equal[[]string]) {
		t.Errorf("file: %q, %v", got, err)
	}
}

func TestGroupedHasACommaEveryThreeDigits(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000",
		10_000_000: "10,000,000"} {
		if got := Grouped(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestMedianOfAnEvenNumberIsBetweenTwo(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("of %v: %v, want %v", c.values, got, c.want)
		}
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("of nothing: %v", got)
	}
}

func TestQuantileIsAMeasuredValue(t *testing.T) {
	sorted := []int{10, 20, 30, 40}
	for _, c := range []struct {
		q    float64
		want int
	}{{0, 10}, {0.25, 10}, {0.5, 20}, {0.51, 30}, {0.99, 40}, {1, 40}} {
		if got := Quantile(sorted, c.q); got != c.want {
			t.Errorf("quantile %v: %d, want %d", c.q, got, c.want)
		}
	}
	if got := Quantile([]int(nil), 0.5); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}

func TestAPictureHasAllItsPlots(t *testing.T) {
	file := filepath.Join(t.TempDir(), "picture.svg")
	plots := [][]*plot.Plot{
		{NewPlot(10, "first", "s", ""), NewPlot(10, "second", "s", "")},
		{NewPlot(10, "third", "s", ""), NewPlot(10, "fourth", "s", "")},
	}
	if err := WriteSVG(file, plots, 5*vg.Centimeter, 4*vg.Centimeter, vg.Centimeter); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, title := range []string{"first", "second", "third", "fourth"} {
		if !strings.Contains(string(text), title) {
			t.Errorf("the picture lacks %q", title)
		}
	}
}

func TestMachineNamesTheModulesThatAreLinked(t *testing.T) {
	got := Machine("gonum.org/v1/plot", "example.com/none")
	if !strings.Contains(got, " × ") || strings.Contains(got, "example.com") {
		t.Error(got)
	}
}

func TestACompactPictureShowsTheSame(t *testing.T) {
	const dots = `<path d="M48.5,607.09A1,1 0 1 1 46.5,607.09A1,1 0 1 1 48.5,607.09Z" style="fill:#1F4E9C" />
<path d="M48.741,607.46A1,1 0 1 1 46.741,607.46A1,1 0 1 1 48.741,607.46Z" style="fill:#1F4E9C" />
<path d="M1.25,2L3,4.444" style="fill:none;stroke:#000000" />
<text x="1">1.234 s</text>
`
	const want = `<path d="M47.5,607.1h0M47.7,607.5h0" style="stroke-linecap:round;stroke-width:2;stroke:#1F4E9C" />
<path d="M1.2,2L3,4.4" style="fill:none;stroke:#000000" />
<text x="1">1.234 s</text>
`
	if got := string(compact([]byte(dots))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if again := string(compact([]byte(want))); again != want {
		t.Errorf("again:\n%s", again)
	}
}
