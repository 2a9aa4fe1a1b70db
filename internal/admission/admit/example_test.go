package admit_test

import (
	"context"
	"fmt"

	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
)

// A service that only answers checks needs no broker.
func ExampleNew() {
	service := admit.New(jet.Names{}, nil, nil, limiter.New(limiter.Options{}).Limit,
		admit.Options{})
	signup := policy.Policy{Name: "signup",
		Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 2, Refill: rate("2/d")}}
	if err := service.SetPolicies(
		inforce.Entries{"signup": {Policy: signup, Revision: 1}}); err != nil {
		fmt.Println(err)
		return
	}
	request := admit.CheckRequest{Policy: "signup", Key: "10.0.0.1", Cost: 1}
	for range 3 {
		checked, err := service.Check(context.Background(), request)
		fmt.Println(checked.Allowed, checked.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}
