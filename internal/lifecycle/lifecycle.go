// Package lifecycle runs the long-lived parts of a process: they start together, the first to
// return stops the others, and nobody leaves before all have stopped.
package lifecycle

import (
	"context"
	"errors"
	"time"
)

// Run starts every part in a goroutine of its own and waits until all have returned. The end of
// ctx, or the first part to return for whatever reason, cancels the context of the parts. A part
// returns nil when it was told to stop; returning the context's cancellation then is the same. All
// other errors are joined in the order in which the parts returned, so what made the process stop
// comes first. Without parts Run returns at once.
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

// InTurn is a part for [Run] that runs two groups of parts and stops them one after the other:
// those that do the work when its context ends, and those that serve when all of the former have
// returned and its context has ended at least hold ago. The first part to return for another reason
// stops both groups, without waiting. There must be work.
func InTurn(hold time.Duration,
	work, serve []func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		serving, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		return Run(serving,
			append(serve[:len(serve):len(serve)], func(serving context.Context) error {
				working, stop := context.WithCancel(serving)
				defer stop()
				held := make(chan struct{})
				defer context.AfterFunc(ctx, func() {
					stop()
					time.AfterFunc(hold, func() { close(held) })
				})()
				err := Run(working, work...)
				if ctx.Err() != nil && err == nil {
					select {
					case <-held:
					case <-serving.Done():
					}
				}
				return err
			})...)
	}
}
