package workers

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func (d *Drainer) watchConnection() {
	status := d.broker.Conn().StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED,
		nats.CLOSED)
	d.spawn(func() {
		defer d.broker.Conn().RemoveStatusListener(status)
		for {
			select {
			case s := <-status:
				d.post(func(now pace.Instant) {
					d.core.Handle(d.connected(s == nats.CONNECTED), now)
				})
				d.post(func(pace.Instant) { d.closed = s == nats.CLOSED })
			case <-d.life.Done():
				return
			}
		}
	})
}

// watch passes records, policies and overrides to the loop, and reports when all existing ones
// were.
func (d *Drainer) watch() {
	watches := map[string]func(synced func()) error{
		"overrides": func(synced func()) error {
			return store.New(d.broker, d.log).WatchOverrides(d.life,
				func(name string, key queue.Key, o inforce.Override, _ bool) {
					d.send(core.Overridden{Policy: name, Key: key, Override: o})
				}, synced)
		},
		">": func(synced func()) error {
			return d.watchRecords(core.TableDrainers, ">", synced)
		},
		"*.*": func(synced func()) error {
			return d.watchRecords(core.TablePartitions, "*.*", synced)
		},
		"policies": func(synced func()) error {
			follow := func(set inforce.Entries, changed []string) {
				// Waiting merges concurrent changes.
				ask(d.loop, func() bool { d.setPolicies(set, changed, d.now()); return true })
				synced()
			}
			return store.New(d.broker, d.log).Watch(d.life, follow)
		},
	}
	d.spawn(func() { d.broker.Rouse(d.life) })
	var missing atomic.Int32
	missing.Store(int32(len(watches)))
	for what, watch := range watches {
		synced := sync.OnceFunc(func() {
			if missing.Add(-1) == 0 {
				d.send(core.Synced{})
			}
		})
		d.spawn(func() {
			d.forever(d.life, "watch "+what, func() error { return watch(synced) })
		})
	}
}

func (d *Drainer) watchRecords(t core.Table, filter string, synced func()) error {
	return d.table(t).Watch(d.life, filter, func(r kv.Record) {
		d.send(core.Watched{Table: t, Key: r.Key, Record: recordFrom(r)})
	}, synced)
}

// connected is the event of a lost connection, or of a new one, perhaps to a server with other
// limits.
func (d *Drainer) connected(up bool) core.Connected {
	resting := map[handle.Partition]bool{}
	for p, b := range d.backlogs.all {
		resting[p] = b.open != nil && b.open.Rests()
	}
	return core.Connected{Up: up, Most: record.Bytes(d.broker.Conn().MaxPayload()),
		Resting: resting}
}

// SetPolicies changes [Options.Policies] of a running drainer.
func (d *Drainer) SetPolicies(names []string) {
	if d.names.Swap(&names) != nil {
		return // an event takes them, perhaps not before Run
	}
	d.post(func(now pace.Instant) {
		d.options.Policies = *d.names.Swap(nil)
		if d.set != nil {
			d.configure(slices.Collect(maps.Keys(d.set)), now)
		}
	})
}

// setPolicies follows a set. changed names what differs from the last one; nil: it is compared.
func (d *Drainer) setPolicies(set inforce.Entries, changed []string, now pace.Instant) {
	if changed == nil {
		changed = inforce.Changed(d.set, set)
	}
	d.set = set
	d.backlogs.policiesChange(changed)
	d.catalog.learn(changed, set, time.Now())
	d.configure(changed, now)
}

func (d *Drainer) configure(changed []string, now pace.Instant) {
	queues := core.Configured{}
	for _, name := range changed {
		entry := d.set[name]
		own, apart := false, false
		if queues[name] = nil; entry.HasQueue() {
			local := d.catalog.running[name] != nil
			named := len(d.options.Policies) == 0 || slices.Contains(d.options.Policies, name)
			own = named && (local || d.options.OwnAll) && !d.options.WorkerOnly
			apart = !own || !local || entry.Policy.Target == nil
			queues[name] = &core.QueuePolicy{Policy: entry.Policy, Paused: entry.Paused,
				Retired: entry.Draining, Own: own, Local: local, Stored: entry.Stored}
		}
		if d.lender.apart[name] = apart; !apart {
			delete(d.lender.apart, name)
		}
		if own != d.core.MayOwn(name) {
			d.tell(jet.EventOwnable, name, jet.Whether(own))
			if !own {
				d.outages.forget(name)
			}
		}
	}
	for name := range d.catalog.handlers {
		if !strings.ContainsAny(name, `*?[\`) {
			d.note(&handlerIdle, name, d.set[name])
		}
	}
	for _, name := range d.options.Policies {
		d.note(&nameIdle, name, d.set[name])
	}
	d.core.Handle(queues, now)
	d.lender.serve(slices.Values(changed))
}
