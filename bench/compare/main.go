// Command compare drains a backlog with four worker processes of each of several job queues, and
// shows how they keep a shared limit, the effect of a killed worker, and other costs. See
// docs/compare.md. It needs redis-server, node, npm and the npm registry, and PostgreSQL for River.
//
//	go -C bench run ./compare                 # everything, printed
//	go -C bench run ./compare -out ../docs    # and written to docs/compare.md and docs/compare.svg
//	go -C bench run ./compare -jobs 1000 -only Penstock
//	go -C bench run ./compare -strict -out ../docs   # a target that refuses: docs/compare-strict.*
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"
)

type options struct {
	jobs   int
	many   int
	strict bool
	only   *regexp.Regexp
	out    string
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == childCommand {
		if err := runChild(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, "compare:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	runtime.LockOSThread()
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "penstock-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.strict {
		return runStrict(ctx, dir, o)
	}
	var results []result
	for _, s := range systems(dir) {
		if !o.only.MatchString(s.name()) {
			continue
		}
		r, err := measure(ctx, s, o)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return fmt.Errorf("-only %s: no system has such a name", o.only)
	}
	if err := table(results).Print(os.Stdout); err != nil {
		return err
	}
	if o.out == "" {
		return nil
	}
	return write(o.out, results, o)
}

// leastJobs leaves half of them waiting when a worker is killed.
const leastJobs = 10 * limit

func parseOptions(args []string) (o options, err error) {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.IntVar(&o.jobs, "jobs", 2000, "how many jobs are drained at the limit")
	flags.IntVar(&o.many, "many", 100_000, "how many are added, kept, and drained without it")
	flags.StringVar(&o.out, "out", "", "directory to write the table and the picture to")
	flags.BoolVar(&o.strict, "strict", false,
		"compare at a target that refuses what is above its limit, at several latencies")
	only := flags.String("only", "", "measure systems whose names match this expression")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.jobs < leastJobs || o.jobs > 100_000:
		return o, fmt.Errorf("-jobs %d: want %d to 100000", o.jobs, leastJobs)
	case o.many < 10_000 || o.many > 500_000:
		return o, fmt.Errorf("-many %d: want 10000 to 500000", o.many)
	}
	o.only, err = regexp.Compile(*only)
	return o, err
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
