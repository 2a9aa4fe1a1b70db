// Command worker runs a policy's jobs in Go. Start any number of them, on any number of machines:
// together with all drainers they keep to one rate per key.
//
//	bin/admitter --config deploy/quickstart.yaml  # accepts jobs, but does not run them
//	curl -X PUT -d '{"algorithm":"leaking_bucket","outflow":"2/s","capacity":100}' \
//		http://127.0.0.1:8080/v1/policies/mail
//	go run ./examples/worker -policy mail         # runs them: the policy has no target
//	curl -X POST -d '{"to":"ann@example.com"}' http://127.0.0.1:8080/v1/jobs/mail/customer-1
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/workers"
)

func main() {
	url := flag.String("nats", nats.DefaultURL, "`URL` of NATS")
	policy := flag.String("policy", "mail", "`name` of the policy whose jobs to run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *url, *policy); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, policy string) error {
	nc, err := nats.Connect(url, nats.Name("worker"), nats.MaxReconnects(-1),
		nats.PingInterval(2*time.Second))
	if err != nil {
		return err
	}
	defer nc.Close()
	return work(ctx, nc, policy, send)
}

// work runs jobs until ctx ends. Then it hands its partitions over: running jobs may finish, and
// waiting ones continue elsewhere.
func work(ctx context.Context, nc *nats.Conn, policy string, handle workers.Handler) error {
	d, err := workers.New(nc, workers.Options{
		Grace:  20 * time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	d.Handle(policy, handle)
	return d.Run(ctx)
}

// send is the handler. A job may run again after a crash, so a real one would hand
// job.IdempotencyKey on to the mail service.
func send(ctx context.Context, job workers.Job) error {
	var mail struct {
		To string `json:"to"`
	}
	if err := json.Unmarshal(job.Body, &mail); err != nil {
		// no further attempt can help: a dead letter
		return workers.Permanent(fmt.Errorf("read the job: %w", err))
	}
	if mail.To == "" {
		return workers.Permanent(errors.New("nobody to send to"))
	}
	select {
	case <-time.After(50 * time.Millisecond):
		// call the mail service; after 429: return workers.RetryAfter(d, err)
	case <-ctx.Done():
		return ctx.Err() // the policy's timeout, or the end of the grace period: tried again
	}
	fmt.Printf("%s of %s: mail to %s, attempt %d, waited %v\n", job.ID, job.Key.Raw(), mail.To,
		job.Attempt,
		job.Started.Sub(job.Accepted).Round(time.Millisecond))
	return nil
}
