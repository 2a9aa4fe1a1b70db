package lifecycle

import (
	"context"
	"time"
)

// Latch is closed once, by one part, and others wait for it.
type Latch chan struct{}

func (l Latch) Closed() bool {
	select {
	case <-l:
		return true
	default:
		return false
	}
}

// Wait reports whether all latches closed before ctx ended.
func Wait(ctx context.Context, latches ...Latch) bool {
	for _, l := range latches {
		select {
		case <-l:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// After returns a part that begins when a latch closes.
func After(l Latch, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if !Wait(ctx, l) {
			return nil
		}
		return run(ctx)
	}
}

// Repeat returns a part that does something at once, on each wake, and after the pause that it
// returned. It ends with ctx or an error.
func Repeat(wake <-chan struct{},
	do func(context.Context) (pause time.Duration, err error)) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			pause, err := do(ctx)
			if err != nil {
				return err
			}
			select {
			case <-wake:
			case <-time.After(pause):
			case <-ctx.Done():
				return nil
			}
		}
	}
}
