package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/algorithms/memstore"
)

func ExampleNew() {
	ctx := context.Background()
	store := memstore.New(algorithms.TokenBucket{Capacity: 2,
		Refill: algorithms.Rate{Count: 1, Per: time.Hour}})
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
	fmt.Println(store.Len(), "keys")
	// Output:
	// acme true 1
	// acme true 0
	// acme false 0
	// globex true 1
	// cost 3: can never pass, the most is 2
	// 2 keys
}

func ExampleStore_SetRule() {
	ctx := context.Background()
	store := memstore.New(algorithms.SlidingCounter{Limit: 100, Window: 24 * time.Hour})
	d, _ := store.Take(ctx, "acme", 40)
	fmt.Println(d.Remaining, "of", d.Limit)

	if err := store.SetRule(algorithms.SlidingCounter{Limit: 50, Window: 24 * time.Hour}); err !=
		nil {
		fmt.Println(err)
	}
	d, _ = store.Peek(ctx, "acme", 1)
	fmt.Println(d.Remaining, "of", d.Limit)
	// Output:
	// 60 of 100
	// 10 of 50
}
