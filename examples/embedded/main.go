// Command embedded is all of Penstock in one process: a NATS server, a policy, and a worker. It is how to begin, and
// how to test a program that uses Penstock.
//
//	go run ./examples/embedded
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
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
	server, err := embedded.Start(embedded.Options{}) // a temporary directory, and no port
	if err != nil {
		return err
	}
	defer server.Shutdown()
	nc, err := server.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()

	// A policy: each key starts ten jobs a second, and holds at most three.
	mail := policy.Policy{
		Name:      "mail",
		Algorithm: policy.LeakingBucket,
		Outflow:   algorithms.Rate{Count: 10, Per: time.Second},
		Capacity:  3,
	}.WithDefaults()
	broker, err := queue.NewBroker(nc, queue.Options{})
	if err != nil {
		return err
	}
	if err := broker.Setup(ctx); err != nil {
		return err
	}
	if _, err := broker.PutPolicy(ctx, mail); err != nil {
		return err
	}
	if err := broker.Apply(ctx, mail); err != nil { // makes its stream; an admitter does that for policies of its file
		return err
	}

	// Jobs, published as any NATS client can.
	for i := range 4 {
		answer, err := nc.RequestWithContext(ctx, "penstock.jobs.mail.customer-1", fmt.Appendf(nil, "letter %d", i+1))
		if err != nil {
			return err
		}
		fmt.Println(string(answer.Data))
	}

	// A worker, which stops when the third job is done.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d, err := workers.New(nc, workers.Options{})
	if err != nil {
		return err
	}
	d.Handle("mail", func(_ context.Context, job workers.Job) error {
		fmt.Printf("%s: %s\n", job.ID, job.Body)
		if job.ID == "mail:3" {
			stop()
		}
		return nil
	})
	return d.Run(ctx)
}
