package jet_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

var stripe = policy.Policy{
	Name: "stripe",
	Rule: policy.Rule{Algorithm: policy.LeakingBucket,
		Outflow:  algorithms.Rate{Count: 96, Per: time.Second},
		Capacity: 2},
	Partitions: 1,
}

func ExampleNewBroker() {
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

	ctx := context.Background()
	broker, err := jet.NewBroker(nc, jet.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := broker.Setup(ctx); err != nil {
		log.Fatal(err)
	}
	if err := broker.Apply(ctx, stripe); err != nil {
		log.Fatal(err)
	}

	key, err := queue.EncodeKey("tenant 7")
	if err != nil {
		log.Fatal(err)
	}
	subject := broker.Names().Jobs("stripe", key)
	fmt.Println(subject)
	// Any NATS client can publish there; the server refuses jobs beyond the capacity.
	for range 3 {
		answer, err := nc.Request(subject, []byte("charge"), time.Minute)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(answer.Data))
	}
	depth, err := broker.Depth(ctx, "stripe")
	fmt.Println(depth, err)
	// Output:
	// penstock.jobs.stripe.tenant%207
	// {"stream":"PENSTOCK_stripe","seq":1}
	// {"stream":"PENSTOCK_stripe","seq":2}
	// {"error":{"code":503,"err_code":10077,"description":"maximum messages per subject exceeded"},"stream":"PENSTOCK_stripe","seq":0}
	// 2 <nil>
}

// A producer distinguishes a full bucket from a repeat, and the owner of the partition finishes the
// jobs.
func ExampleBroker_NewProducer() {
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

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	broker, err := jet.NewBroker(nc, jet.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(broker.Setup(ctx), broker.Apply(ctx, stripe)); err != nil {
		log.Fatal(err)
	}
	producer := broker.NewProducer(jet.ProducerOptions{})
	for _, order := range []string{"order-1", "order-2", "order-1", "order-3"} {
		receipt, err := producer.Publish(ctx, jet.Submission{
			Policy: "stripe", Key: "tenant-7", Body: []byte("charge"), IdempotencyKey: order,
		})
		switch {
		case errors.Is(err, jet.ErrFull):
			fmt.Println(order, "refused: the bucket is full")
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println(order, "is job", receipt.Seq, "duplicate:", receipt.Duplicate)
		}
	}

	backlog, err := broker.OpenBacklog(ctx,
		jet.BacklogOptions{Policy: "stripe", Partition: 0, Partitions: 1, Epoch: 1})
	if err != nil {
		log.Fatal(err)
	}
	for finished := 0; finished < 2; {
		next, err := backlog.Next(ctx)
		if err != nil {
			log.Fatal(err) // an owner would open the backlog again
		}
		for _, job := range next.Arrived {
			fmt.Println("finished", job.Seq, job.Key.Raw(), string(job.Body))
			backlog.Done(job.Seq)
			finished++
		}
	}
	if err := backlog.Close(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(broker.Depth(ctx, "stripe"))
	// Output:
	// order-1 is job 1 duplicate: false
	// order-2 is job 2 duplicate: false
	// order-1 is job 1 duplicate: true
	// order-3 refused: the bucket is full
	// finished 1 tenant-7 charge
	// finished 2 tenant-7 charge
	// 0 <nil>
}
