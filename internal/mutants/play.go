package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// mutant is one small sabotage.
type mutant struct {
	name string
	file string // where, in the module
	old  string // occurs once there
	new  string

	// by is the cheapest test that must notice: a package, the pattern of its tests, and flags, "./workers TestX -seeds 40".
	// A mutant that nothing can notice, because the program does the same with it, says why in equivalent instead.
	by         string
	equivalent string
}

// patience is how long the tests of one mutant may take. One that hangs has noticed, too.
const patience = time.Minute

// verdict is what became of a mutant.
type verdict string

const (
	caught     verdict = "caught"
	hung       verdict = "hung" // until patience was over
	equivalent verdict = "equivalent"

	survived verdict = "SURVIVED"
	outdated verdict = "STALE"  // the text that it changes is not there once
	broken   verdict = "BROKEN" // the row proves nothing, whatever the code does
)

func (v verdict) good() bool { return v == caught || v == hung || v == equivalent }

type result struct {
	mutant
	verdict verdict
	detail  string
	took    time.Duration
}

// play plays mutants on all processors, after their tests have passed without any, and tells each result when it is there.
func play(ctx context.Context, dir string, rows []mutant, tell func(result)) (results []result, err error) {
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	results = make([]result, len(rows))
	failing := unmutated(ctx, dir, rows)
	var wait sync.WaitGroup
	var telling sync.Mutex
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for i := range next {
				begun := time.Now()
				r := result{mutant: rows[i]}
				_, pattern, _ := rows[i].test()
				if why := failing[pattern+" "+rows[i].group()]; why != "" {
					r.verdict, r.detail = broken, "fails without a mutant: "+why
				} else {
					r.verdict, r.detail = playOne(ctx, dir, filepath.Join(scratch, strconv.Itoa(i)), rows[i])
				}
				r.took = time.Since(begun)
				results[i] = r
				telling.Lock()
				tell(r)
				telling.Unlock()
			}
		})
	}
	for i := range rows {
		next <- i
	}
	close(next)
	wait.Wait()
	return results, nil
}

// test takes apart what by says.
func (m mutant) test() (dir, pattern string, flags []string) {
	fields := strings.Fields(m.by)
	if len(fields) < 2 {
		return "", "", nil
	}
	return fields[0], fields[1], fields[2:]
}

// group is what tests of the same package and the same flags have in common: they can run together.
func (m mutant) group() string {
	dir, _, flags := m.test()
	return strings.Join(append([]string{dir}, flags...), " ")
}

// unmutated says of the tests that fail without a mutant what fails, by the pattern and the group. Those of a group run
// together, and one by one only if that does not go well.
func unmutated(ctx context.Context, dir string, rows []mutant) map[string]string {
	patterns := map[string][]string{}
	for _, m := range rows {
		if _, pattern, _ := m.test(); pattern != "" && !slices.Contains(patterns[m.group()], pattern) {
			patterns[m.group()] = append(patterns[m.group()], pattern)
		}
	}
	failing := map[string]string{}
	for group, all := range patterns {
		if v, _ := runTests(ctx, dir, group, strings.Join(all, "|")); v == survived {
			continue
		}
		for _, pattern := range all {
			if v, detail := runTests(ctx, dir, group, pattern); v != survived {
				failing[pattern+" "+group] = detail
			}
		}
	}
	return failing
}

func playOne(ctx context.Context, dir, scratch string, m mutant) (verdict, string) {
	if m.equivalent != "" {
		return equivalent, m.equivalent
	}
	text, err := m.mutated(dir)
	if err != nil {
		return outdated, err.Error()
	}
	overlay, err := overlayOf(dir, scratch, m.file, text)
	if err != nil {
		return broken, err.Error()
	}
	_, pattern, _ := m.test()
	return runTests(ctx, dir, m.group(), pattern, "-overlay", overlay)
}

// mutated is the text of the mutant's file with its change.
func (m mutant) mutated(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("%s has %d times, not once: %s", m.file, n, clip(m.old))
	}
	return strings.Replace(string(text), m.old, m.new, 1), nil
}

// overlayOf writes, under names that begin with scratch, what tells the go command to take a text for a file's.
func overlayOf(dir, scratch, file, text string) (string, error) {
	real, err := filepath.Abs(filepath.Join(dir, file))
	if err != nil {
		return "", err
	}
	changed, overlay := scratch+".go", scratch+".json"
	paths, err := json.Marshal(map[string]any{"Replace": map[string]string{real: changed}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(overlay, paths, 0o600))
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// runTests runs tests of a group and says what that means for a mutant in them.
func runTests(ctx context.Context, dir, group, pattern string, flags ...string) (verdict, string) {
	args := append([]string{
		"test", "-vet=off", "-gcflags=-N -l -dwarf=false", "-ldflags=-s -w", // half the time to build
		"-failfast", "-timeout", patience.String(), "-run", "^(" + pattern + ")$",
	}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, strings.Fields(group)...)...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	name := ""
	if found := failed.FindSubmatch(out); found != nil {
		name = string(found[1])
	}
	switch {
	case bytes.Contains(out, []byte("[no tests to run]")):
		return broken, "no test matches " + pattern
	case err == nil:
		return survived, group + " " + pattern
	case ctx.Err() != nil:
		return broken, "interrupted"
	case bytes.Contains(out, []byte("panic: test timed out")):
		return hung, pattern
	case name != "":
		return caught, name
	case bytes.Contains(out, []byte("\npanic: ")) || bytes.HasPrefix(out, []byte("panic: ")):
		return caught, pattern + " (panic)"
	}
	return broken, clip(string(out))
}

// stale finds those of all rows, but for those played, whose text is not there.
func stale(dir string, all, played []mutant) (results []result) {
	for _, m := range all {
		if slices.Contains(played, m) {
			continue
		}
		if _, err := m.mutated(dir); err != nil {
			results = append(results, result{mutant: m, verdict: outdated, detail: err.Error()})
		}
	}
	return results
}

// clip shortens a text to what fits a line.
func clip(text string) string {
	const most = 160
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}

// String is a line about what became of a mutant.
func (r result) String() string {
	return fmt.Sprintf("%-10s %5.1fs  %s: %s", r.verdict, r.took.Seconds(), r.name, r.detail)
}

// report prints how many came to what, and what is not as it should be; it reports whether all is.
func report(out io.Writer, results []result) (good bool) {
	good = len(results) > 0
	counts := map[verdict]int{}
	for _, r := range results {
		if counts[r.verdict]++; !r.verdict.good() {
			good = false
			fmt.Fprintf(out, "%v\n%s\n\t%s\nbecomes\n\t%s\n", r, r.file, r.old, r.new)
		}
	}
	for _, v := range []verdict{caught, hung, equivalent, survived, outdated, broken} {
		if counts[v] > 0 {
			fmt.Fprintf(out, "%d %s  ", counts[v], v)
		}
	}
	fmt.Fprintln(out)
	return good
}
