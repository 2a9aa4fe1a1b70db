package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// lockTTL is how long the lock of a crashed process stays in the way; the server counts it.
	lockTTL = 10 * time.Second
	// lockHold is how long its holder acts on it, from before it was asked for, by its own monotonic clock.
	lockHold  = 6 * time.Second
	lockRetry = 50 * time.Millisecond
)

// locked runs change while no other process changes the policy's stream. An update replaces a stream's whole
// configuration and knows no compare-and-set, so that a process which read an old capacity could write it back and delete
// the jobs above it. change gets a context that ends when the lock can no longer be relied on, and not with ctx: once
// begun, a change is brought to its end.
func (b *Broker) locked(ctx context.Context, policy string, change func(context.Context) error) error {
	for {
		asked := time.Now()
		revision, err := b.locks.put(ctx, policy, []byte(newID()), 0, nats.Header{headerTTL: {lockTTL.String()}})
		if err == nil {
			held, cancel := context.WithDeadline(context.WithoutCancel(ctx), asked.Add(lockHold))
			defer cancel()
			err = change(held)
			if unlockErr := b.locks.Delete(held, policy, revision); unlockErr != nil {
				b.log.Debug("lock left to expire", "policy", policy, "error", unlockErr)
			}
			return err
		}
		if !errors.Is(err, ErrConflict) {
			return fmt.Errorf("lock policy %s: %w", policy, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("lock policy %s: %w", policy, translate(ctx.Err()))
		case <-time.After(lockRetry):
		}
	}
}
