package store_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func Example() {
	server, err := embedded.Start(embedded.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Shutdown()
	nc, err := server.Connect()
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	broker, err := jet.NewBroker(nc, jet.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if err := broker.Setup(ctx); err != nil {
		log.Fatal(err)
	}

	policies := store.New(broker, nil)
	stripe := policy.Policy{Name: "stripe", Rule: policy.Rule{
		Algorithm: policy.LeakingBucket, Capacity: 5000,
		Outflow: algorithms.Rate{Count: 96, Per: time.Second},
	}}
	if _, err := policies.Put(ctx, stripe); err != nil {
		log.Fatal(err)
	}
	stripe.Partitions = 16
	_, err = policies.Put(ctx, stripe)
	fmt.Println(err)

	entry, err := policies.Policy(ctx, "stripe")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(entry.Policy.Outflow, entry.Policy.Partitions, entry.Source)
	_, err = policies.Policy(ctx, "github")
	fmt.Println(errors.Is(err, jet.ErrNotFound))
	// Output:
	// policy stripe: partitions: cannot change from 1 to 16: give the policy a new name
	// 96/s 1 api
	// true
}
