package main

import (
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
)

func filled(value func(i int) float64) *soak {
	s := &soak{}
	for i := range 200 {
		sample := []float64{float64(i)}
		for range curves {
			sample = append(sample, value(i))
		}
		s.samples = append(s.samples, sample)
	}
	return s
}

func TestASoakIsJudgedByItsSecondHalf(t *testing.T) {
	for _, c := range []struct {
		name  string
		value func(i int) float64
		level bool
	}{
		{"full after a third", func(i int) float64 { return float64(min(i, 66)) }, true},
		{"a stall at the end", func(i int) float64 { return 100 + 900*float64(i/190) }, true},
		{"a saw", func(i int) float64 { return 100 + 30*float64(i%5) }, true},
		{"stalls of the second half", func(i int) float64 {
			return 100 + float64(i/100*(i%3)*200)
		}, true},
		{"more and more between stalls", func(i int) float64 {
			return 100 + float64(i) + float64(i%3*200)
		}, false},
		{"less and less", func(i int) float64 { return 400 - float64(i) }, true},
		{"more and more", func(i int) float64 { return 100 + float64(i) }, false},
	} {
		if err := filled(c.value).judge(); (err == nil) != c.level {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestEveryCurveIsDrawn(t *testing.T) {
	dir := t.TempDir()
	if err := filled(func(i int) float64 { return float64(i) }).write(dir, "", 0); err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile(filepath.Join(dir, "soak.svg"))
	for _, c := range curves {
		if name := html.EscapeString(c.name); !strings.Contains(string(picture), name) {
			t.Errorf("nothing of %s, %v", name, err)
		}
	}
}

func TestTrend(t *testing.T) {
	points := plotter.XYs{{X: 1, Y: 5}, {X: 2, Y: 7}, {X: 3, Y: 900}, {X: 4, Y: 11}, {X: 5, Y: 13}}
	if slope, at0 := trend(points); math.Abs(slope-2) > 1e-9 || math.Abs(at0-3) > 1e-9 {
		t.Errorf("the trend is %v x + %v", slope, at0)
	}
}

func TestWithout(t *testing.T) {
	const profile = `heap profile: 3: 8388736 [4: 8388800] @ heap/262144
1: 128 [2: 192] @ 0x1 0x2
#	0x1	github.com/penstock-mq/penstock/queue.New+0x1	queue.go:1

2: 8388608 [2: 8388608] @ 0x3
#	0x3	github.com/nats-io/nats-server/v2/server.getMsgBlockBuf+0x1	filestore.go:1

# runtime.MemStats
# Alloc = 1: 2 [
`
	// one sampled object of 128 bytes represents about 1024
	if got := without(fileBuffers, []byte(profile)); math.Abs(got-profileRate-64) > 1 {
		t.Errorf("%v bytes", got)
	}
	if got := without("nothing", []byte(profile)); math.Abs(got-profileRate-64-8<<20) > 1 {
		t.Errorf("%v bytes with the buffers", got)
	}
}
