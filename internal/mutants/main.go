// Command mutants makes small changes to the code, one at a time, and checks that a test fails: a
// test that cannot fail has no value. Packages list their mutants in testdata/mutants (table.go),
// each with the cheapest test that must fail. A surviving mutant means a missing test, unless it is
// equivalent; then its row gives the reason.
//
// The go command gets the changed files by -overlay. The tests of a package are built once, with
// all of its mutants (weave.go), which then run one by one.
//
//	go run ./internal/mutants [-v] [-only pattern] [-share n [-seed s]]
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"
)

func main() {
	only := flag.String("only", "", "play those alone whose name matches this regular expression")
	share := flag.Int("share", 1, "play one in so many")
	seed := flag.Int("seed", 0, "play the share of this number")
	verbose := flag.Bool("v", false, "tell also what is as it should be, when it is known")
	dir := flag.String("dir", ".", "the module's directory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	named, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	rows, err := read(*dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	rows = slices.DeleteFunc(rows, func(m mutant) bool { return !named.MatchString(m.name) })
	begun := time.Now()
	rows = shareOf(rows, *share, *seed)
	results, err := play(ctx, *dir, rows, func(r result) {
		if *verbose || !r.verdict.good() {
			fmt.Println(r)
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	good := report(os.Stdout, results)
	fmt.Printf("in %v\n", time.Since(begun).Round(time.Second))
	if !good || ctx.Err() != nil {
		os.Exit(1)
	}
}

// shareOf returns an n-th of the rows, of few packages, to compile few tests; n consecutive seeds
// cover all.
func shareOf(rows []mutant, n, seed int) []mutant {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b mutant) int { return cmp.Compare(a.pkg(), b.pkg()) })
	n = max(n, 1)
	return rows[len(rows)*(seed%n)/n : len(rows)*(seed%n+1)/n]
}
