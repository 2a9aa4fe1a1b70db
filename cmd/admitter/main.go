// Command admitter serves Penstock's APIs: it takes jobs and answers checks over HTTP and NATS.
// Without nats.url it starts a NATS server inside itself, and with --drain also a drainer, so that
// one process is enough to begin with.
//
//	admitter --config FILE            serve
//	admitter --config FILE --drain    serve, and run the jobs of policies with a target
//	admitter validate FILE            say what is wrong with a configuration
//	admitter healthcheck              ask the one that serves whether it is ready
//	admitter token NAME --rights …    make a token for the file of http.tokens
//	admitter nats-user NAME --role …  make a user for the file of nats.embedded.users
//	admitter backup FILE              write jobs, policies and all else into a file
//	admitter restore FILE             make that again, where nothing is
//
// It prints one line that begins with "ready " when it can be used. SIGHUP reads the configuration
// again. On SIGTERM or SIGINT /readyz says at once that it stops; it serves on while jobs finish,
// at least for http.lame_duck, and ends with status 0. A second signal ends it at once. Status 1
// means that it could not go on, and 2 that its configuration or its arguments are wrong.
//
// What it does is package penstock's; here are its flags, its ready line, and a target to try
// things out with.
package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/daemon"
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
		Does: "Takes jobs and answers checks over HTTP and NATS.",
		Flags: func(flags *pflag.FlagSet) {
			config.Flags(flags)
			flags.BoolVar(&drain, "drain", false,
				"also run the jobs of policies with a target, in this process")
			flags.StringVar(&echo, "echo", "",
				"to try things out: say what there is to try, and print what arrives at a target "+
					"at this `host:port`")
		},
		Listen: config.AdmitterListen,
		Check:  checkEnvoy,
		Live:   []string{"set", "prune", "drain.policies"},
		Serve: func(ctx context.Context, p *daemon.Process) error {
			return serve(ctx, p, drain, echo)
		},
	}.Main()
}
