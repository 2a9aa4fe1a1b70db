package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/penstock-mq/penstock/bench/paper"
)

// every is the interval of measurements of the admitter's resources.
const every = 5 * time.Second

type soak struct {
	url, target, pprof, profiles string
	pid                          int
	heap                         float64

	mu      sync.Mutex
	answers map[string]map[string]int
	samples [][]float64
}

// curve is a measured quantity. In the second half it may rise by most of its median; 0: no limit.
type curve struct {
	name, unit string
	most       float64
}

var curves = []curve{
	{"memory of the process (RSS)", "MiB", 0},
	{"live Go heap", "MiB", 0},
	{"live heap without NATS's file buffers", "MiB", 0.1},
	{"waiting jobs", "", 0},
	{"goroutines", "", 0.1},
	{"open files", "", 0.1},
	{"JetStream in memory", "MiB", 0.1},
	{"JetStream on disk", "MiB", 0},
	{"streams and consumers", "", 0.1},
}

func (s *soak) count(deed, answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers[deed] == nil {
		s.answers[deed] = map[string]int{}
	}
	s.answers[deed][answer]++
}

func (s *soak) sample(ctx context.Context, url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	began, minute := time.Now(), 0
	for ticker := time.NewTicker(every); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			ticker.Stop()
			return nil
		}
		now := time.Since(began).Minutes()
		values, err := s.measure(ctx, js)
		if err == nil {
			s.samples = append(s.samples, append([]float64{now}, values...))
		}
		if err == nil && s.profiles != "" && int(now) > minute {
			minute = int(now)
			err = s.profile(ctx, minute)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func (s *soak) profile(ctx context.Context, minute int) error {
	text, err := get(ctx, "http://"+s.pprof+"/debug/pprof/heap?gc=1")
	if err != nil {
		return err
	}
	name := filepath.Join(s.profiles, fmt.Sprintf("heap-%02d", minute))
	return os.WriteFile(name, text, 0o600)
}

func (s *soak) measure(ctx context.Context, js jetstream.JetStream) ([]float64, error) {
	text, err := get(ctx, s.url+"/metrics")
	if err != nil {
		return nil, err
	}
	metrics := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		n, _ := strconv.ParseFloat(value, 64)
		metrics[name] += n
	}
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return nil, err
	}
	if len(s.samples)%calm == 0 {
		heap, err := get(ctx, "http://"+s.pprof+"/debug/pprof/heap?debug=1")
		if err != nil {
			return nil, err
		}
		s.heap = without(fileBuffers, heap)
	}
	const mib = 1 << 20
	return []float64{
		metrics["process_resident_memory_bytes"] / mib,
		// the next collection is due at twice the heap that was live at the last one
		metrics["go_memstats_next_gc_bytes"] / 2 / mib,
		s.heap / mib,
		metrics["penstock_queue_jobs"],
		metrics["go_goroutines"],
		metrics["process_open_fds"],
		float64(account.Memory) / mib,
		float64(account.Store) / mib,
		float64(account.Streams + account.Consumers),
	}, nil
}

const (
	// fileBuffers is the function that allocates the NATS server's copies of blocks of files.
	fileBuffers = "server.getMsgBlockBuf"
	// profileRate is the mean number of bytes from one sample of the heap profile to the next.
	profileRate = 128 << 10
)

// without returns the bytes in a heap profile (debug=1), excluding one function's. Like pprof, it
// scales each sample by the probability that an object of its size is sampled.
func without(function string, profile []byte) (bytes float64) {
	for sample := range strings.SplitSeq(string(profile), "\n\n") {
		for line := range strings.Lines(sample) {
			var objects, used float64
			if n, _ := fmt.Sscanf(line, "%g: %g [", &objects, &used); n == 2 && objects > 0 &&
				!strings.Contains(sample, function) {
				bytes += used / (1 - math.Exp(-used/objects/profileRate))
			}
		}
	}
	return bytes
}

func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// calm is the number of samples whose lowest is judged: a leak also shows in quiet moments, while
// stalls of the machine make peaks.
const calm = int(time.Minute / every)

func (s *soak) half(curve int) (points plotter.XYs) {
	for some := range slices.Chunk(s.samples[len(s.samples)/2:], calm) {
		low := slices.MinFunc(some, func(a, b []float64) int {
			return cmp.Compare(a[curve+1], b[curve+1])
		})
		points = append(points, plotter.XY{X: low[0], Y: low[curve+1]})
	}
	return points
}

// trend returns the Theil-Sen line through points: the median slope of all pairs, and the value at
// 0. It is robust against stalls of the machine.
func trend(points plotter.XYs) (slope, at0 float64) {
	var slopes []float64
	for i, p := range points {
		for _, q := range points[:i] {
			slopes = append(slopes, (p.Y-q.Y)/(p.X-q.X))
		}
	}
	slope = paper.Median(slopes)
	return slope, paper.MedianBy(points, func(p plotter.XY) float64 { return p.Y - slope*p.X })
}

type line struct {
	curve
	median, rise float64 // of the second half, with the rise of its trend
}

func (l line) level() bool { return l.most == 0 || l.rise <= l.most*l.median }

func (s *soak) lines() (lines []line) {
	for i, c := range curves {
		points := s.half(i)
		slope, _ := trend(points)
		lines = append(lines, line{c,
			paper.MedianBy(points, func(p plotter.XY) float64 { return p.Y }),
			slope * (points[len(points)-1].X - points[0].X)})
	}
	return lines
}

func (s *soak) table() paper.Table {
	t := paper.Table{{"", "median", "rise in the second half", "may rise by"}}
	for _, l := range s.lines() {
		most := ""
		if l.most > 0 {
			most = fmt.Sprintf("%.0f %%", 100*l.most)
		}
		t.Add(l.name, fmt.Sprintf("%.1f %s", l.median, l.unit), fmt.Sprintf("%+.1f %s (%+.1f %%)",
			l.rise, l.unit, 100*l.rise/l.median), most)
	}
	return t
}

func (s *soak) traffic() paper.Table {
	t := paper.Table{{"", "a second", "answers by status"}}
	for _, d := range s.deeds() {
		var all []string
		for answer, n := range s.answers[d.name] {
			all = append(all, fmt.Sprintf("%s: %s", answer, paper.Grouped(n)))
		}
		slices.Sort(all)
		t.Add(d.name, fmt.Sprint(d.rate), strings.Join(all, ", "))
	}
	return t
}

func (s *soak) judge() error {
	var bad []error
	for _, l := range s.lines() {
		if !l.level() {
			bad = append(bad, fmt.Errorf("%s: not level", l.name))
		}
	}
	return errors.Join(bad...)
}

//go:embed page.md
var page string

func (s *soak) write(dir, machine string, length time.Duration) error {
	var text bytes.Buffer
	err := template.Must(template.New("").Parse(page)).Execute(&text, map[string]any{
		"Machine": machine, "Length": length, "Every": every, "Holds": s.table().Markdown(),
		"Traffic": s.traffic().Markdown()})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "soak.md"), text.Bytes(), 0o644); err != nil {
		return err
	}
	return s.draw(filepath.Join(dir, "soak.svg"))
}

func (s *soak) draw(file string) error {
	plots := make([][]*plot.Plot, len(curves)/3)
	for i, c := range curves {
		p := paper.NewPlot(11, c.name, "minutes", c.unit)
		var points plotter.XYs
		for _, values := range s.samples {
			points = append(points, plotter.XY{X: values[0], Y: values[i+1]})
		}
		all, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		half := s.half(i)
		slope, at0 := trend(half)
		ends := plotter.XYs{half[0], half[len(half)-1]}
		for j := range ends {
			ends[j].Y = at0 + slope*ends[j].X
		}
		line, err := plotter.NewLine(ends)
		if err != nil {
			return err
		}
		all.Color, line.Color, line.Width = paper.Ink, paper.Limit, vg.Points(1.5)
		p.Add(all, line)
		p.Y.Min = 0
		plots[i/3] = append(plots[i/3], p)
	}
	return paper.WriteSVG(file, plots, 10*vg.Centimeter, 6*vg.Centimeter, vg.Centimeter/2)
}
