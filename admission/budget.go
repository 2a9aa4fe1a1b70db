package admission

import "sync"

// DefaultBudget is how many bytes of bodies an admitter holds at once by default.
const DefaultBudget = 256 << 20

const (
	// shareFactor is how many times what would stay free one client may hold: alone it holds three
	// quarters, and n clients that want everything leave a (3n+1)-th (dynamic thresholds, after
	// Choudhury and Hahne). So nobody has to say how much a client may have, and one more client
	// always finds something.
	shareFactor = 3
	// keptPart is the part of a budget that only operators may use: one of so many.
	keptPart = 10
)

// Client is who a part of a [Budget] is given to.
type Client struct {
	// Name tells clients apart: that of a token or a certificate, an address where there is
	// neither, or over NATS the policy, which is what users there are permitted.
	Name string
	// Operator says that the client may see or steer all policies: some of each budget is kept for
	// such clients, so that they can look at what the others do.
	Operator bool
}

// Budget bounds what clients hold of something at once: bytes of bodies, requests that are being
// answered or wait, streams of events. More is answered with [ErrUnavailable] and [ErrBusy], and
// not with all the memory there is. The zero value lets nothing in.
type Budget struct {
	total int64

	mu   sync.Mutex
	free int64
	held map[string]int64 // by client
}

// NewBudget makes a budget of n bytes, requests or whatever it bounds.
func NewBudget(n int64) *Budget {
	return &Budget{total: n, free: n, held: map[string]int64{}}
}

// Reserve takes n for a client, or returns an error that is [ErrUnavailable] when too little is
// free, or the client holds its share. What was reserved must be released.
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

// Release gives back n that was reserved for a client.
func (b *Budget) Release(c Client, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	if b.held[c.Name] -= n; b.held[c.Name] == 0 {
		delete(b.held, c.Name)
	}
}
