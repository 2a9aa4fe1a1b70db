package admission

import (
	"context"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

// Caller is the client of a limiter's decision.
type Caller struct {
	// Key is the bucket, in its subject form.
	Key job.Key
	// IP is the client's address in the form that limits count (see [ClientIP]); may be empty.
	IP string
}

// Limiter decides for the callers of one policy and keeps their state. It is safe for concurrent
// use. An error means that the store cannot be reached, never a refusal. A limiter that asks
// another process must bound the time itself.
type Limiter interface {
	// Take takes all n units or none.
	Take(ctx context.Context, from Caller, n int64) (Checked, error)
	// Peek returns the result that Take would have, and takes nothing.
	Peek(ctx context.Context, from Caller, n int64) (Checked, error)
	// Refund returns n units.
	Refund(ctx context.Context, from Caller, n int64) error
}

// Limit is a limiter made for a policy.
type Limit struct {
	Limiter Limiter
	// Quota is the limiter's quota for one key; of several limits, the one with the fewest
	// units. A request for more than its Units can never pass.
	Quota Quota
	// ByIP means that callers must have an IP.
	ByIP bool
	// Shadow means that the limiter refuses nothing, not even costs over the quota.
	Shadow bool
	// Commit applies the changed numbers of a policy to a reused limiter; nil if there is
	// nothing to apply. It is called at most once, and cannot fail.
	Commit func()
}

// NewLimit makes the limiter of a meter or a door policy. Previous is the policy's limiter
// before a change, or nil: if the algorithm is the same, the new limiter keeps the state of its
// keys.
type NewLimit func(p policy.Policy, previous Limiter) (Limit, error)
