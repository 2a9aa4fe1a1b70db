package workers

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/queue"
)

// Attempt records are written by compare-and-set. A process that was declared dead and goes on may still have a write under
// way, and so may one whose call was given up: neither takes back what a later owner has counted.

// save asks for an attempt record to be written.
type save struct {
	*job
	record   attemptRecord
	revision uint64 // of the record that it replaces, and then its own; 0: there is none
}

// forgotten is an attempt record that is to be deleted.
type forgotten struct {
	recordOf
	revision uint64 // 0: whatever it is
}

// met takes what stands where a write of a save conflicted, and reports whether that is the end of it: because it is this
// very write, whose answer was lost; because the job is finished; or because an owner of a later epoch has written, so that
// this process owns the job no more. (Should epochs have gone back, as in a table that was restored, the job goes on without
// a record.) Otherwise an earlier owner wrote after its successor had read: what it counted counts, and is replaced.
func (s *save) met(found record) (end bool) {
	if !found.exists {
		s.revision = 0 // the oldest records go when there are too many of them
		return found.revision > 0
	}
	var r attemptRecord
	err := decode(found.value, &r)
	if err == nil && r.Epoch > s.record.Epoch {
		return true
	}
	s.revision = found.revision
	if errors.Is(err, errVersion) || bytes.Equal(found.value, encode(s.record)) {
		return true
	}
	if r.Stream == s.record.Stream {
		s.record.Attempts, s.record.Crashes = max(s.record.Attempts, r.Attempts), max(s.record.Crashes, r.Crashes)
	}
	return false
}

// stored is called in the loop when a save is at its end.
func (v *valve) stored(s *save, now instant) {
	j := s.job
	j.bucket.part.records[j.Seq] = s.revision
	j.attempts, j.crashes = max(j.attempts, s.record.Attempts), max(j.crashes, s.record.Crashes)
	v.saved(j, now)
}

// writeAttempt tries once to write a save.
func (d *Drainer) writeAttempt(ctx context.Context, s *save) error {
	key, table := attemptKey(s.bucket.part, s.Seq), d.broker.Attempts()
	revision, err := table.Put(ctx, key, encode(s.record), s.revision)
	if err == nil {
		s.revision = revision
	}
	if !errors.Is(err, queue.ErrConflict) {
		return err
	}
	found, read := table.Read(ctx, key)
	if errors.Is(read, queue.ErrNotFound) {
		found.Deleted, read = true, nil
	}
	if read != nil {
		return fmt.Errorf("%w, read back: %w", err, read)
	}
	if s.met(recordFrom(found)) {
		return nil
	}
	return err
}
