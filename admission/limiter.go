package admission

import (
	"context"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

// Limiter decides for the keys of one policy and remembers their state. It is safe for concurrent use. An error means
// that the store cannot be asked, never a refusal.
type Limiter interface {
	// Take takes n units or none.
	Take(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	// Peek is what Take would answer, and takes nothing.
	Peek(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	// Refund gives n taken units back.
	Refund(ctx context.Context, key string, n int64) error
}

// Limit is a limiter made for a policy.
type Limit struct {
	Limiter Limiter
	// Quota is what the limiter grants one key. More than its Units at once can never pass.
	Quota Quota
	// Commit puts the policy's numbers in force on a limiter taken over from before a change; nil when there is nothing
	// left to do. It is called at most once, and cannot fail.
	Commit func()
}

// NewLimit makes the limiter of a policy without a queue, or of a door policy with one. Previous is the limiter that
// the same policy had before a change, nil if none: a limiter of the same algorithm goes on with the state of its keys.
type NewLimit func(p policy.Policy, previous Limiter) (Limit, error)
