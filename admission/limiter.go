package admission

import (
	"context"

	"github.com/penstock-mq/penstock/queue"
)

// Caller is whose requests are counted.
type Caller struct {
	Key queue.Key
	IP  string // of IPv6 the /64 network; may be empty
}

// Limiter decides for the callers of one policy. It is safe for concurrent use, and bounds its
// store's time. An error means that the store cannot be reached.
type Limiter interface {
	Take(ctx context.Context, from Caller, n int64) (Checked, error)
	Peek(ctx context.Context, from Caller, n int64) (Checked, error)
	Refund(ctx context.Context, from Caller, n int64) error
}

// Limit is the limiter of a policy, with what it tells callers.
type Limit struct {
	Limiter Limiter
	Quota   Quota  // of a key; of several limits, the smallest
	ByIP    bool   // callers must have an IP
	Shadow  bool   // refuses nothing
	Commit  func() // applies changed numbers to a reused limiter; may be nil
}
