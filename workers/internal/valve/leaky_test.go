package valve

import (
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

func leaky(name, rate string) policy.Policy {
	r, err := algorithms.ParseRate(rate)
	if err != nil {
		panic(err)
	}
	return policy.Policy{
		Name: name, Partitions: 1,
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: r, Capacity: 100_000},
	}
}
