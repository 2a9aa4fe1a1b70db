// Command admitter serves Penstock's API: it accepts jobs and answers checks over HTTP and NATS.
// Without nats.url it starts an embedded NATS server, and with --drain it also runs a drainer, so
// one process suffices.
//
//	admitter --config FILE            serve
//	admitter --config FILE --drain    serve, and run the jobs of policies with a target
//	admitter validate FILE            report the problems of a configuration
//	admitter healthcheck              ask the running admitter if it is ready
//	admitter token NAME --rights …    make a token for the file of http.tokens
//	admitter nats-user NAME --role …  make a user for the file of nats.embedded.users
//	admitter backup FILE              write all jobs, policies and other state to a file
//	admitter restore FILE             restore a backup into an empty installation
//
// It prints a line beginning with "ready " when it can be used. SIGHUP reloads the configuration.
// On SIGTERM or SIGINT /readyz fails at once, while it serves until jobs finish, and at least for
// http.lame_duck; then the status is 0. A second signal ends it immediately. Status 1: it failed;
// 2: its configuration or arguments are wrong.
package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/server/daemon"
)

func main() {
	makes := map[string]func(args []string, stdout, stderr io.Writer) int{
		"token": token, "nats-user": natsUser, "backup": makeBackup, "restore": restore}
	if len(os.Args) > 1 && makes[os.Args[1]] != nil {
		os.Exit(makes[os.Args[1]](os.Args[2:], os.Stdout, os.Stderr))
	}
	var drain bool
	var echo string
	daemon.Command{
		Name: "admitter",
		Does: "Accepts jobs and rate limit checks over HTTP and NATS.",
		Flags: func(flags *pflag.FlagSet) {
			config.Flags(flags)
			flags.BoolVar(&drain, "drain", false,
				"also drain policies with a target in this process")
			flags.StringVar(&echo, "echo", "",
				"for a first try: print example commands, and requests to a target "+
					"at this `host:port`")
		},
		Listen: config.AdmitterListen,
		Check:  checkEnvoy,
		Live:   []string{"set", "prune", "allow_shrink", "drain.policies"},
		More: []string{"token NAME --rights RIGHTS [flags]", "nats-user NAME --role ROLE [flags]",
			"backup FILE [flags]", "restore FILE [flags]"},
		Serve: func(ctx context.Context, p *daemon.Process) error {
			return serve(ctx, p, drain, echo)
		},
	}.Main()
}
