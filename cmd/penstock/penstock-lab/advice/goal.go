// Package advice searches for a policy that lets a trace meet goals.
package advice

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/workers/whatif"
)

// Goals are what a policy has to keep to.
type Goals struct {
	// Outflow bounds a bucket's starts within Per by the rule, for any trace; zero: unlimited.
	Outflow algorithms.Rate
	Bounds  []Bound
}

// Bound bounds a figure of a policy.
type Bound struct {
	Name string
	Most float64
	figure
}

type figure struct {
	value func(whatif.Figures) float64
	read  func(string) (float64, error)
	wait  bool
}

var figures = map[string]figure{
	"refused":  {whatif.Figures.RefusedShare, share, false},
	"stale":    {whatif.Figures.StaleShare, share, false},
	"wait p50": {func(f whatif.Figures) float64 { return seconds(f.Wait.P50) }, duration, false},
	"wait p99": {func(f whatif.Figures) float64 { return seconds(f.Wait.P99) }, duration, true},
	"wait max": {func(f whatif.Figures) float64 { return seconds(f.Wait.Max) }, duration, true},
	"depth":    {func(f whatif.Figures) float64 { return float64(f.Depth) }, number, false},
}

const want = "want goals such as refused <= 0.1%, stale <= 1%, wait p50 <= 1s, wait p99 <= 30s, " +
	"wait max <= 1m, depth <= 1000, outflow <= 50/s"

// ParseGoals parses goals separated by commas.
func ParseGoals(text string) (g Goals, err error) {
	for goal := range strings.SplitSeq(text, ",") {
		name, most, ok := strings.Cut(goal, "<")
		name, most = strings.Join(strings.Fields(name), " "), strings.TrimSpace(
			strings.TrimPrefix(most, "="))
		figure, known := figures[name]
		switch {
		case !ok || !known && name != "outflow":
			return g, fmt.Errorf("goal %q: %s", strings.TrimSpace(goal), want)
		case name == "outflow":
			g.Outflow, err = algorithms.ParseRate(most)
		default:
			b := Bound{Name: name, figure: figure}
			b.Most, err = b.read(most)
			g.Bounds = append(g.Bounds, b)
		}
		if err != nil {
			return g, fmt.Errorf("goal %s: %w", name, err)
		}
	}
	if len(g.Bounds) == 0 {
		return g, errors.New("goals: " + want)
	}
	return g, nil
}

// Strain is the largest ratio of a figure to its goal: more than 1 exceeds it.
func (g Goals) Strain(f whatif.Figures) (most float64) {
	for _, b := range g.Bounds {
		switch is := b.value(f); {
		case is == 0:
		case b.Most == 0:
			return math.Inf(1)
		default:
			most = max(most, is/b.Most)
		}
	}
	return most
}

// total ranks policies of equal Strain, such as an infinite one.
func (g Goals) total(f whatif.Figures) (sum float64) {
	const zero = 1e-9 // for a goal of 0: outweighs all other goals
	for _, b := range g.Bounds {
		sum += b.value(f) / max(b.Most, zero)
	}
	return sum
}

// wait is the longest wait allowed, 0 for any.
func (g Goals) wait() (most time.Duration) {
	for _, b := range g.Bounds {
		if d := time.Duration(b.Most * float64(time.Second)); b.wait && (most == 0 || d < most) {
			most = d
		}
	}
	return most
}

func seconds(m whatif.Millis) float64 { return time.Duration(m).Seconds() }

func share(text string) (float64, error) {
	digits, percent := strings.CutSuffix(text, "%")
	n, err := number(strings.TrimSpace(digits))
	if percent {
		n /= 100
	}
	if err != nil || n > 1 {
		return 0, fmt.Errorf("%q: want a share such as 0.1%%", text)
	}
	return n, nil
}

func number(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("%q: want a number", text)
	}
	return n, nil
}

func duration(text string) (float64, error) {
	d, err := algorithms.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q: want a duration such as 30s", text)
	}
	return d.Seconds(), nil
}
