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
	// IP is in the form that limits count (see [ClientIP]); may be empty.
	IP string
}

// Limiter decides for the callers of one policy. It is safe for concurrent use. An error means that
// the store cannot be reached, never a refusal. A limiter that asks another process bounds the time
// itself.
type Limiter interface {
	// Take takes all n units or none.
	Take(ctx context.Context, from Caller, n int64) (Checked, error)
	// Peek is Take without taking.
	Peek(ctx context.Context, from Caller, n int64) (Checked, error)
	// Refund returns n units.
	Refund(ctx context.Context, from Caller, n int64) error
}

// Limit is a limiter made for a policy.
type Limit struct {
	Limiter Limiter
	// Quota is the quota of one key; of several limits, the smallest.
	Quota Quota
	// ByIP means that callers must have an IP.
	ByIP bool
	// Shadow: the limiter refuses nothing, not even costs over the quota.
	Shadow bool
	// Commit applies changed numbers to a reused limiter; may be nil. It is called at most once.
	Commit func()
}

// NewLimit makes the limiter of a meter or a door policy. Previous is the one before a change, or
// nil: with the same algorithm the states of keys are kept.
type NewLimit func(p policy.Policy, previous Limiter) (Limit, error)
