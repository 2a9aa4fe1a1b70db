package admission

import (
	"context"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

type Caller struct {
	Key job.Key
	IP  string // see [ClientIP]; may be empty
}

// Limiter decides for the callers of one policy. It is safe for concurrent use, and bounds the time
// that its store takes. An error means that the store cannot be reached.
type Limiter interface {
	Take(ctx context.Context, from Caller, n int64) (Checked, error)
	Peek(ctx context.Context, from Caller, n int64) (Checked, error)
	Refund(ctx context.Context, from Caller, n int64) error
}

type Limit struct {
	Limiter Limiter
	Quota   Quota  // of a key; of several limits, the smallest
	ByIP    bool   // callers must have an IP
	Shadow  bool   // nothing is refused, not even costs over the quota
	Commit  func() // applies changed numbers to a reused limiter; may be nil
}

// NewLimit makes the limiter of a meter or a door policy. It keeps the states of the previous one,
// which may be nil, if the algorithm is the same.
type NewLimit func(p policy.Policy, previous Limiter) (Limit, error)
