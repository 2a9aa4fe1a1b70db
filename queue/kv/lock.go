package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
)

// Multiples of the connection's timeout: when the server removes a crashed process's lock, and how
// long a holder relies on its lock.
const (
	lockTTL   = 5
	lockHold  = 3
	lockRetry = 50 * time.Millisecond
)

// WithLock waits for a lock until ctx ends and runs change. Its context ends only when the lock is
// no longer reliable.
func (t *Table) WithLock(ctx context.Context, name string,
	change func(context.Context) error) error {
	for {
		asked := time.Now()
		revision, err := t.put(ctx, name, []byte(jsapi.NewID()), 0, lasting(lockTTL*t.js.Timeout))
		if err == nil {
			held, cancel := context.WithDeadline(context.WithoutCancel(ctx),
				asked.Add(lockHold*t.js.Timeout))
			defer cancel()
			err = change(held)
			if unlockErr := t.Delete(held, name, revision); unlockErr != nil {
				t.log.Debug("lock left to expire", "name", name, "error", unlockErr)
			}
			return err
		}
		if !errors.Is(err, ErrConflict) {
			return fmt.Errorf("lock %s: %w", name, err)
		}
		if err := jsapi.Pause(ctx, lockRetry); err != nil {
			return fmt.Errorf("lock %s: %w", name, err)
		}
	}
}
