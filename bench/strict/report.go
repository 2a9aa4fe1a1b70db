package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
)

// result is what the target saw of a row.
type result struct {
	row
	// perSecond and latency, from the start to the answer, are those of the undisturbed stretch;
	// calls have no latency of their own.
	perSecond float64
	latency   time.Duration

	requests, full    int
	counted, anywhere worst
}

func (r result) formula() float64 { return float64(r.n) / (r.window + r.latency).Seconds() }

type report struct {
	options
	answer, start, cut []result
}

func (r report) table() paper.Table {
	t := paper.Table{{"target allows", "in full use", "over", "worst window", "counted anywhere",
		"undisturbed, /s", "N ÷ (T + latency)", "from the start: over", "worst window"}}
	for i, a := range r.answer {
		s := r.start[i]
		what := ""
		if a.calls {
			what = ", calls"
		}
		reached := "–"
		if a.latency > 0 {
			reached = fmt.Sprintf("%.2f of %.1f, %v", a.perSecond/a.formula(), a.formula(),
				a.latency.Round(time.Millisecond))
			if a.perSecond < leastShare*a.formula() {
				reached += ", MISSED"
			}
		}
		t.Add(fmt.Sprintf("%d in %v (%d/s%s)", a.n, a.window, a.row.perSecond(), what),
			paper.Grouped(a.full), paper.Grouped(a.counted.over), paper.Grouped(a.counted.most),
			paper.Grouped(a.anywhere.most), fmt.Sprintf("%.1f", a.perSecond), reached,
			paper.Grouped(s.counted.over), paper.Grouped(s.counted.most))
	}
	for _, c := range r.cut {
		t.Add(fmt.Sprintf("%d in %v, held for %v with a timeout and max_delay of 1s", c.n, c.window,
			longestHold), paper.Grouped(c.full), paper.Grouped(c.counted.over),
			paper.Grouped(c.counted.most), paper.Grouped(c.anywhere.most), "", "", "", "")
	}
	return t
}

// leastShare of N ÷ (T + mean latency) is wanted undisturbed. Other programs on the machine may be
// why it is missed, so that only marks it.
const leastShare = 0.95

// judge lists what was broken, and why the run does not count.
func (r report) judge() error {
	var broken []error
	add := func(of result, format string, args ...any) {
		broken = append(broken, fmt.Errorf("%s, seed %d: %s", of.name, r.seed,
			fmt.Sprintf(format, args...)))
	}
	for i, a := range r.answer {
		if a.counted.over > 0 || a.anywhere.over > 0 {
			add(a, "a window of %v held %d requests as counted, %d at worst, of %d", a.window,
				a.counted.most, a.anywhere.most, a.n)
		}
		if a.full < r.windows {
			add(a, "the run does not count: %d windows in full use of %d", a.full, r.windows)
		}
		if r.start[i].counted.over == 0 {
			add(a, "the run does not count: counted from the start no window held too many either")
		}
	}
	return errors.Join(broken...)
}

//go:embed page.md
var page string

func (r report) write(dir string) error {
	made, err := template.New("page").Parse(page)
	if err != nil {
		return err
	}
	command := "make strict"
	if r.window >= time.Second {
		command += " LONG=1"
	}
	var b bytes.Buffer
	if err := made.Execute(&b, map[string]any{
		"Machine": paper.Machine("github.com/nats-io/nats-server/v2"),
		"Table":   r.table().Markdown(), "Seed": r.seed, "Windows": r.windows, "Lease": lease,
		"Command":  command,
		"MaxDelay": maxDelay, "Timeout": timeout, "Hold": longestHold, "Share": leastShare,
	}); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "strict.md"), b.Bytes(), 0o644)
}
