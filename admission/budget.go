package admission

import "sync"

const DefaultBudget = 256 << 20

const (
	// shareFactor bounds one client by a multiple of what stays free (dynamic thresholds, after
	// Choudhury and Hahne): n clients that want everything leave 1/(3n+1), so a new one always
	// finds room.
	shareFactor = 3
	// a tenth is reserved for operators
	keptPart = 10
)

type Client struct {
	// Name is of its token or certificate, or its address; over NATS the policy.
	Name string
	// Operator marks a client that may see or change all policies, and may use the reserved units
	// to inspect an overloaded process.
	Operator bool
}

// Budget bounds what clients hold: bytes of bodies, requests, event streams. Requests beyond it
// fail with [ErrBusy]. The zero value admits nothing.
type Budget struct {
	total int64

	mu   sync.Mutex
	free int64
	held map[string]int64 // by client
}

func NewBudget(n int64) *Budget {
	return &Budget{total: n, free: n, held: map[string]int64{}}
}

// Reserve takes n units, which the caller must release, or returns an error.
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

func (b *Budget) Release(c Client, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	if b.held[c.Name] -= n; b.held[c.Name] == 0 {
		delete(b.held, c.Name)
	}
}
