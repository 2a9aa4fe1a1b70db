package manage_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func ExampleNew() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "manage-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	server, err := embedded.Start(embedded.Options{Dir: dir})
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
	if err := broker.Setup(ctx); err != nil {
		log.Fatal(err)
	}

	service := manage.New(broker, broker.NewProducer(jet.ProducerOptions{}), manage.Options{})
	put, created, err := service.PutPolicy(ctx, policy.Policy{Name: "stripe",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket,
			Outflow: algorithms.Rate{Count: 96, Per: time.Second}, Capacity: 5000}}, manage.Write{})
	fmt.Println(put.Policy.Partitions, put.Paused, created, err)
	paused, err := service.PauseKey(ctx, "stripe", "acme", true)
	fmt.Println(paused.Key, paused.Override.Paused, err)
	bucket, err := service.Bucket(ctx, "stripe", "acme")
	fmt.Println(bucket.Depth, bucket.Unanswered, err)
	// Output:
	// 1 false true <nil>
	// acme true <nil>
	// 0 [0] <nil>
}
