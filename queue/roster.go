package queue

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Roster keeps a lease for this process in the KV bucket of admitters, and counts the processes that have one there: who
// renewed it within its duration is alive, by this process's own clock. While NATS cannot be reached the last count
// stands, for the others may be as well as this one.
type Roster struct {
	broker *Broker
	id     string
	lease  time.Duration

	mu      sync.Mutex
	seen    map[string]time.Time // when another's lease was last seen renewed
	live    int
	heard   bool // the last renewal succeeded
	changed func(live int)
}

// NewRoster makes a roster; nothing happens before [Roster.Run]. The lease should be the same for all, at least 1 s.
// Changed hears of the count when it changes, also of the first, from the goroutine of Run; nil hears nothing.
func (b *Broker) NewRoster(lease time.Duration, changed func(live int)) *Roster {
	if changed == nil {
		changed = func(int) {}
	}
	return &Roster{broker: b, id: newID(), lease: lease, seen: map[string]time.Time{}, live: 1, changed: changed}
}

// Live is how many processes are alive, this one among them.
func (r *Roster) Live() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live
}

// Run renews the lease and follows the others' until the context ends; then it gives the lease up and returns nil.
func (r *Roster) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = r.broker.admitters.Watch(ctx, "*", r.take, func() {}) // it has no error but the end of the context
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

// take hears of a lease that changed.
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

// renew writes the lease, and forgets the others whose time is up. A process that could not be reached itself has heard
// nothing meanwhile, so it gives them another lease.
func (r *Roster) renew(ctx context.Context) {
	// Who lives is told by keys and revisions alone. The server removes what nobody renews, long after all know.
	value := fmt.Appendf(nil, `{"v":%d,"lease_ms":%d}`, formatVersion, r.lease.Milliseconds())
	err := r.broker.admitters.setFor(ctx, r.id, value, 10*r.lease)
	if err != nil && ctx.Err() == nil {
		r.broker.log.Debug("the admitter's lease was not renewed", "error", err)
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

// count tells a new count. The lock is held, so that counts are told in order.
func (r *Roster) count() {
	if live := 1 + len(r.seen); live != r.live {
		r.live = live
		r.changed(live)
	}
}

func (r *Roster) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if !r.broker.nc.IsConnected() {
		return // the lease runs out
	}
	if err := r.broker.admitters.Delete(ctx, r.id, 0); err != nil {
		r.broker.log.Debug("the admitter's lease was not given up", "error", err)
	}
}
