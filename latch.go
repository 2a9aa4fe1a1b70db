package penstock

import "context"

// latch is closed once, by one part, and others wait for it.
type latch chan struct{}

func (l latch) isClosed() bool {
	select {
	case <-l:
		return true
	default:
		return false
	}
}

// wait waits for latches, and reports whether all closed before ctx ended.
func wait(ctx context.Context, latches ...latch) bool {
	for _, l := range latches {
		select {
		case <-l:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// after returns a part that begins when a latch closes.
func after(l latch, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if !wait(ctx, l) {
			return nil
		}
		return run(ctx)
	}
}

// untilDone is a part that only waits for ctx to end.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
