// Command drainer runs the jobs of Penstock's queues at their policies' rates. Any number of drainers share the work.
//
//	drainer --config F --nats-url nats://127.0.0.1:4222
//
// It runs the jobs of policies with a target; jobs of others are run by programs that use package workers. With
// http.listen it serves /healthz, /readyz and /metrics. It prints one line that begins with "ready " when it takes part. On
// SIGTERM or SIGINT it hands its partitions over, lets running jobs finish for the grace period, and ends with status 0. 1
// means that it could not go on, 2 that its configuration or its arguments are wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/telemetry"
)

// What the process says by its exit status.
const (
	exitStopped = 0
	exitFailed  = 1
	exitInvalid = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

const usage = `Usage: drainer [--config FILE] [flags]

Runs the jobs of Penstock's queues at their policies' rates.

`

// run is the program without the process around it; ctx ends when it is told to stop.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (status int) {
	flags := pflag.NewFlagSet("drainer", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage+flags.FlagUsages()) }
	config.DrainerFlags(flags)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitStopped
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("%q: want no arguments", strings.Join(flags.Args(), " "))
	}
	if err != nil {
		report(stderr, err)
		return exitInvalid
	}
	cfg, err := config.LoadFile(flags)
	if err == nil && cfg.NATS.URL == "" {
		err = errors.New("nats.url: a drainer needs the URL of a NATS server (--nats-url)")
	}
	if _, unreadable := errors.AsType[*fs.PathError](err); unreadable {
		report(stderr, err)
		return exitFailed
	}
	if err != nil {
		report(stderr, err)
		return exitInvalid
	}
	logger, err := telemetry.NewLogger(stderr, cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		report(stderr, err)
		return exitInvalid
	}
	for _, warning := range cfg.Warnings {
		logger.Warn(warning)
	}
	if err := serve(ctx, cfg, stdout, logger); err != nil {
		report(stderr, err)
		return exitFailed
	}
	return exitStopped
}

// report prints every line of an error for whoever started the process.
func report(w io.Writer, err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintln(w, "drainer: "+strings.TrimSuffix(line, "\n"))
	}
}
