package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

type mutant struct {
	name string
	file string
	old  string // occurs exactly once
	new  string

	// by is the cheapest test that must fail: a package, a pattern of tests, and flags, such as
	// "./workers TestX -seeds 40". For a mutant without any effect, equivalent gives the reason
	// instead.
	by         string
	equivalent string
}

// patience bounds the tests of one mutant.
const patience = 3 * time.Minute

type verdict string

const (
	caught     verdict = "caught"
	equivalent verdict = "equivalent"

	survived verdict = "SURVIVED"
	outdated verdict = "STALE"  // its text does not occur exactly once
	broken   verdict = "BROKEN" // the row is useless
)

func (v verdict) good() bool { return v == caught || v == equivalent }

type result struct {
	mutant
	verdict verdict
	detail  string
	took    time.Duration
}

// play plays mutants concurrently, after their tests have passed without any, and reports each
// result. Unexpected results may be due to a busy machine and are repeated one by one.
func play(ctx context.Context, dir string, rows []mutant,
	tell func(result)) (results []result, err error) {
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	t, err := newTests(ctx, dir, scratch, rows)
	if err != nil {
		return nil, err
	}
	// Tests wait half of their time, so run two per processor.
	results = t.all(ctx, scratch, rows, 2*runtime.GOMAXPROCS(0), tell)
	var doubtful []mutant
	var at []int
	for i, r := range results {
		if !r.verdict.good() && r.verdict != outdated {
			doubtful, at = append(doubtful, r.mutant), append(at, i)
		}
	}
	for i, r := range t.all(ctx, scratch, doubtful, 1, tell) {
		results[at[i]] = r
	}
	return results, nil
}

func (t *tests) all(ctx context.Context, scratch string, rows []mutant, atOnce int,
	tell func(result)) []result {
	results := make([]result, len(rows))
	failing := t.unmutated(ctx, rows, atOnce)
	var telling sync.Mutex
	numbers := make([]int, len(rows))
	for i := range numbers {
		numbers[i] = i
	}
	each(numbers, atOnce, func(i int) {
		begun := time.Now()
		r := result{mutant: rows[i]}
		_, pattern, _ := rows[i].test()
		if why := failing[pattern+" "+rows[i].group()]; why != "" {
			r.verdict, r.detail = broken, "fails without a mutant: "+why
		} else {
			r.verdict, r.detail = t.play(ctx, filepath.Join(scratch, strconv.Itoa(i)), rows[i])
		}
		r.took = time.Since(begun)
		results[i] = r
		telling.Lock()
		tell(r)
		telling.Unlock()
	})
	return results
}

// test splits by.
func (m mutant) test() (dir, pattern string, flags []string) {
	fields := strings.Fields(m.by)
	if len(fields) < 2 {
		return "", "", nil
	}
	return fields[0], fields[1], fields[2:]
}

func (m mutant) pkg() string { dir, _, _ := m.test(); return dir }

// group identifies tests of the same package with the same flags, which can run together.
func (m mutant) group() string {
	dir, _, flags := m.test()
	return strings.Join(append([]string{dir}, flags...), " ")
}

// unmutated returns the failures of tests without mutants, by pattern and group. A group runs
// together, and one by one if that fails.
func (t *tests) unmutated(ctx context.Context, rows []mutant, atOnce int) map[string]string {
	patterns := map[string][]string{}
	for _, m := range rows {
		if _, pattern, _ := m.test(); pattern != "" &&
			!slices.Contains(patterns[m.group()], pattern) {
			patterns[m.group()] = append(patterns[m.group()], pattern)
		}
	}
	failing := map[string]string{}
	var mu sync.Mutex
	each(slices.Collect(maps.Keys(patterns)), atOnce, func(group string) {
		all := patterns[group]
		if v, _ := t.run(ctx, group, strings.Join(all, "|"), 0); v == survived {
			return
		}
		for _, pattern := range all {
			if v, detail := t.run(ctx, group, pattern, 0); v != survived {
				mu.Lock()
				failing[pattern+" "+group] = detail
				mu.Unlock()
			}
		}
	})
	return failing
}

func each[T any](all []T, atOnce int, do func(T)) {
	var wait sync.WaitGroup
	next := make(chan T)
	for range atOnce {
		wait.Go(func() {
			for one := range next {
				do(one)
			}
		})
	}
	for _, one := range all {
		next <- one
	}
	close(next)
	wait.Wait()
}

func (t *tests) play(ctx context.Context, scratch string, m mutant) (v verdict, detail string) {
	if m.equivalent != "" {
		return equivalent, m.equivalent
	}
	text, err := m.mutated(t.dir)
	if err != nil {
		return outdated, err.Error()
	}
	_, pattern, _ := m.test()
	if number := t.numbers[m]; number > 0 && t.binaries[m.pkg()] != "" {
		v, detail = t.run(ctx, m.group(), pattern, number)
	} else {
		overlay, err := overlayOf(t.dir, scratch, map[string]string{m.file: text})
		if err != nil {
			return broken, err.Error()
		}
		v, detail = t.build(ctx, m.group(), pattern, overlay)
	}
	return v, detail
}

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

// cheaply are flags that halve the time of building tests.
var cheaply = []string{"-vet=off", "-gcflags=-N -l -dwarf=false", "-ldflags=-s -w"}

// run runs tests of a group with a woven mutant, or without one if number is 0, and returns the
// verdict.
func (t *tests) run(ctx context.Context, group, pattern string, number int) (verdict, string) {
	pkg, flags, _ := strings.Cut(group, " ")
	binary := t.binaries[pkg]
	if binary == "" {
		return t.build(ctx, group, pattern, "")
	}
	args := append(limits(pattern), strings.Fields(flags)...)
	for i, arg := range args {
		if name, own := strings.CutPrefix(arg, "-"); own && slices.Contains(testFlags, name) {
			args[i] = "-test." + name
		}
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(t.dir, pkg)
	cmd.Env = append(environment(t.overlay, number > 0), played+"="+strconv.Itoa(number))
	return judged(ctx, cmd, group, pattern)
}

// build is run for a mutant with tests built for it alone.
func (t *tests) build(ctx context.Context, group, pattern, overlay string) (verdict, string) {
	args := slices.Concat([]string{"test", "-overlay", overlay}, cheaply, limits(pattern),
		strings.Fields(group))
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = t.dir, environment(overlay, overlay != "")
	return judged(ctx, cmd, group, pattern)
}

// environment returns the environment of tests: programs that they build contain the mutants as
// well. With a mutant, tests wait only briefly.
func environment(overlay string, mutated bool) []string {
	env := append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	if mutated {
		env = append(env, waittest.Impatient+"=1")
	}
	return env
}

func limits(pattern string) []string {
	return []string{"-failfast", "-timeout", patience.String(), "-run", "^(" + pattern + ")$"}
}

// testFlags lists flags that test binaries have under longer names.
var testFlags = []string{"failfast", "timeout", "run", "count"}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

func judged(ctx context.Context, cmd *exec.Cmd, group, pattern string) (verdict, string) {
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	name := ""
	if found := failed.FindSubmatch(out); found != nil {
		name = string(found[1])
	}
	switch {
	case bytes.Contains(out, []byte("no tests to run")):
		return broken, "no test matches " + pattern
	case err == nil:
		return survived, group + " " + pattern
	case ctx.Err() != nil:
		return broken, "interrupted"
	case bytes.Contains(out, []byte("panic: test timed out")):
		return broken, pattern + " does not end: a busy machine may be all that it noticed"
	case name != "":
		return caught, name
	case bytes.Contains(out, []byte("\npanic: ")) || bytes.HasPrefix(out, []byte("panic: ")):
		return caught, pattern + " (panic)"
	}
	return broken, clip(string(out))
}

func clip(text string) string {
	const most = 160
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}

func (r result) String() string {
	return fmt.Sprintf("%-10s %5.1fs  %s: %s", r.verdict, r.took.Seconds(), r.name, r.detail)
}

func report(out io.Writer, results []result) (good bool) {
	good = len(results) > 0
	counts := map[verdict]int{}
	for _, r := range results {
		if counts[r.verdict]++; !r.verdict.good() {
			good = false
			fmt.Fprintf(out, "%v\n%s\n\t%s\nbecomes\n\t%s\n", r, r.file, r.old, r.new)
		}
	}
	for _, v := range []verdict{caught, equivalent, survived, outdated, broken} {
		if counts[v] > 0 {
			fmt.Fprintf(out, "%d %s  ", counts[v], v)
		}
	}
	fmt.Fprintln(out)
	return good
}
