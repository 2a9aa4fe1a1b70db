// Command admitter serves Penstock's APIs: it takes jobs and answers checks over HTTP and NATS. Without nats.url it
// starts a NATS server inside itself, and with --drain also a drainer, so that one process is enough to begin with.
//
//	admitter --config F            serve
//	admitter --config F --drain    serve, and run the jobs of policies with a target
//	admitter validate --config F   say what is wrong with a configuration
//
// It prints one line that begins with "ready " when it can be used. It ends with status 0 when it was told to stop by
// SIGTERM or SIGINT, 1 when it could not go on, and 2 when its configuration or its arguments are wrong.
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
	"github.com/penstock-mq/penstock/policy"
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

const usage = `Usage: admitter [validate] [--config FILE] [flags]

Takes jobs and answers checks over HTTP and NATS. "validate" only says what is wrong with the configuration.

`

// run is the program without the process around it; ctx ends when it is told to stop.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (status int) {
	flags := pflag.NewFlagSet("admitter", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage+flags.FlagUsages()) }
	config.Flags(flags)
	drain := flags.Bool("drain", false, "also run the jobs of policies with a target, in this process")
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return exitStopped
	case err != nil:
		report(stderr, err)
		return exitInvalid
	}
	validate := flags.Arg(0) == "validate"
	if flags.NArg() > 1 || flags.NArg() == 1 && !validate {
		report(stderr, fmt.Errorf("%q: want no arguments, or validate", strings.Join(flags.Args(), " ")))
		return exitInvalid
	}

	cfg, err := config.LoadFile(flags)
	if _, unreadable := errors.AsType[*fs.PathError](err); unreadable {
		report(stderr, err)
		return exitFailed
	}
	if err != nil {
		report(stderr, err)
		return exitInvalid
	}
	if validate {
		for _, warning := range cfg.Warnings {
			report(stderr, errors.New("warning: "+warning))
		}
		fmt.Fprintf(stdout, "the configuration is valid: %d policies\n", len(cfg.Policies))
		return exitStopped
	}
	logger, err := telemetry.NewLogger(stderr, cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		report(stderr, err)
		return exitInvalid
	}
	for _, warning := range cfg.Warnings {
		logger.Warn(warning)
	}
	err = serve(ctx, options{config: cfg, hasFile: hasFile(flags), drain: *drain}, stdout, logger)
	if _, invalid := errors.AsType[*policy.InvalidError](err); invalid {
		report(stderr, err)
		return exitInvalid
	}
	if err != nil {
		report(stderr, err)
		return exitFailed
	}
	return exitStopped
}

// hasFile reports whether a configuration file was named. Without one the policies that a file once wrote are none of
// this process's business; with one that has none they retire.
func hasFile(flags *pflag.FlagSet) bool {
	return flags.Changed("config") || os.Getenv("PENSTOCK_CONFIG") != ""
}

// report prints every line of an error for whoever started the process.
func report(w io.Writer, err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintln(w, "admitter: "+strings.TrimSuffix(line, "\n"))
	}
}
