package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sound is a run in which the promise held, and the faults show that it need not have.
func sound() report {
	of := func(calls bool, worst worst) result {
		r := result{row: row{"r50", 10, 200 * ms, calls}, perSecond: 45, full: 100, counted: worst,
			anywhere: worst}
		if !calls {
			r.latency = 20 * ms
		}
		return r
	}
	return report{options: options{windows: 100, window: 200 * ms},
		answer: []result{of(false, worst{most: 10}), of(true, worst{most: 10})},
		start:  []result{of(false, worst{20, 7}), of(true, worst{20, 7})},
		cut:    []result{of(false, worst{19, 3})}}
}

func TestARunCountsOnlyIfFaultsShow(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *report)
		want   string
	}{
		{"all well", func(*report) {}, ""},
		{"over", func(r *report) { r.answer[1].counted = worst{11, 1} }, "held 11 requests"},
		{"over anywhere", func(r *report) { r.answer[0].anywhere = worst{12, 1} }, "12 at worst"},
		{"few windows", func(r *report) { r.answer[0].full = 99 }, "does not count: 99"},
		{"harmless faults", func(r *report) { r.start[1].counted.over = 0 }, "does not count"},
	} {
		r := sound()
		c.change(&r)
		err := r.judge()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestThePageHasTheTable(t *testing.T) {
	r, dir := sound(), t.TempDir()
	r.answer[0].perSecond = 40
	r.window = time.Second
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "strict.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| 10 in 200ms (50/s, calls) | 100 | 0 | 10 |", "LONG=1",
		"0.88 of 45.5, 20ms, MISSED | 7 | 20 |", "held for 4s"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
}
