package valve

import (
	"github.com/penstock-mq/penstock/policy"
)

// slowly is a policy whose buckets start a job in 10 s.
func slowly() policy.Policy {
	p := leaky("api", "1/10s")
	return p
}
