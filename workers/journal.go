package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/queue/kv"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// journal writes records of failed attempts, and of the ends of jobs with an Idempotency-Key.
type journal struct {
	*calls
	attempts *kv.Table
	ends     queue.Results
	catalog  *catalog
	backlogs *backlogs
}

func (j *journal) Save(s valve.Save) {
	b := j.backlogs.all[s.Part]
	if b == nil {
		return
	}
	s.Record.At = j.core.Wall(j.now()).UnixMicro()
	j.persist(b.ctx, purpose{s.Part.Policy, "record attempt"}, func() error {
		return j.write(b.ctx, &s)
	}, func() core.Event { return core.Saved{Save: s} })
}

func (j *journal) NoteDone(e valve.Ending) {
	left := e.Accepted.Add(time.Duration(j.catalog.policies[e.Part.Policy].DuplicateWindow)).
		Sub(j.core.Wall(j.now()))
	if left <= 0 {
		return
	}
	if err := j.ends.NoteDone(e.Part.Policy, e.Seq, e.Ended, left); err != nil {
		j.log.Debug("repeats of a completed job cannot be compared with it",
			"job", e.Seq, "error", err)
	}
}

// NoteEnd records any other end, before the acknowledgement.
func (j *journal) NoteEnd(e valve.Ending) {
	b := j.backlogs.all[e.Part]
	if b == nil {
		return
	}
	j.persist(b.ctx, purpose{e.Part.Policy, "note how a job ended"}, func() error {
		if e.Headless {
			found, err := j.backlogs.read(b, e.Seq)
			if err != nil {
				return err
			}
			e.Sum = job.HeaderValue(found.Header, job.HeaderSum)
		}
		return j.ends.Note(b.ctx, e.Part.Policy, e.Seq, e.Ended)
	}, func() core.Event { return core.Noted{Ending: e} })
}

func (j *journal) Forget(f valve.Forgotten) {
	j.delete(purpose{f.Part.Policy, "delete attempt"}, j.attempts, f.AttemptKey(), f.Revision)
}

func (j *journal) write(ctx context.Context, s *valve.Save) error {
	table, key := j.attempts, s.AttemptKey()
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
