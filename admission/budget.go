package admission

import "sync"

// DefaultBudget is the default bound of the bytes of bodies that an admitter holds at once.
const DefaultBudget = 256 << 20

const (
	// shareFactor bounds one client by a multiple of the amount that stays free (dynamic
	// thresholds, after Choudhury and Hahne). Alone, a client may hold three quarters; n clients
	// that want everything leave 1/(3n+1). So clients need no configured share, and a new client
	// always finds room.
	shareFactor = 3
	// keptPart is the divisor of the part that is reserved for operators: one tenth.
	keptPart = 10
)

// Client is the holder of a part of a [Budget].
type Client struct {
	// Name identifies the client: the name of its token or certificate, or else its address.
	// Over NATS it is the policy, because NATS users are permitted by policy.
	Name string
	// Operator marks a client that may see or change all policies. A part of each budget is
	// reserved for operators, so that they can inspect an overloaded process.
	Operator bool
}

// Budget bounds what clients hold at once: bytes of bodies, requests in progress, event streams.
// Requests over the bound fail with [ErrUnavailable] and [ErrBusy]. The zero value admits
// nothing.
type Budget struct {
	total int64

	mu   sync.Mutex
	free int64
	held map[string]int64 // by client
}

// NewBudget makes a budget of n units, such as bytes or requests.
func NewBudget(n int64) *Budget {
	return &Budget{total: n, free: n, held: map[string]int64{}}
}

// Reserve takes n units for a client. It returns an [ErrUnavailable] if too few are free or the
// client holds its share. The caller must release the units.
func (b *Budget) Reserve(c Client, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.free - n
	if !c.Operator {
		left -= b.total / keptPart
	}
	if held := b.held[c.Name]; left < 0 || held > shareFactor*left {
		return unavailable("hold one more request of this client", ErrBusy)
	}
	b.free -= n
	b.held[c.Name] += n
	return nil
}

// Release returns n units that a client reserved.
func (b *Budget) Release(c Client, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	if b.held[c.Name] -= n; b.held[c.Name] == 0 {
		delete(b.held, c.Name)
	}
}
