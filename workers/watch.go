package workers

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// watch starts what tells the loop of the world: the connection, the leases, the owners, the policies.
func (d *Drainer) watch(ctx context.Context) {
	status := d.broker.Conn().StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	d.spawn(func() {
		defer d.broker.Conn().RemoveStatusListener(status)
		for {
			select {
			case s := <-status:
				d.post(func(now instant) {
					d.connected(s == nats.CONNECTED, now)
					d.closed = s == nats.CLOSED
				})
			case <-ctx.Done():
				return
			}
		}
	})
	missing := 4
	synced := func() {
		d.post(func(now instant) {
			missing--
			d.core.synced = missing <= 0
			d.core.tickAt = now
		})
	}
	records := func(t table, from *queue.Table, filter string) {
		d.spawn(func() {
			once := false
			d.forever(ctx, "watch "+filter, func() error {
				return from.Watch(ctx, filter, func(r queue.Record) {
					d.post(func(now instant) { d.core.watched(t, r.Key, recordFrom(r), now) })
				}, func() {
					if !once {
						once = true
						synced()
					}
				})
			})
		})
	}
	d.spawn(func() {
		once := false
		d.forever(ctx, "watch overrides", func() error {
			return d.broker.WatchOverrides(ctx, func(name string, key queue.Key, o policy.Override, _ bool) {
				d.post(func(now instant) { d.core.setOverride(name, key, o, now) })
			}, func() {
				if !once {
					once = true
					synced()
				}
			})
		})
	})
	records(tableDrainers, d.broker.Drainers(), ">")
	records(tablePartitions, d.broker.Partitions(), "*.*")
	d.spawn(func() {
		once := false
		d.forever(ctx, "watch policies", func() error {
			return d.broker.WatchPolicies(ctx, func(set queue.PolicySet) {
				d.post(func(now instant) { d.setPolicies(set, now) })
				if !once {
					once = true
					synced()
				}
			})
		})
	})
}

// connected tells the core that the connection was lost or is back, perhaps to a server with other bounds.
func (d *Drainer) connected(up bool, now instant) {
	d.core.most = recordBytes(d.broker.Conn().MaxPayload())
	d.core.connection(up, now)
}

// forever calls f again until the context ends.
func (d *Drainer) forever(ctx context.Context, what string, f func() error) {
	d.retry(ctx, what, func() error {
		if err := f(); err != nil {
			return err
		}
		return errors.New("ended")
	})
}

// retry calls f until it succeeds or the context ends, with a pause between. After some failures in a row that is told, unless
// what is empty.
func (d *Drainer) retry(ctx context.Context, what string, f func() error) bool {
	told := false
	for tries := 0; ; tries++ {
		began := time.Now()
		err := f()
		over := err == nil || ctx.Err() != nil
		if told && (over || time.Since(began) >= wellFor) {
			d.struggles.end(ctx)
			tries, told = 0, false
		}
		if over {
			return err == nil
		}
		if tries == triesUntold && what != "" {
			d.struggles.begin(what, err)
			told = true
		}
		timer := time.NewTimer(retryPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// wellFor is after how long what goes on for ever has not failed at once: no call takes as long.
const wellFor = 10 * time.Second

func recordFrom(r queue.Record) record {
	return record{exists: !r.Deleted, value: r.Value, revision: r.Revision, stored: r.Stored}
}
