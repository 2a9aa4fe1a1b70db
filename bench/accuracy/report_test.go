package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSameSeedSameFiles(t *testing.T) {
	var files [2]map[string][]byte
	for i := range files {
		dir := t.TempDir()
		o := options{stream: small, changes: 3, out: dir}
		r := o.measure(func(string) {})
		if err := errors.Join(r.write(dir), r.numbers().WriteCSV(dir, "accuracy.csv")); err != nil {
			t.Fatal(err)
		}
		files[i] = make(map[string][]byte)
		for _, name := range []string{"accuracy.md", "accuracy.csv", "accuracy.svg"} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			files[i][name] = data
		}
	}
	for name, data := range files[0] {
		if !bytes.Equal(data, files[1][name]) {
			t.Errorf("%s differs from run to run", name)
		}
	}
	page := string(files[0]["accuracy.md"])
	for _, wrong := range []string{"NaN", "Inf", "<no value>", "{{"} {
		if strings.Contains(page, wrong) {
			t.Errorf("%q is on the page", wrong)
		}
	}
	for _, s := range subjects {
		if !strings.Contains(page, s.name) {
			t.Errorf("%s is not on the page", s.name)
		}
	}
	lines, err := csv.NewReader(bytes.NewReader(files[0]["accuracy.csv"])).ReadAll()
	want := 1 + len(allTraffic)*len(limits)*(1+len(loadEdges)) +
		len(subjects)*len(limits)*len(lengths)
	if err != nil || len(lines) != want {
		t.Errorf("%d lines of numbers, want %d; %v", len(lines), want, err)
	}
}

// TestPageOmitsMissingParts prevents empty numbers by misspelt names in the page's text.
func TestPageOmitsMissingParts(t *testing.T) {
	r := options{stream: small, changes: 1}.measure(func(string) {})
	for name, ask := range map[string]func() error{
		"traffic": func() error { _, err := r.tally("stedy", 100); return err },
		"limit":   func() error { _, err := r.tally("steady", 99); return err },
		"load":    func() error { _, err := r.tallyAtLoad("steady", 100, 91); return err },
		"view":    func() error { _, err := viewNamed("same"); return err },
		"subject": func() error { _, err := r.worstRatio("log", 100, windowMicros); return err },
	} {
		if ask() == nil {
			t.Errorf("a %s that does not exist is found", name)
		}
	}
}

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		part, whole int64
		want        string
	}{{0, 10, "0"}, {0, 0, "–"}, {1, 4, "25.0 %"}, {1, 200, "0.50 %"}, {3, 100_000, "0.003 %"},
		{1, 10_000_000, "1e-05 %"}, {7, 7, "100.0 %"}} {
		if got := percent(c.part, c.whole); got != c.want {
			t.Errorf("%d of %d: %s, want %s", c.part, c.whole, got, c.want)
		}
	}
}

func TestOptions(t *testing.T) {
	for args, part := range map[string]string{
		"-requests=10": "-requests", "-windows=1": "-windows", "-keys=0": "-keys",
		"-changes=0": "-changes", "more": "unexpected",
	} {
		if _, err := parseOptions([]string{args}); err == nil ||
			!strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", args, err)
		}
	}
	o, err := parseOptions(nil)
	if err != nil || o.requests != 10_000_000 || o.seed != 1 {
		t.Errorf("%+v, %v", o, err)
	}
}
