// Command drainer runs the jobs of Penstock's queues at their policies' rates. Any number of
// drainers share the work.
//
//	drainer --config FILE --nats-url nats://127.0.0.1:4222
//	drainer validate FILE
//	drainer healthcheck --http-listen 127.0.0.1:8081
//
// It runs the jobs of policies with a target; jobs of others are run by programs that use package
// workers. With http.listen it serves /healthz, /readyz and /metrics. It prints one line that
// begins with "ready " when it takes part. SIGHUP reads the configuration again: the log level and
// drain.policies apply, other settings need a restart. On SIGTERM or SIGINT it hands its partitions
// over, lets running jobs finish for the grace period, and ends with status 0. A second signal ends
// it at once. Status 1 means that it could not go on, and 2 that its configuration or its arguments
// are wrong.
package main

import (
	"errors"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/daemon"
)

func main() {
	daemon.Command{
		Name:  "drainer",
		Does:  "Runs the jobs of Penstock's queues at their policies' rates.",
		Flags: config.DrainerFlags,
		Check: func(c config.Config) error {
			if c.NATS.URL == "" {
				return errors.New("nats.url: a drainer needs the URL of a NATS server (--nats-url)")
			}
			return nil
		},
		Live:  []string{"set", "prune", "drain.policies"},
		Serve: serve,
	}.Main()
}
