package admission

import "sync/atomic"

// DefaultBudget is how many bytes of bodies an admitter holds at once by default.
const DefaultBudget = 256 << 20

// Budget bounds the bytes of the bodies that transports hold at once, so that many large requests
// are answered with [ErrUnavailable] and not with all the memory there is. Transports of one
// process share one. The zero value lets nothing in.
type Budget struct {
	free atomic.Int64
}

// NewBudget makes a budget of so many bytes.
func NewBudget(bytes int64) *Budget {
	b := &Budget{}
	b.free.Store(bytes)
	return b
}

// Reserve takes n bytes, or returns an error that is [ErrUnavailable]. What was reserved must be
// released.
func (b *Budget) Reserve(n int64) error {
	if b.free.Add(-n) < 0 {
		b.free.Add(n)
		return unavailable("hold the bytes of one more request", ErrBusy)
	}
	return nil
}

// Release gives n reserved bytes back.
func (b *Budget) Release(n int64) { b.free.Add(n) }
