// Package lifecycle runs the long-lived parts of a process: they start together, the first to return stops the others,
// and nobody leaves before all have stopped.
package lifecycle

import (
	"context"
	"errors"
)

// Run starts every part in a goroutine of its own and waits until all have returned. The end of ctx, or the first part
// to return for whatever reason, cancels the context of the parts. A part returns nil when it was told to stop;
// returning the context's cancellation then is the same. All other errors are joined in the order in which the parts
// returned, so what made the process stop comes first. Without parts Run returns at once.
func Run(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	returned := make(chan error)
	for _, part := range parts {
		go func() { returned <- part(ctx) }()
	}
	var errs []error
	for range parts {
		err := <-returned
		if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
		stop()
	}
	return errors.Join(errs...)
}
