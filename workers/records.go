package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/queue/kv"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

func (p *parts) table(t core.Table) *kv.Table {
	if t == core.TableDrainers {
		return p.broker.Tables().Drainers
	}
	return p.broker.Tables().Partitions
}

func (r performer) Write(p core.Put) { r.spawn(func() { r.write(p) }) }

func (r performer) write(p core.Put) {
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

func (r performer) Read(p core.Put) {
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

func (r performer) Delete(p core.Put) {
	r.delete(purpose{what: "delete record"}, r.table(p.Table), p.Key, p.Revision)
}

func (c *calls) delete(p purpose, from *kv.Table, key string, revision uint64) {
	c.call(c.life, p, func() {
		if err := from.Delete(c.life, key, revision); err != nil {
			c.log.Debug("record not deleted", "record", key, "error", err)
		}
	})
}

func recordFrom(r kv.Record) core.Record {
	return core.Record{Exists: !r.Deleted, Value: r.Value, Revision: r.Revision, Stored: r.Stored}
}

// Save writes the record of a failed attempt.
func (p performer) Save(s valve.Save) {
	b := p.backlogs.all[s.Part]
	if b == nil {
		return
	}
	s.Record.At = p.core.Wall(p.now()).UnixMicro()
	p.persist(b.ctx, purpose{s.Part.Policy, "record attempt"}, func() error {
		return save(b.ctx, p.broker.Tables().Attempts, &s)
	}, func() core.Event { return core.Saved{Save: s} })
}

// NoteDone records that a job with an Idempotency-Key is done.
func (p performer) NoteDone(e valve.Ending) {
	left := e.Accepted.Add(time.Duration(p.catalog.policies[e.Part.Policy].DuplicateWindow)).
		Sub(p.core.Wall(p.now()))
	if left <= 0 {
		return
	}
	if err := p.broker.Results().NoteDone(e.Part.Policy, e.Seq, e.Ended, left); err != nil {
		p.log.Debug("repeats of a completed job cannot be compared with it",
			"job", e.Seq, "error", err)
	}
}

// NoteEnd records any other end, before the acknowledgement.
func (p performer) NoteEnd(e valve.Ending) {
	b := p.backlogs.all[e.Part]
	if b == nil {
		return
	}
	p.persist(b.ctx, purpose{e.Part.Policy, "note how a job ended"}, func() error {
		if e.Headless {
			found, err := p.backlogs.read(b, e.Seq)
			if err != nil {
				return err
			}
			e.Sum = job.HeaderValue(found.Header, job.HeaderSum)
		}
		return p.broker.Results().Note(b.ctx, e.Part.Policy, e.Seq, e.Ended)
	}, func() core.Event { return core.Noted{Ending: e} })
}

func (p performer) Forget(f valve.Forgotten) {
	p.delete(purpose{f.Part.Policy, "delete attempt"}, p.broker.Tables().Attempts, f.AttemptKey(),
		f.Revision)
}

func save(ctx context.Context, table *kv.Table, s *valve.Save) error {
	key := s.AttemptKey()
	revision, err := table.Put(ctx, key, record.Encode(s.Record), s.Revision)
	if err == nil {
		s.Revision = revision
	}
	if !errors.Is(err, queue.ErrConflict) {
		return err
	}
	found, read := table.Read(ctx, key)
	if read != nil && !errors.Is(read, queue.ErrNotFound) {
		return fmt.Errorf("%w, read back: %w", err, read)
	}
	if read != nil || found.Deleted {
		found.Value = nil
	}
	if s.Met(found.Value, found.Revision) {
		return nil
	}
	return err
}
