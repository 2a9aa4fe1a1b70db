// Package lifecycle runs the long-lived parts of a process together: the first to return stops the
// others.
package lifecycle

import (
	"context"
	"errors"
	"time"
)

// Run runs each part in a goroutine and waits for all. The end of ctx, or of any part, cancels the
// others. A stopped part returns nil or the context's error. Other errors are joined in the order
// of return: the cause of the stop comes first.
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

// InTurn returns a part with two groups: when its context ends it stops work, and serve after that,
// at least hold later. Any part that returns earlier stops both groups. There must be work.
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
