package kv

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// Roster keeps this process's lease in a table and counts the live processes there, by JetStream's
// clock. Without NATS the last count remains valid.
type Roster struct {
	table   *Table
	id      string
	lease   time.Duration
	live    int
	since   time.Time // first of the latest uninterrupted renewals
	changed func(live int)
}

// NewRoster: the lease should be the same everywhere, at least 1 s. Run calls changed whenever the
// number of live processes, at first 1, changes.
func NewRoster(table *Table, lease time.Duration, changed func(live int)) *Roster {
	return &Roster{table: table, id: jsapi.NewID(), lease: lease, live: 1, changed: changed}
}

// Run renews the lease and counts the others until the context ends, then deletes the lease and
// returns nil.
func (r *Roster) Run(ctx context.Context) error {
	tick := time.NewTicker(r.lease / 3)
	defer tick.Stop()
	for {
		if err := r.renew(ctx); err != nil && ctx.Err() == nil {
			r.table.log.Debug("the lease was not renewed", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if r.table.js.NATS.IsConnected() { // or it expires
				if err := r.table.Delete(context.WithoutCancel(ctx), r.id, 0); err != nil {
					r.table.log.Debug("the lease was not given up", "error", err)
				}
			}
			return nil
		}
	}
}

func (r *Roster) renew(ctx context.Context) error {
	// The server removes an abandoned lease after all processes noticed.
	value := fmt.Appendf(nil, `{"v":%d,"lease_ms":%d}`, job.FormatVersion, r.lease.Milliseconds())
	err := r.table.Set(ctx, r.id, value, 10*r.lease)
	var leases []Record
	if err == nil {
		leases, err = r.table.List(ctx, "*")
	}
	if err != nil {
		r.since = time.Time{}
		return err
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
		if latest.Sub(l.Stored) <= r.lease {
			live++
		}
	}
	if now.Sub(r.since) < r.lease {
		live = max(live, r.live)
	}
	if live != r.live {
		r.live = live
		r.changed(live)
	}
	return nil
}
