// Command service measures submissions and checks over HTTP and NATS, single and in batches, and
// compares them to a plain net/http server, bare requests, raw publishing and envoyproxy/ratelimit.
// It marks missed goals and exits 0. It needs redis-server.
//
//	go -C bench run ./service                 # everything, printed
//	go -C bench run ./service -out ../docs    # and written to docs/bench-service.md
//	go -C bench run ./service -rounds 1 -time 500ms -peer=false
//	go -C bench run ./service -admitter ../bin/old   # of another build
//	go -C bench run ./service -only drainer -time 10s   # for a look at a process with pprof
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
)

type options struct {
	rounds   int
	length   time.Duration
	peer     bool
	admitter string
	out      string
	only     string
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == plainCommand {
		fmt.Fprintln(os.Stderr, plain())
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	runtime.LockOSThread()
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	others := busy()
	servers, err := startServers(ctx, o)
	defer servers.stop()
	if err != nil {
		return err
	}
	r := report{options: o, machine: paper.Machine("github.com/nats-io/nats-server/v2"),
		noPeer: servers.noPeer, others: others}
	all, err := servers.rows(ctx)
	if err != nil {
		return err
	}
	r.rows = pick(all, o.only)
	for round := range o.rounds {
		for i := range r.rows {
			row := &r.rows[i]
			say("round %d of %d: %s", round+1, o.rounds, row.name)
			s, err := row.load.run(ctx, o.length)
			if err != nil {
				return fmt.Errorf("%s: %w", row.name, err)
			}
			row.samples = append(row.samples, s)
		}
	}
	if err := r.print(os.Stdout); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if o.out == "" {
		return nil
	}
	return r.write(o.out)
}

// busy is the load average; empty: unknown.
func busy() string {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	return load
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

func parseOptions(args []string) (o options, err error) {
	flags := flag.NewFlagSet("service", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 5, "how often each row is measured")
	flags.DurationVar(&o.length, "time", 2*time.Second, "how long each row of a round takes")
	flags.BoolVar(&o.peer, "peer", true, "measure envoyproxy/ratelimit too")
	flags.StringVar(&o.admitter, "admitter", "", "program to measure; default: it is built")
	flags.StringVar(&o.only, "only", "",
		"measure rows only whose names hold this, and what they are compared with")
	flags.StringVar(&o.out, "out", "", "directory to write bench-service.md to; none: print only")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.rounds < 1 || o.rounds > 100:
		return o, fmt.Errorf("-rounds %d: want 1 to 100", o.rounds)
	case o.length < 100*time.Millisecond || o.length > time.Minute:
		return o, fmt.Errorf("-time %v: want 100ms to 1m", o.length)
	}
	return o, nil
}
