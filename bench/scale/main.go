// Command scale measures how Penstock's cost grows with policies, keys, waiting jobs, drainers and
// admitters, each compared to a bare nats-server with the same work in the same run.
//
//	go -C bench run ./scale                              # everything, printed
//	go -C bench run ./scale -out ../docs                 # and written to docs/scale-*
//	go -C bench run ./scale -only policies -policies 10,1000
//	go -C bench run ./scale -large -out ../docs          # with the large ends, which take longer
//
// Everything is on loopback, in a temporary directory. See docs/scale.md for the columns.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-mq/penstock/bench/build"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

// parts measure one size each.
var parts = []struct {
	name    string
	usual   string
	large   string
	most    int
	measure func(b *bench, n int) []figure
}{
	{"policies", "10,100,1000", "10000", 10_000, (*bench).policies},
	{"keys", "100,10000,100000", "1000000", 1_000_000, (*bench).keys},
	{"waiting", "10000,100000,1000000", "10000000", 10_000_000, (*bench).waiting},
	{"drainers", "1,2,4,8", "16,32", 32, (*bench).drainers},
	{"admitters", "1,2,4,8", "", 8, (*bench).admitters},
	{"cluster", "10,100,300", "", 1000, (*bench).cluster},
}

type bench struct {
	ctx       context.Context
	dir, self string
	sizes     map[string][]int
	idleFor   time.Duration
	out       string
	processes []*proctest.Process
}

type failure struct{ error }

func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func get[T any](value T, err error) T {
	must(err)
	return value
}

func (b *bench) try(measure func(*bench, int) []figure, n int) (figures []figure, err error) {
	defer func() {
		for _, p := range b.processes {
			p.Kill()
		}
		b.processes = nil
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	return measure(b, n), nil
}

func main() {
	if len(os.Args) == 3 && (os.Args[1] == asDrainer || os.Args[1] == asPuller) {
		fmt.Fprintln(os.Stderr, child(os.Args[1], os.Args[2]))
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	// The kernel kills children when the thread that started them ends.
	runtime.LockOSThread()
	b, err := parse(args)
	if err != nil {
		return err
	}
	b.ctx = ctx
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "penstock-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	say("building the admitter and nats-server")
	if err := build.Programs(ctx, b.dir, "./cmd/admitter",
		"github.com/nats-io/nats-server/v2"); err != nil {
		return err
	}
	var r report
	var failed error
	for _, p := range parts {
		for _, n := range b.sizes[p.name] {
			if ctx.Err() != nil {
				break
			}
			say("%s: %d", p.name, n)
			figures, err := b.try(p.measure, n)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%d %s: %w", n, p.name, err))
				continue
			}
			r.add(p.name, n, figures)
		}
	}
	failed = errors.Join(failed, ctx.Err())
	if err := r.print(os.Stdout); err != nil || b.out == "" {
		return errors.Join(failed, err)
	}
	return errors.Join(failed, r.write(b.out))
}

func parse(args []string) (*bench, error) {
	b := &bench{sizes: map[string][]int{}}
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	var names []string
	given := map[string]*string{}
	for _, p := range parts {
		names = append(names, p.name)
		given[p.name] = flags.String(p.name, p.usual, "sizes to measure, ascending")
	}
	only := flags.String("only", strings.Join(names, ","), "what to measure")
	large := flags.Bool("large", false, "measure the large ends too")
	flags.DurationVar(&b.idleFor, "idle", 20*time.Second, "how long idle processes are watched")
	flags.StringVar(&b.out, "out", "", "directory to write scale-* to; none: print only")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(*only, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("-only %s: want some of %s", name, strings.Join(names, ","))
		}
		p, list := parts[i], *given[name]
		if *large && list == p.usual && p.large != "" {
			list += "," + p.large
		}
		for text := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > p.most {
				return nil, fmt.Errorf("-%s %s: want whole numbers from 1 to %d, with commas",
					name, list, p.most)
			}
			b.sizes[name] = append(b.sizes[name], n)
		}
	}
	return b, nil
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
