// Command drainer runs the jobs of policies with a target; programs with package workers run
// others. Any number of drainers share the work.
//
// With http.listen it serves /healthz, /readyz and /metrics. It prints a line beginning with "ready
// " when it takes part. SIGHUP reloads the log level and drain.policies. On SIGTERM or SIGINT it
// hands over its partitions, lets running jobs finish within the grace period, and exits with
// status 0; a second signal ends it. Status 1 means that it failed, 2 that its configuration or
// arguments are wrong.
package main

import (
	"errors"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/server/daemon"
)

func main() {
	daemon.Command{
		Name:  "drainer",
		Does:  "Runs queued jobs at their policies' rates.",
		Flags: config.DrainerFlags,
		Check: func(c config.Config) error {
			if c.NATS.URL == "" {
				return errors.New("nats.url: a drainer needs the URL of a NATS server (--nats-url)")
			}
			return nil
		},
		Live:  []string{"set", "prune", "allow_shrink", "drain.policies"},
		Serve: serve,
	}.Main()
}
