package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

// Roster keeps this process's lease in a table, with a text for the others, and counts the live
// processes there, by JetStream's clock. Without NATS the last count remains valid.
type Roster struct {
	table   *Table
	id      string
	lease   time.Duration
	live    int
	since   time.Time // first of the latest uninterrupted renewals
	changed func(live int)

	mu   sync.Mutex // while the lease is renewed
	text string
}

// NewRoster: the lease should be the same everywhere, at least 1 s. Run calls changed whenever the
// number of live processes, at first 1, changes.
func NewRoster(table *Table, lease time.Duration, changed func(live int)) *Roster {
	return &Roster{table: table, id: jsapi.NewID(), lease: lease, live: 1, changed: changed}
}

// Say renews the lease with a text, also before Run, and returns the other live processes' texts.
func (r *Roster) Say(ctx context.Context, text string) (others []string, err error) {
	r.mu.Lock()
	r.text = text
	r.mu.Unlock()
	return r.renew(ctx)
}

// Run renews the lease and counts the others until the context ends, then deletes the lease and
// returns nil.
func (r *Roster) Run(ctx context.Context) error {
	tick := time.NewTicker(r.lease / 3)
	defer tick.Stop()
	for {
		if _, err := r.renew(ctx); err != nil && ctx.Err() == nil {
			r.table.log.Debug("the lease was not renewed", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.Leave(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// Leave deletes the lease, or leaves it to expire.
func (r *Roster) Leave(ctx context.Context) {
	if r.table.js.NATS.IsConnected() {
		if err := r.table.Delete(ctx, r.id, 0); err != nil {
			r.table.log.Debug("the lease was not given up", "error", err)
		}
	}
}

func (r *Roster) renew(ctx context.Context) (others []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// The server removes an abandoned lease after all processes noticed.
	value, err := json.Marshal(leaseRecord{job.FormatVersion, r.lease.Milliseconds(), r.text})
	if err == nil {
		err = r.table.Set(ctx, r.id, value, 10*r.lease)
	}
	var leases []Record
	if err == nil {
		leases, err = r.table.List(ctx, "*")
	}
	if err != nil {
		r.since = time.Time{}
		return nil, err
	}
	now := time.Now()
	if r.since.IsZero() {
		r.since = now
	}
	var latest time.Time
	for _, l := range leases {
		if l.Stored.After(latest) {
			latest = l.Stored
		}
	}
	live := 0
	for _, l := range leases {
		if latest.Sub(l.Stored) > r.lease {
			continue
		}
		live++
		var other leaseRecord
		if json.Unmarshal(l.Value, &other) == nil && l.Key != r.id {
			others = append(others, other.Text)
		}
	}
	if now.Sub(r.since) < r.lease {
		live = max(live, r.live)
	}
	if live != r.live {
		r.live = live
		r.changed(live)
	}
	return others, nil
}

type leaseRecord struct {
	V     int    `json:"v"`
	Lease int64  `json:"lease_ms"`
	Text  string `json:"text,omitempty"`
}

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
