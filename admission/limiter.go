package admission

import (
	"context"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

type Caller struct {
	// in its subject form
	Key job.Key
	// see [ClientIP]; may be empty
	IP string
}

// Limiter decides for the callers of one policy. It is safe for concurrent use. An error means that
// the store cannot be reached. A limiter that asks another process bounds the time itself.
type Limiter interface {
	Take(ctx context.Context, from Caller, n int64) (Checked, error)
	Peek(ctx context.Context, from Caller, n int64) (Checked, error)
	Refund(ctx context.Context, from Caller, n int64) error
}

type Limit struct {
	Limiter Limiter
	// of one key; of several limits, the smallest
	Quota Quota
	// callers must have an IP
	ByIP bool
	// The limiter refuses nothing, not even costs over the quota.
	Shadow bool
	// Commit applies changed numbers to a reused limiter; may be nil.
	Commit func()
}

// NewLimit makes the limiter of a meter or a door policy. With the same algorithm, the states of
// the previous one, which may be nil, are kept.
type NewLimit func(p policy.Policy, previous Limiter) (Limit, error)
