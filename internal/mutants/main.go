// Command mutants breaks the code on purpose, in one small way after the other, and sees whether a test notices: a test
// that nothing can make fail proves nothing. table.go has the mutants, each with the cheapest test that must notice it. A
// mutant that survives is a missing test, or it is equivalent, and then its row says why.
//
// The tree is never touched: the go command is told of the changed file by -overlay.
//
//	go run ./internal/mutants [-only pattern] [-sample n] [-seed s]
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"
)

func main() {
	sample := flag.Int("sample", 0, "play so many mutants, drawn at random; 0: all")
	seed := flag.Uint64("seed", 0, "what they are drawn by; 0: another one each time")
	only := flag.String("only", "", "play those alone whose name matches this regular expression")
	dir := flag.String("dir", ".", "the module's directory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	named, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	rows := slices.DeleteFunc(slices.Clone(table), func(m mutant) bool { return !named.MatchString(m.name) })
	if *sample > 0 && *sample < len(rows) {
		if *seed == 0 {
			*seed = rand.Uint64()
		}
		fmt.Printf("%d of %d mutants; SAMPLE=%d SEED=%d plays the same\n", *sample, len(rows), *sample, *seed)
		rows = draw(rows, *sample, *seed)
	}
	begun := time.Now()
	results, err := play(ctx, *dir, rows, func(r result) { fmt.Println(r) })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// One whose text has changed would be left out of most samples for long.
	results = append(results, stale(*dir, table, rows)...)
	good := report(os.Stdout, results)
	fmt.Printf("in %v\n", time.Since(begun).Round(time.Second))
	if !good || ctx.Err() != nil {
		os.Exit(1)
	}
}

// draw picks n rows, and keeps their order.
func draw(rows []mutant, n int, seed uint64) []mutant {
	rng := rand.New(rand.NewPCG(seed, 0))
	var drawn []mutant
	for i, m := range rows {
		if rng.IntN(len(rows)-i) < n-len(drawn) {
			drawn = append(drawn, m)
		}
	}
	return drawn
}
