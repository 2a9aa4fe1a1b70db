package admit

import (
	"sync"

	"github.com/penstock-mq/penstock/internal/base/container"
)

// DefaultBudget is 256 MiB, or an eighth of the process's memory if that is less.
func DefaultBudget() int64 { return container.Share(256<<20, 8) }

const (
	// shareFactor bounds a client by a multiple of what stays free (dynamic thresholds: Choudhury
	// and Hahne): n greedy clients leave 1/(3n+1) for a new one.
	shareFactor = 3
	keptPart    = 10 // a tenth is reserved for operators
)

// Client is who holds units of a [Budget].
type Client struct {
	Name string // of its token or certificate, or its address; over NATS the policy
	// Operator may use the reserved units, to inspect an overloaded process.
	Operator bool
}

// Budget bounds the bytes or streams that clients hold, and returns [ErrBusy] beyond it. The zero
// value refuses all.
type Budget struct {
	total int64

	mu   sync.Mutex
	free int64
	held map[string]int64
}

// NewBudget returns a budget of n units.
func NewBudget(n int64) *Budget {
	return &Budget{total: n, free: n, held: map[string]int64{}}
}

// Reserve takes n units, until Release, or returns an error.
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

// Release gives back units that a client has taken.
func (b *Budget) Release(c Client, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	if b.held[c.Name] -= n; b.held[c.Name] == 0 {
		delete(b.held, c.Name)
	}
}
