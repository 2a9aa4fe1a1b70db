// Command drain measures how exactly jobs start at their rate, how little one key's backlog delays
// others, how many jobs a second pass unpaced, and the memory of a waiting job. It marks missed
// goals and exits 0.
//
//	go -C bench run ./drain                          # everything, printed
//	go -C bench run ./drain -out ../docs             # and written to docs/bench-drain*
//	go -C bench run ./drain -data ../bin             # the numbers as bin/bench-drain*.csv
//	go -C bench run ./drain -only rate -rates 100 -drainers 4 -time 10s
//	go -C bench run ./drain -only busy -busy 1000,1000/1040,1000/1010/10
//	go -C bench run ./drain -only throughput,memory -profile /tmp/profiles
//	go -C bench run ./drain -only depth -deep 10000000 -out ../docs   # docs/bench-depth-10000000*
//
// It starts real processes on loopback ports in a temporary directory. Some of them are this
// program in another role. See docs/benchmarks.md for the columns.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-mq/penstock/bench/build"
	"github.com/penstock-mq/penstock/bench/paper"
)

var parts = []string{"rate", "busy", "isolation", "throughput", "memory"}

// only on request: see [bench.depth]
const partDepth = "depth"

type options struct {
	only     []string
	rates    []int
	drainers []int
	busy     []setting
	duration time.Duration
	jobs     int
	waiting  []int
	deep     int
	budget   int64 // in bytes, for depth; 0: the default
	out      string
	data     string
	profile  string
}

type bench struct {
	options
	self     string
	admitter string
	dir      string
	progress io.Writer
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == childCommand {
		if err := runChild(os.Args[2], []byte(os.Args[3])); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[2], err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "drain:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	runtime.LockOSThread()
	b := &bench{progress: os.Stderr}
	if b.options, err = parseOptions(args); err != nil {
		return err
	}
	if b.self, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if b.dir, err = os.MkdirTemp("", "penstock-bench-"); err != nil {
		return fmt.Errorf("make a temporary directory: %w", err)
	}
	defer os.RemoveAll(b.dir)
	if b.profile != "" {
		if b.profile, err = filepath.Abs(b.profile); err == nil {
			err = os.MkdirAll(b.profile, 0o755)
		}
		if err != nil {
			return fmt.Errorf("prepare the directory for profiles: %w", err)
		}
	}
	b.say("building the admitter")
	if b.admitter, err = build.Admitter(ctx, b.dir); err != nil {
		return err
	}
	report := report{name: "bench-drain", command: "bench-drain",
		machine: paper.Machine("github.com/nats-io/nats-server/v2")}
	if slices.Equal(b.only, []string{partDepth}) {
		report.name, report.command = b.depthPage(), b.depthCommand()
	}
	failed := b.measure(ctx, &report)
	if err := report.print(os.Stdout); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if failed != nil {
		return failed
	}
	if b.data != "" {
		if err := report.writeData(b.data); err != nil {
			return err
		}
	}
	if b.out != "" {
		return report.write(b.out)
	}
	return nil
}

func (b *bench) measure(ctx context.Context, r *report) (failed error) {
	if slices.Contains(b.only, "rate") {
		for _, rate := range b.rates {
			for _, drainers := range b.drainers {
				row, err := b.rate(ctx, setting{rate: rate, drainers: drainers})
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					failed = errors.Join(failed,
						fmt.Errorf("%d/s with %d drainers: %w", rate, drainers, err))
					continue
				}
				r.rows = append(r.rows, row)
			}
		}
	}
	if slices.Contains(b.only, "busy") {
		rows, figures, err := b.busyRows(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("busy: %w", err))
		}
		r.rows, r.figures = append(r.rows, rows...), append(r.figures, figures...)
	}
	for _, part := range []struct {
		name    string
		measure func(context.Context) ([]figure, error)
	}{{"isolation", b.isolation}, {"throughput", b.throughput}, {"memory", b.memory},
		{partDepth, b.depth}} {
		if !slices.Contains(b.only, part.name) {
			continue
		}
		figures, err := part.measure(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", part.name, err))
		}
		r.figures = append(r.figures, figures...)
	}
	return failed
}

func (b *bench) profileFile(name string) string {
	if b.profile == "" {
		return ""
	}
	return filepath.Join(b.profile, name)
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

func parseOptions(args []string) (o options, err error) {
	flags := flag.NewFlagSet("drain", flag.ContinueOnError)
	only := flags.String("only", strings.Join(parts, ","), "what to measure")
	rates := flags.String("rates", "1,10,100,1000,5000", "outflows of the rate's rows, per second")
	drainers := flags.String("drainers", "1,4", "numbers of drainer processes of the rate's rows")
	busy := flags.String("busy", "100/104,1000/1040,3000/3120,5000/5200,1000",
		"outflows of the busy rows, per second, each with /peak and /burst where not the default")
	flags.DurationVar(&o.duration, "time", 15*time.Second,
		"how long each row of the rate is measured")
	flags.IntVar(&o.jobs, "jobs", 400_000, "jobs in the full queue of the throughput")
	waiting := flags.String("waiting", "300000,1000000",
		"waiting jobs of the memory, ascending, at most 1000000")
	flags.IntVar(&o.deep, "deep", usualDepth, "jobs of the depth, at most 10000000")
	flags.Int64Var(&o.budget, "budget", 0, "memory of the depth's drainer, in bytes")
	flags.StringVar(&o.out, "out", "",
		"directory to write bench-drain.svg and -table.md to; none: print only")
	flags.StringVar(&o.data, "data", "",
		"directory to write bench-drain.csv and -figures.csv to; none: nowhere")
	flags.StringVar(&o.profile, "profile", "",
		"directory to write profiles of throughput and memory to; none: no profiles")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.only = strings.Split(*only, ",")
	for _, name := range o.only {
		if name != partDepth && !slices.Contains(parts, name) {
			return o, fmt.Errorf("-only %s: want some of %s", name, strings.Join(parts, ","))
		}
	}
	for text := range strings.SplitSeq(*busy, ",") {
		s, ok := parseSetting(text)
		if !ok {
			return o, fmt.Errorf("-busy %s: want outflows up to %d, a /peak of at least as much "+
				"and a /burst after each if it has them, with commas between", *busy, mostRate)
		}
		s.drainers, s.busy = 1, true
		o.busy = append(o.busy, s)
	}
	for _, list := range []struct {
		flag, value string
		most        int
		into        *[]int
	}{{"-rates", *rates, mostRate, &o.rates}, {"-drainers", *drainers, mostDrainers, &o.drainers},
		{"-waiting", *waiting, mostWaiting, &o.waiting}} {
		for text := range strings.SplitSeq(list.value, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > list.most {
				return o, fmt.Errorf("%s %s: want whole numbers from 1 to %d with commas between",
					list.flag, list.value, list.most)
			}
			*list.into = append(*list.into, n)
		}
	}
	slices.Sort(o.waiting)
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.deep < 2*shallowJobs || o.deep > mostDepth:
		return o, fmt.Errorf("-deep %d: want %d to %d", o.deep, 2*shallowJobs, mostDepth)
	case o.duration < 3*time.Second || o.duration > time.Hour:
		return o, fmt.Errorf("-time %v: want 3s to 1h", o.duration)
	case o.jobs < 1000 || o.jobs > mostWaiting:
		return o, fmt.Errorf("-jobs %d: want 1000 to %d", o.jobs, mostWaiting)
	}
	return o, nil
}
