// Command accuracy measures how often a sliding counter and an exact log decide differently, and
// the most that each algorithm passes in any window. It plays package algorithms in virtual time,
// reproducibly by seed.
//
//	go -C bench run ./accuracy                    # docs/accuracy.md, printed
//	go -C bench run ./accuracy -out ../docs       # docs/accuracy.md and .svg
//	go -C bench run ./accuracy -data ../bin       # bin/accuracy.csv: every number that counts
//	go -C bench run ./accuracy -requests 100000 -keys 1000 -seed 7
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	r := o.measure(func(what string) {
		fmt.Fprintln(os.Stderr, time.Now().Format("15:04:05"), what)
	})
	if o.data != "" {
		if err := r.numbers().WriteCSV(o.data, "accuracy.csv"); err != nil {
			return err
		}
	}
	if o.out != "" {
		return r.write(o.out)
	}
	page, err := r.page()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(page)
	return err
}

type options struct {
	stream
	changes int
	out     string
	data    string
}

func (o options) measure(say func(string)) *report {
	r := &report{stream: o.stream}
	for _, t := range allTraffic {
		say(fmt.Sprintf("%s: %d requests under %d limits", t.name, o.requests, len(limits)))
		r.outcomes = append(r.outcomes, o.stream.measure(t))
	}
	say("the most that each algorithm lets pass")
	r.worst = worstCases(o.seed, o.changes)
	return r
}

func parseOptions(args []string) (o options, err error) {
	flags := flag.NewFlagSet("accuracy", flag.ContinueOnError)
	flags.Int64Var(&o.requests, "requests", 10_000_000, "requests of each traffic")
	flags.Int64Var(&o.windows, "windows", 50, "windows in which they come")
	flags.IntVar(&o.keys, "keys", 100_000, "keys that they belong to")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of all that is random")
	flags.IntVar(&o.changes, "changes", 2000,
		"changes that each of five searches for a worst case tries")
	flags.StringVar(&o.out, "out", "",
		"directory to write accuracy.md and .svg to; none: print the page")
	flags.StringVar(&o.data, "data", "",
		"directory to write accuracy.csv to, every number that was counted; none: nowhere")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.requests < 1000 || o.requests > 1_000_000_000:
		return o, fmt.Errorf("-requests %d: want 1000 to 1000000000", o.requests)
	case o.windows < 2 || o.windows > 100_000:
		return o, fmt.Errorf("-windows %d: want 2 to 100000", o.windows)
	case o.keys < 1 || o.keys > 10_000_000:
		return o, fmt.Errorf("-keys %d: want 1 to 10000000", o.keys)
	case o.changes < 1 || o.changes > 1_000_000:
		return o, fmt.Errorf("-changes %d: want 1 to 1000000", o.changes)
	}
	return o, nil
}
