package kv

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// Roster keeps a lease for this process in a table and counts the live processes there: those that
// renewed their lease within its duration, by this process's clock. While NATS cannot be reached
// the last count stands, because the others may be well.
type Roster struct {
	table *Table
	id    string
	lease time.Duration

	mu      sync.Mutex
	seen    map[string]time.Time // when another's lease was last seen renewed
	live    int
	heard   bool // the last renewal succeeded
	changed func(live int)
}

// NewRoster returns a roster, which does nothing before [Roster.Run]. The lease should be the same
// in all processes, at least 1 s. changed is called, from the goroutine of Run, whenever the
// number of live processes, this one included, changes; it starts at 1.
func NewRoster(table *Table, lease time.Duration, changed func(live int)) *Roster {
	return &Roster{table: table, id: jsapi.NewID(), lease: lease, seen: map[string]time.Time{},
		live: 1, changed: changed}
}

// Run renews the lease and watches the others' until the context ends; then it deletes the lease
// and returns nil.
func (r *Roster) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = r.table.Watch(ctx, "*", r.take, func() {}) // its only error is the end of the context
	})
	defer watching.Wait()
	r.renew(ctx)
	for tick := time.NewTicker(r.lease / 3); ; {
		select {
		case <-tick.C:
			r.renew(ctx)
		case <-ctx.Done():
			tick.Stop()
			r.resign(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// take records a change of another lease.
func (r *Roster) take(record Record) {
	if record.Key == r.id {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if record.Deleted {
		delete(r.seen, record.Key)
	} else {
		r.seen[record.Key] = time.Now()
	}
	r.count()
}

// renew writes the lease, and forgets expired leases of others. A process that could not reach
// NATS has heard nothing meanwhile, so it gives the others another lease.
func (r *Roster) renew(ctx context.Context) {
	// Keys and revisions alone show which processes are alive. The server removes an abandoned
	// lease long after every process has noticed.
	value := fmt.Appendf(nil, `{"v":%d,"lease_ms":%d}`, job.FormatVersion, r.lease.Milliseconds())
	err := r.table.Set(ctx, r.id, value, 10*r.lease)
	if err != nil && ctx.Err() == nil {
		r.table.log.Debug("the lease was not renewed", "error", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.heard = false
		return
	}
	now := time.Now()
	for id, seen := range r.seen {
		switch {
		case !r.heard:
			r.seen[id] = now
		case now.Sub(seen) > r.lease:
			delete(r.seen, id)
		}
	}
	r.heard = true
	r.count()
}

// count reports a new count. The lock must be held, so that counts are reported in order.
func (r *Roster) count() {
	if live := 1 + len(r.seen); live != r.live {
		r.live = live
		r.changed(live)
	}
}

func (r *Roster) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, jsapi.CallTimeout)
	defer cancel()
	if !r.table.js.NATS.IsConnected() {
		return // the lease runs out
	}
	if err := r.table.Delete(ctx, r.id, 0); err != nil {
		r.table.log.Debug("the lease was not given up", "error", err)
	}
}
