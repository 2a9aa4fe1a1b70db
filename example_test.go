package penstock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

// A throttled caller: an API that allows 100 calls a second is called at 96, however fast the work
// comes in.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	p, err := penstock.Open(ctx, penstock.Options{Policies: []policy.Policy{{Name: "api",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: algorithms.Rate{Count: 96,
			Per: time.Second}, Capacity: 5000}}}})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	p.Handle("api", func(_ context.Context, job workers.Job) error {
		fmt.Printf("calling for %s: %s\n", job.Key.Raw(), job.Body)
		stop() // only here: a program goes on
		return nil
	})
	ticket, err := p.Submit(ctx, penstock.Job{Policy: "api", Key: "customer 1",
		Body: []byte("a charge")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ticket.Verdict, ticket.Job) // or rejected, and when to come back
	if err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// queued api:1
	// calling for customer 1: a charge
}

func ExamplePenstock_Submit() {
	ctx := context.Background()
	p, err := penstock.Open(ctx, penstock.Options{Policies: []policy.Policy{{
		Name: "reports", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
			Outflow: algorithms.Rate{Count: 1, Per: time.Hour}, Capacity: 2}}}})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	for range 3 {
		ticket, err := p.Submit(ctx, penstock.Job{Policy: "reports", Key: "acme"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %s, come back in %s\n", ticket.Verdict, ticket.Job,
			ticket.RetryAfter.Round(time.Minute))
	}
	// Output:
	// queued reports:1, come back in 0s
	// queued reports:2, come back in 0s
	// rejected , come back in 1h0m0s
}

func ExamplePenstock_Check() {
	ctx := context.Background()
	p, err := penstock.Open(ctx, penstock.Options{Policies: []policy.Policy{{
		Name: "signup", Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 2,
			Window: policy.Duration(24 * time.Hour)}}}})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	for range 3 {
		checked, err := p.Check(ctx, penstock.Request{Policy: "signup", Key: "203.0.113.7"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("allowed: %t, remaining: %d, come back in %s\n", checked.Allowed,
			checked.Remaining,
			checked.RetryAfter.Round(time.Hour))
	}
	// Output:
	// allowed: true, remaining: 1, come back in 0s
	// allowed: true, remaining: 0, come back in 0s
	// allowed: false, remaining: 0, come back in 24h0m0s
}
