package redisstore_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/algorithms/redisstore"
	"github.com/redis/go-redis/v9"
)

func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR"),
		ContextTimeoutEnabled: true})
	defer rdb.Close()
	client := redisstore.NewClient(rdb, redisstore.Options{Timeout: time.Minute})
	store := redisstore.New(client, "signup", algorithms.TokenBucket{
		Capacity: 2, Refill: algorithms.Rate{Count: 1, Per: time.Hour},
	})
	ctx := context.Background()
	for _, tenant := range []string{"acme", "acme", "acme", "globex"} {
		d, err := store.Take(ctx, tenant, 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(tenant, d.Allowed, d.Remaining)
	}
	_, err := store.Take(ctx, "acme", 3)
	fmt.Println(err)
	// Output:
	// acme true 1
	// acme true 0
	// acme false 0
	// globex true 1
	// cost 3: can never pass, the most is 2
}
