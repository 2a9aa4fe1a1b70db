package admission

import (
	"context"
	"iter"
)

const (
	// MaxBatch is how many jobs one batch may hold.
	MaxBatch = 10_000
	// MaxBatchBytes is the largest batch as it is sent, all of its jobs together.
	MaxBatchBytes = 16 << 20
	// batchInFlight is how many jobs of a batch are under way at once: less than a producer takes,
	// so that other submissions get their turns.
	batchInFlight = 2048
)

// SubmitBatch takes jobs as [Service.Submit] does, each with its own outcome, and tells these in
// the order of the requests. Jobs of one bucket are stored in that order too. A request that comes
// with an error is refused with it. No valve is asked when the jobs start, so none is [Allowed].
//
// Both are called by this goroutine and another one at once. When tell returns an error that ends
// the batch: jobs that were taken by then stay so.
func (s *Service) SubmitBatch(ctx context.Context, requests iter.Seq2[SubmitRequest, error],
	tell func(Outcome, error) error) error {

	under := make(chan sent, batchInFlight)
	ended := make(chan struct{})
	var panicked any
	go func() {
		defer close(under)
		defer func() { panicked = recover() }()
		for r, err := range requests {
			wait := decided(Outcome{}, err)
			if err == nil {
				wait = s.send(ctx, r, s.stored)
			}
			under <- wait
			select {
			case <-ended:
				return
			default:
			}
		}
	}()
	var failed error
	for wait := range under {
		o, err := wait() // all of them: it gives their places to others
		if failed == nil {
			if failed = tell(o, err); failed != nil {
				close(ended)
			}
		}
	}
	if panicked != nil {
		panic(panicked) // where the transport expects it
	}
	return failed
}
