package core

import (
	"cmp"
	"errors"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Record is a record as it was delivered or read.
type Record struct {
	Exists   bool
	Value    []byte
	Revision uint64
	Stored   time.Time
	// time of its live delivery by a watch; 0: perhaps older
	seen pace.Instant
}

// vanished reports whether the record and its deletion marker are missing, because the table was
// recreated. A lost record's owner writes it again, within its fence. The last contents remain in
// effect for a lease.
func (r Record) vanished() bool { return !r.Exists && r.Stored.IsZero() }

// stored returns the record that a write of ours made.
func (p *Put) stored(revision uint64, now pace.Instant) Record {
	return Record{Exists: true, Value: p.value, Revision: revision, seen: now}
}

// known is what this process knows of a record that others write, too.
type known[T any] struct {
	exists   bool
	record   T // as far as it can be read
	revision uint64
	stored   time.Time    // by JetStream
	seen     pace.Instant // live, by this process; 0: later
	strange  bool         // of a newer format: read-only
	damaged  []byte       // cannot be read
	vanished pace.Instant // when it was found missing without a delete, or 0
}

// see takes note of a record, and reports whether it is another one. They come in any order: an
// older one is ignored, and the known one tells no more than when it was stored.
func (k *known[T]) see(found Record, now pace.Instant) (changed bool) {
	switch {
	case found.vanished() && k.exists:
		k.vanished = cmp.Or(k.vanished, now)
		return false
	case found.Revision < k.revision:
		return false
	case found.Revision == k.revision && found.Exists == k.exists:
		if k.vanished = 0; !found.Stored.IsZero() {
			k.stored = found.Stored
		}
		return false
	}
	*k = known[T]{exists: found.Exists, revision: found.Revision, stored: found.Stored,
		seen: found.seen}
	if !found.Exists {
		return true
	}
	if err := record.Decode(found.Value, &k.record); err != nil {
		k.record = *new(T)
		if k.strange = errors.Is(err, record.ErrVersion); !k.strange {
			k.damaged = found.Value
		}
	}
	return true
}

// base is the revision that a write of ours replaces: 0 if there must be none.
func (k *known[T]) base() uint64 {
	if !k.exists || k.vanished != 0 {
		return 0
	}
	return k.revision
}
