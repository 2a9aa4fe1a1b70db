package admission

import (
	"context"
	"iter"
)

const (
	// MaxBatch bounds the jobs of one batch.
	MaxBatch = 10_000
	// MaxBatchBytes bounds the size of a batch as it is sent.
	MaxBatchBytes = 16 << 20
	// batchInFlight bounds the jobs of a batch in progress. A producer's capacity is larger, so
	// others have room.
	batchInFlight = 2048
)

// SubmitBatch submits jobs and calls tell with each outcome, in order. Jobs of one bucket are
// stored in order, too. A request that comes with an error is refused with it. No valve is asked,
// so no outcome is [Allowed].
//
// This goroutine and another one call requests and tell concurrently. An error of tell ends the
// batch; accepted jobs stay accepted.
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
				wait = s.send(ctx, &r, s.stored)
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
		o, err := wait() // also after an error: wait frees the job's place
		if failed == nil {
			if failed = tell(o, err); failed != nil {
				close(ended)
			}
		}
	}
	if panicked != nil {
		panic(panicked) // on the goroutine where the transport recovers
	}
	return failed
}
