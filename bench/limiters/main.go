// Command limiters compares Penstock's rate limiters with common ones for Go, in memory and in
// Redis: time, allocations, and memory per key. It marks missed goals and exits 0. It needs
// redis-server and redis-benchmark.
//
//	go -C bench run ./limiters                 # everything, printed
//	go -C bench run ./limiters -out ../docs    # and written to docs/bench-limiters.md
//	go -C bench run ./limiters -rounds 1 -time 50ms
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
)

var parts = []struct {
	name    string
	measure func(*bench, context.Context) ([]table, error)
}{
	{"memory", (*bench).memory},
	{"redis", (*bench).redis},
}

type options struct {
	only   []string
	rounds int
	length time.Duration
	out    string
}

type bench struct{ options }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "limiters:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	var b bench
	if b.options, err = parseOptions(args); err != nil {
		return err
	}
	r := report{machine: paper.Machine(modules...), rounds: b.rounds, length: b.length}
	for _, part := range parts {
		if !slices.Contains(b.only, part.name) {
			continue
		}
		tables, err := part.measure(&b, ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		r.tables = append(r.tables, tables...)
	}
	if err := r.print(os.Stdout); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if b.out == "" {
		return nil
	}
	return r.write(b.out)
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

func parseOptions(args []string) (o options, err error) {
	var names []string
	for _, part := range parts {
		names = append(names, part.name)
	}
	flags := flag.NewFlagSet("limiters", flag.ContinueOnError)
	only := flags.String("only", strings.Join(names, ","), "what to measure")
	flags.IntVar(&o.rounds, "rounds", 5, "how often each time is measured")
	flags.DurationVar(&o.length, "time", 200*time.Millisecond,
		"how long each measurement of a round takes; that of a limiter in Redis four times as long")
	flags.StringVar(&o.out, "out", "", "directory to write bench-limiters.md to; none: print only")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.only = strings.Split(*only, ",")
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			return o, fmt.Errorf("-only %s: want some of %s", name, strings.Join(names, ","))
		}
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.rounds < 1 || o.rounds > 1000:
		return o, fmt.Errorf("-rounds %d: want 1 to 1000", o.rounds)
	case o.length < time.Millisecond || o.length > time.Minute:
		return o, fmt.Errorf("-time %v: want 1ms to 1m", o.length)
	}
	return o, nil
}
