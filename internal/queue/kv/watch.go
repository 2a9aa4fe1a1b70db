package kv

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

// Watch calls changed for every record that matches filter, deleted ones included, then synced
// once, then changed for every change, from one goroutine, until the context ends; it returns nil.
// After a lost connection it reads everything again, reports missing keys as Deleted, and may skip
// all but a key's last change. A key's reported revisions grow.
func (t *Table) Watch(ctx context.Context, filter string, changed func(Record),
	synced func()) error {
	w := &watch{table: t, filter: filter, changed: changed, synced: synced,
		known: map[string]uint64{}}
	return w.run(ctx)
}

type watch struct {
	table   *Table
	filter  string
	changed func(Record)
	synced  func() // nil once called

	known   map[string]uint64 // last reported revisions
	deleted []Record
}

const (
	watchRetryMin = 50 * time.Millisecond
	watchRetryMax = time.Second
	// watchPatience is the first wait for a consumer, doubled on each consecutive failure: a
	// stopping server never answers a request it has taken.
	watchPatience = 500 * time.Millisecond
)

func (w *watch) run(ctx context.Context) error {
	wait, patience := watchRetryMin, watchPatience
	for {
		inSync, err := w.follow(ctx, patience)
		if ctx.Err() != nil {
			return nil
		}
		w.table.log.Debug("watch begins again", "bucket", w.table.bucket, "filter", w.filter,
			"reason", err)
		if inSync {
			wait, patience = watchRetryMin, watchPatience
		}
		if jsapi.Pause(ctx, wait) != nil {
			return nil
		}
		wait, patience = min(2*wait, watchRetryMax), min(2*patience, w.table.js.Timeout)
	}
}

// follow reads all values and then changes until an error; inSync: it has read all.
func (w *watch) follow(ctx context.Context, patience time.Duration) (inSync bool, err error) {
	t := w.table
	name, waiting, err := w.open(ctx, patience)
	if err != nil {
		return false, err
	}
	defer w.drop(ctx, name)
	p, err := jsapi.NewPuller(t.js, t.stream, name)
	if err != nil {
		return false, err
	}
	defer p.Stop()
	p.Single = true

	seen := map[string]bool{}
	last, came, moved := uint64(0), uint64(0), time.Now()
	// The leader decides whether every stored record has come, because the consumer's counts are
	// wrong while a server catches up. It is asked when the consumer has no more, because a record
	// written meanwhile comes last.
	sync := func() error {
		if last == 0 {
			info, err := t.js.StreamInfo(ctx, t.stream, "")
			if err != nil {
				return err
			}
			last = info.State.LastSeq
		}
		next := came + 1
		if came < last {
			if next, err = t.js.NextStored(ctx, t.stream, t.prefix+w.filter, next); err != nil {
				return err
			}
		}
		if next <= last {
			if time.Since(moved) > jsapi.SweepPatience {
				return jsapi.ErrBehind
			}
			return nil
		}
		inSync, p.WakeIdle = true, false
		return w.finish(ctx, seen)
	}
	drained := waiting == 0
	if drained {
		if err := sync(); err != nil {
			return false, err
		}
	}
	p.WakeIdle = !inSync
	for batch := make([]jsapi.Delivery, 0, jsapi.PullHandOver); ; {
		if batch, err = p.Fetch(ctx.Done(), batch[:0]); err != nil {
			return inSync, err
		}
		paused := true
		if len(batch) > 0 {
			moved = time.Now()
		}
		for _, d := range batch {
			r := t.record(d.Message)
			if !inSync {
				seen[r.Key] = true
			}
			came, paused = d.Seq, d.Pending == 0
			drained = drained || paused
			w.report(r)
		}
		drained = drained || paused
		if !inSync && drained && (paused || came >= last) {
			if err := sync(); err != nil {
				return inSync, err
			}
		}
	}
}

func (w *watch) open(ctx context.Context, patience time.Duration) (name string, waiting uint64,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t := w.table
	name = "watch-" + jsapi.NewID()
	consumer, err := t.js.CreateConsumer(ctx, t.stream, jetstream.ConsumerConfig{
		Name:              name,
		FilterSubject:     t.prefix + w.filter,
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: time.Minute,
	})
	if err != nil {
		return "", 0, err
	}
	return name, consumer.CachedInfo().NumPending, nil
}

// drop deletes the consumer, which otherwise expires.
func (w *watch) drop(ctx context.Context, name string) {
	js := w.table.js
	if !js.NATS.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.table.js.Timeout/4)
	defer cancel()
	_ = js.DeleteConsumer(ctx, w.table.stream, name)
}

func (w *watch) report(r Record) {
	if r.Revision <= w.known[r.Key] {
		return
	}
	w.known[r.Key] = r.Revision
	if r.Deleted {
		w.deleted = append(w.deleted, r)
	}
	// When a deletion's marker has expired, no server has an older value.
	for len(w.deleted) > 0 && r.Stored.Sub(w.deleted[0].Stored) > tombstoneTTL {
		if old := w.deleted[0]; w.known[old.Key] == old.Revision {
			delete(w.known, old.Key)
		}
		w.deleted = w.deleted[1:]
	}
	w.changed(r)
}

// finish asks the leader about known keys that did not come, because a restarted server may have
// lost some.
func (w *watch) finish(ctx context.Context, seen map[string]bool) error {
	for key, revision := range w.known {
		if seen[key] {
			continue
		}
		r, err := w.table.read(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound):
			r = Record{Key: key, Revision: revision, Deleted: true}
		case err != nil:
			return err
		case !r.Deleted:
			w.report(r)
			continue
		}
		delete(w.known, key)
		w.changed(r)
	}
	if w.synced != nil {
		w.synced()
		w.synced = nil
	}
	return nil
}
