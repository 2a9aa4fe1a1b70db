// Command embedded is all of Penstock in one process: a NATS server, a policy, and a worker. Begin
// with it, or use it to test a program that uses Penstock.
//
//	go run ./examples/embedded
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "embedded:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	// A policy: each key starts ten jobs a second, and holds at most three. The embedded server has
	// no port, and stores its data in a temporary directory.
	p, err := penstock.Open(ctx, penstock.Options{Policies: []policy.Policy{{
		Name: "mail",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket,
			Outflow:  penstock.MustRate("10/s"),
			Capacity: 3},
	}}})
	if err != nil {
		return err
	}
	defer p.Close()

	// A worker, which stops the process after the third job.
	p.Handle("mail", func(_ context.Context, job workers.Job) error {
		fmt.Printf("%s: %s\n", job.ID, job.Body)
		if job.ID == "mail:3" {
			stop()
		}
		return nil
	})

	// Jobs: the fourth exceeds the capacity, and its error has the time to retry.
	for i := range 4 {
		ticket, err := p.Submit(ctx, penstock.Job{Policy: "mail", Key: "customer-1",
			Body: fmt.Appendf(nil, "letter %d", i+1)})
		refused, no := errors.AsType[*penstock.RefusedError](err)
		switch {
		case no:
			fmt.Println(refused.Reason, "for", refused.RetryAfter.Round(time.Millisecond))
		case err != nil:
			return err
		default:
			fmt.Println(ticket.Verdict, ticket.Job)
		}
	}
	return p.Run(ctx)
}
