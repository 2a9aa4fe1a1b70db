package core

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Attempt records are written by compare-and-set. A process that was declared dead and goes on may
// still have a write under way, and so may one whose call was given up: neither takes back what a
// later owner has counted.

// Save asks for an attempt record to be written.
type Save struct {
	Ref
	Record   record.Attempt
	Revision uint64 // of the record that it replaces, and then its own; 0: there is none
}

// Forgotten is an attempt record that is to be deleted.
type Forgotten struct {
	Ref
	Revision uint64 // 0: whatever it is
}

// Met takes what stands where a write of a save conflicted, and reports whether that is the end of
// it: because it is this very write, whose answer was lost; because the job is finished; or because
// an owner of a later epoch has written, so that this process owns the job no more. (Should epochs
// have gone back, as in a table that was restored, the job goes on without a record.) Otherwise an
// earlier owner wrote after its successor had read: what it counted counts, and is replaced.
func (s *Save) Met(found Record) (end bool) {
	if !found.Exists {
		s.Revision = 0 // the oldest records go when there are too many of them
		return found.Revision > 0
	}
	var r record.Attempt
	err := record.Decode(found.Value, &r)
	if err == nil && r.Epoch > s.Record.Epoch {
		return true
	}
	s.Revision = found.Revision
	if errors.Is(err, record.ErrVersion) || bytes.Equal(found.Value, record.Encode(s.Record)) {
		return true
	}
	if r.Stream == s.Record.Stream {
		s.Record.Attempts, s.Record.Crashes = max(s.Record.Attempts,
			r.Attempts), max(s.Record.Crashes, r.Crashes)
	}
	return false
}

// AttemptKey is where the attempts of a job are recorded.
func (r Ref) AttemptKey() string {
	return ShareKey(r.Part.Policy, r.Part.Number) + "." + strconv.FormatUint(r.Seq, 10)
}

func (e Saved) apply(c *Core, now pace.Instant) {
	if p := c.part(e.Part); p != nil {
		p.records[e.Seq] = e.Revision
	}
	if v, j := c.held(e.Ref); j != nil {
		j.Attempts = max(j.Attempts, e.Record.Attempts)
		j.crashes = max(j.crashes, e.Record.Crashes)
		v.saved(j, now)
	}
}
