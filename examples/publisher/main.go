// Command publisher publishes jobs with a plain NATS client, without a library of Penstock or an
// admitter. The server confirms each stored job, and refuses jobs for a full bucket.
//
//	make run
//	go run ./examples/publisher -policy demo -key customer-1 -jobs 3
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	url := flag.String("nats", nats.DefaultURL, "`URL` of NATS")
	policy := flag.String("policy", "demo", "`name` of the policy")
	key := flag.String("key", "customer-1", "`key` of the bucket: who or what is limited")
	jobs := flag.Int("jobs", 3, "`number` of jobs to publish")
	flag.Parse()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, *url, "penstock.jobs."+*policy+"."+*key, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "publisher:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, subject string, jobs int) error {
	nc, err := nats.Connect(url, nats.Name("publisher"))
	if err != nil {
		return err
	}
	defer nc.Close()
	return publish(ctx, nc, subject, jobs, os.Stdout)
}

// publish publishes jobs and prints the server's answers.
func publish(ctx context.Context, nc *nats.Conn, subject string, jobs int, out io.Writer) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for i := range jobs {
		ack, err := js.Publish(ctx, subject, fmt.Appendf(nil, `{"to":"customer %d"}`, i+1))
		var refused *jetstream.APIError
		switch {
		case err == nil:
			fmt.Fprintf(out, "job %d: accepted, number %d in %s\n", i+1, ack.Sequence, ack.Stream)
		case errors.As(err, &refused):
			// the bucket is full: come back later
			fmt.Fprintf(out, "job %d: refused: %s\n", i+1, refused.Description)
		case errors.Is(err, jetstream.ErrNoStreamResponse):
			return fmt.Errorf("publish to %s: there is no such policy, or it has no queue", subject)
		default:
			return fmt.Errorf("publish to %s: %w", subject, err) // unknown: it may have been stored
		}
	}
	return nil
}
