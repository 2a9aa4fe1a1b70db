package admission

import (
	"context"
	"iter"
)

const (
	MaxBatch      = 10_000
	MaxBatchBytes = 16 << 20
	batchInFlight = 2048 // leaves others room in a producer
)

// SubmitBatch submits jobs, in order per bucket, and calls tell with each outcome, in order, on
// another goroutine than requests. No valve is asked, so no outcome is [Allowed]. An error of tell
// ends the batch; accepted jobs stay accepted.
func (s *Service) SubmitBatch(ctx context.Context, requests iter.Seq2[SubmitRequest, error],
	tell func(Outcome, error) error) error {

	under := make(chan *submission, batchInFlight)
	ended := make(chan struct{})
	var panicked any
	go func() {
		defer close(under)
		defer func() { panicked = recover() }()
		for r, err := range requests {
			x := &submission{r: &r, err: err, end: func(Outcome, error) {}}
			if err == nil {
				x = s.send(ctx, &r)
			}
			under <- x
			select {
			case <-ended:
				return
			default:
			}
		}
	}()
	var failed error
	for x := range under {
		o, err := s.finish(ctx, x, false)
		if failed == nil {
			if failed = tell(o, err); failed != nil {
				close(ended)
			}
		}
	}
	if panicked != nil {
		panic(panicked) // on the transport's goroutine, which recovers
	}
	return failed
}
