package workers

import (
	"context"
	"errors"
	"log/slog"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/kv"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

type records struct {
	*calls
	tables queue.Tables
	proof  *proof
	*unreadable
}

func (r *records) table(t core.Table) *kv.Table {
	if t == core.TableDrainers {
		return r.tables.Drainers
	}
	return r.tables.Partitions
}

func (r *records) Write(p core.Put) { r.spawn(func() { r.write(p) }) }

func (r *records) write(p core.Put) {
	ctx, cancel := context.WithTimeout(r.life, r.patience)
	defer cancel()
	value, table := p.Bytes(), r.table(p.Table)
	revision, err := uint64(0), error(nil)
	if p.Aside != nil {
		err = r.setAside(ctx, table, p.Key, p.Aside)
	}
	if err == nil {
		revision, err = table.Put(ctx, p.Key, value, p.Revision)
	}
	if errors.Is(err, queue.ErrTooLarge) {
		r.seldom.Log("record", slog.LevelError,
			"record exceeds the server's max_payload",
			"record", p.Key, "bytes", len(value), "max_payload", r.nc.MaxPayload())
	}
	r.send(core.Written{Put: p, Revision: revision})
	if p.Why == core.WhyRenew {
		r.post(func(pace.Instant) { r.proof.err = err })
	}
}

func (r *records) Read(p core.Put) {
	r.spawn(func() {
		var found kv.Record
		if r.retry(r.life, "read record "+p.Key, func() (err error) {
			found, err = r.table(p.Table).Read(r.life, p.Key)
			if errors.Is(err, queue.ErrNotFound) {
				found.Deleted, err = true, nil
			}
			return err
		}) {
			r.send(core.Found{Put: p, Record: recordFrom(found)})
		}
	})
}

func (r *records) Delete(p core.Put) {
	r.delete(purpose{what: "delete record"}, r.table(p.Table), p.Key, p.Revision)
}

func (c *calls) delete(p purpose, from *kv.Table, key string, revision uint64) {
	c.call(c.life, p, func() error {
		err := from.Delete(c.life, key, revision)
		if err != nil {
			c.log.Debug("record not deleted", "record", key, "error", err)
		}
		return err
	})
}

func recordFrom(r kv.Record) core.Record {
	return core.Record{Exists: !r.Deleted, Value: r.Value, Revision: r.Revision, Stored: r.Stored}
}
