package workers_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

// Jobs of one key start in the order of acceptance, a tenth of a second apart: the policy's rate.
func ExampleDrainer_Handle() {
	ctx, nc, end := mail()
	defer end()
	publish(nc, "ada", "first", "second", "third")

	drainer, err := workers.New(nc, workers.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	drainer.Handle("mail", func(_ context.Context, job workers.Job) error {
		fmt.Println(string(job.Body), "letter to", job.Key.Raw())
		if string(job.Body) == "third" {
			stop()
		}
		return nil
	})
	if err := drainer.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// first letter to ada
	// second letter to ada
	// third letter to ada
}

// A handler reports a limit of its target: the job returns to the head of its bucket, which pauses,
// and no attempt counts.
func ExampleRetryAfter() {
	ctx, nc, end := mail()
	defer end()
	publish(nc, "ada", "letter")

	drainer, err := workers.New(nc, workers.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	throttled := true
	drainer.Handle("mail", func(_ context.Context, job workers.Job) error {
		fmt.Println("attempt", job.Attempt)
		if throttled {
			throttled = false
			return workers.RetryAfter(200*time.Millisecond, errors.New("429 Too Many Requests"))
		}
		stop()
		return nil
	})
	if err := drainer.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// attempt 1
	// attempt 1
}

// One process decides when jobs start, another one runs them.
func ExampleOptions_lendOnly() {
	ctx, nc, end := mail()
	defer end()
	ctx, stop := context.WithCancel(ctx)

	owner, err := workers.New(nc, workers.Options{OwnAll: true})
	if err != nil {
		log.Fatal(err)
	}
	worker, err := workers.New(nc, workers.Options{WorkerOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	worker.Handle("mail", func(_ context.Context, job workers.Job) error {
		fmt.Printf("the worker runs the %s\n", job.Body)
		stop()
		return nil
	})

	publish(nc, "ada", "letter")
	ended := make(chan error, 2)
	go func() { ended <- owner.Run(ctx) }()
	go func() { ended <- worker.Run(ctx) }()
	if err := errors.Join(<-ended, <-ended); err != nil {
		log.Fatal(err)
	}
	// Output: the worker runs the letter
}

func mail() (ctx context.Context, nc *nats.Conn, end func()) {
	return serve(policy.Policy{
		Name: "mail",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket,
			Outflow:  algorithms.Rate{Count: 10, Per: time.Second},
			Capacity: 100},
	})
}

func serve(p policy.Policy) (ctx context.Context, nc *nats.Conn, end func()) {
	server, err := embedded.Start(embedded.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if nc, err = server.Connect(); err != nil {
		log.Fatal(err)
	}
	broker, err := jet.NewBroker(nc, jet.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	if err := broker.Setup(ctx); err != nil {
		log.Fatal(err)
	}
	p = p.WithDefaults()
	if _, err := store.New(broker, nil).Put(ctx, p); err != nil {
		log.Fatal(err)
	}
	if err := broker.Apply(ctx, p); err != nil {
		log.Fatal(err)
	}
	return ctx, nc, func() {
		cancel()
		nc.Close()
		server.Shutdown()
	}
}

// publish stores letters, as any NATS client can.
func publish(nc *nats.Conn, key string, letters ...string) {
	for _, letter := range letters {
		if _, err := nc.Request("penstock.jobs.mail."+key, []byte(letter), time.Minute); err !=
			nil {
			log.Fatal(err)
		}
	}
}
