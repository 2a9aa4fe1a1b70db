package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/queue"
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
	if errors.Is(err, jet.ErrTooLarge) {
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
			if errors.Is(err, jet.ErrNotFound) {
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
	if !errors.Is(err, jet.ErrConflict) {
		return err
	}
	found, read := table.Read(ctx, key)
	if read != nil && !errors.Is(read, jet.ErrNotFound) {
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

// Bury stores a dead letter, while the lease lasts: later another process may own the job and have
// run it.
func (p performer) Bury(u valve.Burial) {
	b := p.backlogs.all[u.Part]
	if b == nil {
		return
	}
	created := b.born(u.Stored)
	letter := jet.DeadLetter{
		Policy: u.Part.Policy, Key: u.Key, Seq: u.Seq, Partition: u.Part.Number,
		Stored: u.Stored, Reason: string(u.Reason), Error: u.Detail, Attempts: u.Attempts,
		Header: u.Header, Body: u.Body,
		IdempotencyKey: job.IdempotencyKey(u.Header, u.Part.Policy, created, u.Seq),
	}
	letter.Bodyless = !p.catalog.policies[letter.Policy].Dead.KeepsBodies()
	through := p.catalog.policies[letter.Policy].Callbacks
	end := queue.Result{Job: job.ID(letter.Policy, u.Seq), End: queue.EndDead, Reason: u.Reason,
		Error: u.Detail, Attempts: u.Attempts}
	// then the process that ran it queued the callback
	called := u.Reason == queue.ReasonPermanent
	var discarded uint64
	p.persist(b.ctx, purpose{letter.Policy, "store dead letter"}, func() error {
		if fence, now := p.gate.check(); now >= fence {
			return errLeaseLost
		}
		if u.Lean && letter.Body == nil {
			found, err := p.backlogs.read(b, u.Seq)
			if err != nil {
				return err
			}
			letter.Body = found.Body
			if u.Headless {
				letter.Header = found.Header
				letter.IdempotencyKey = job.IdempotencyKey(found.Header, u.Part.Policy, created,
					u.Seq)
			}
		}
		if !called {
			owed := p.callbacks.of(through, letter.Policy, u.Key, letter.Header, created, u.Seq)
			if err := owed.queue(b.ctx, end); err != nil {
				return err
			}
			called = true
		}
		n, err := p.broker.Letters(letter.Policy).Bury(b.ctx, letter)
		discarded += n
		return err
	}, func() core.Event {
		p.seldom.Log("letter "+letter.Policy, slog.LevelWarn, "dead letter", "policy",
			letter.Policy, "job", end.Job, "key", u.Key.Raw(), "reason", u.Reason, "error",
			u.Detail)
		if discarded > 0 {
			p.tell(jet.EventDiscarded, letter.Policy, int64(discarded))
			p.seldom.Log("discarded "+letter.Policy, slog.LevelWarn,
				"discarding the oldest dead letters: the policy's limit is reached", "policy",
				letter.Policy, "letters", discarded)
		}
		if u.Reason != queue.ReasonPermanent { // then waiters have the reply
			p.broker.PublishResult(letter.Header, end)
		}
		p.sink.Take(queue.Event{Type: queue.EventDead, Policy: letter.Policy, Job: end.Job,
			Key: u.Key, Tags: job.Tags(letter.Header), Header: letter.Header,
			Attempt: letter.Attempts, Reason: letter.Reason, Error: u.Detail, Accepted: u.Stored})
		return core.Buried{Ref: u.Ref}
	})
}
