package admission

import (
	"context"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

// Caller is the client that a limiter decides about.
type Caller struct {
	// Key is the bucket, in its subject form.
	Key job.Key
	// IP is the address of the client as limits count it (see [ClientIP]); empty when it is not
	// known.
	IP string
}

// Limiter decides for the callers of one policy and remembers their state. It is safe for
// concurrent use. An error means that the store cannot be asked, never a refusal. What asks another
// process bounds by itself for how long.
type Limiter interface {
	// Take takes n units or none.
	Take(ctx context.Context, from Caller, n int64) (Checked, error)
	// Peek returns what Take would, and takes nothing.
	Peek(ctx context.Context, from Caller, n int64) (Checked, error)
	// Refund gives n taken units back.
	Refund(ctx context.Context, from Caller, n int64) error
}

// Limit is a limiter made for a policy.
type Limit struct {
	Limiter Limiter
	// Quota is what the limiter grants one key; of several limits that with the fewest units. More
	// than its Units at once can never pass.
	Quota Quota
	// ByIP says that callers must have an IP.
	ByIP bool
	// Shadow says that nothing is refused, a cost beyond the quota neither.
	Shadow bool
	// Commit puts the policy's numbers in force on a limiter taken over from before a change; nil
	// when there is nothing left to do. It is called at most once, and cannot fail.
	Commit func()
}

// NewLimit makes the limiter of a policy without a queue, or of a door policy with one. Previous is
// the limiter that the same policy had before a change, nil if none: a limiter of the same
// algorithm goes on with the state of its keys.
type NewLimit func(p policy.Policy, previous Limiter) (Limit, error)
