package core

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// share is a partition of a policy as all drainers see it, and this process's progress with it.
// State and part are separate from the record, which may be outdated. Each write names the revision
// that it is based on.
type share struct {
	policy    string
	number    int
	valve     *valve.Valve // nil without a valve here
	ending    bool
	favourite string // preferred drainer, or empty

	ownership
	strange bool // of a newer format: read-only
	damaged []byte
	// when the record was found missing without a delete, or 0
	vanished pace.Instant

	state     shareState
	part      *partition   // owned, or being released
	before    ownership    // replaced by its taking, given back if no backlog can be opened
	freeSince pace.Instant // 0: not free
	takenAt   pace.Instant
	actAt     pace.Instant
	failures  int
	unwritten *record.Owner // a release to be repeated
	rewrites  int
	over      bool
	calm      bool // at the last visit: see isCalm
}

type partition struct {
	*valve.Part
	fresh        bool // the predecessor's state is not taken over yet
	broken       bool // its backlog must be reopened
	unopened     bool // its backlog could not be opened in this epoch
	checkpointed checkpointState
}

type shareState uint8

const (
	shareIdle shareState = iota
	shareTaking
	shareOwned
	shareReleasing
)

// ownership is the known content of an ownership record.
type ownership struct {
	exists   bool
	record   record.Owner
	revision uint64
	stored   time.Time    // by JetStream
	seen     pace.Instant // live, by this process; 0: later
}

const (
	// favouriteFirst is the time that a free partition is left to its preferred drainer.
	favouriteFirst = time.Second
	// steadyFor is the time that the set of drainers must be stable before partitions move.
	steadyFor = 500 * time.Millisecond
	// reopenAfter follows a failed opening, doubled up to reopenMost.
	reopenAfter = 500 * time.Millisecond
	reopenMost  = 10 * time.Second
	// releaseAgain is the wait before a release is repeated, doubled each time.
	releaseAgain = 100 * time.Millisecond
	// mostFailures consecutive failed openings leave a partition to others, after some 15 s: 0.5 +
	// 1 + 2 + 4 + 8.
	mostFailures = 5
	// overFor is the interval of checks for a retired policy's stream.
	overFor = 10 * time.Minute
)

func (c *cluster) stir(s *share) { s.calm, c.calm = false, false }

func (s *share) key() string { return record.ShareKey(s.policy, s.number) }

// free reports whether any drainer may take the partition. A late owner's is not free: only its
// tombstone stops it from renewing.
func (c *Core) free(s *share, now pace.Instant) bool {
	if !s.exists || s.record.Released {
		return s.vanished == 0 || now.Since(s.vanished) >= c.options.Lease
	}
	if s.strange {
		return false
	}
	unknown := s.record.Owner == ""
	if (unknown || s.damaged != nil) && now.Since(s.seen) < c.options.Lease {
		return false
	}
	if s.record.Owner == c.Lease.Id {
		return false
	}
	return unknown || c.peer(s.record.Owner, now).gone
}

// named reports whether an ownership record names a drainer. New owners distinguish crashed holders
// from live ones by tombstones.
func (c *cluster) named(id string) bool {
	for _, s := range c.shares {
		if s.exists && s.record.Owner == id && !s.record.Released {
			return true
		}
		for _, r := range s.record.Running {
			if r.Holder == id {
				return true
			}
		}
	}
	return false
}

// take takes a partition, or a new epoch for this process. It repeats the replaced record's runs
// and finished jobs: before the first checkpoint, the next owner has no other source (law 3).
func (c *Core) take(s *share, now pace.Instant) {
	if s.part == nil && s.exists && s.stored.IsZero() && s.vanished == 0 {
		// the time of its release must be known
		s.actAt = pace.Never
		c.out.reads = append(c.out.reads, Put{Table: TablePartitions, Key: s.key(), Why: whyTake})
		return
	}
	if s.part == nil {
		s.before = s.ownership
	}
	r := record.Owner{V: record.Version, Owner: c.Lease.Id, Nonce: c.nonce()}
	switch {
	case s.part != nil && !s.part.fresh:
		h := s.part.HandoverBut(now)
		r.Running, r.Stream, r.Through, r.Edits = h.Running, h.Stream, h.Through, h.Edits
		r.Ended = h.Ended
		// checkpoints continue under the old epoch until this is answered
		r.After, r.At = s.part.Epoch, c.Wall(now).UnixMicro()
	case s.before.exists:
		b := s.before.record
		r.Running, r.Done, r.Stream, r.Last, r.Through = b.Running, b.Done, b.Stream, b.Last,
			b.Through
		r.Edits, r.Ended = b.Edits, b.Ended
		if !s.before.record.Released {
			r.After = cmp.Or(s.before.record.After, s.before.revision)
		}
	}
	s.state = shareTaking
	c.write(s, r, whyTake, now)
}

// write writes an ownership record. Of two takings decided on one revision, one fails.
func (c *Core) write(s *share, r record.Owner, why reason, now pace.Instant) {
	r.Running, r.Done = slices.Clone(r.Running), slices.Clone(r.Done)
	r.Fit(c.most)
	revision := s.revision
	if !s.exists || s.vanished != 0 {
		revision = 0
	}
	c.out.puts = append(c.out.puts, Put{
		Table: TablePartitions, Key: s.key(), value: record.Encode(r), Revision: revision,
		nonce: r.Nonce, sent: now, Why: why, Aside: s.damaged,
	})
}

// owned handles a stored taking or release. The answer and the watch come in either order.
func (c *Core) owned(p Put, revision uint64, now pace.Instant) {
	s := c.shares[p.Key]
	if s == nil {
		return
	}
	c.stir(s)
	var r record.Owner
	if err := record.Decode(p.value, &r); err != nil {
		panic(fmt.Sprintf("workers: our own record: %v", err))
	}
	if s.damaged != nil && s.state == shareReleasing && r.Released {
		s.unwritten = &r
		return
	}
	if revision < s.revision || r.Owner != c.Lease.Id {
		return
	}
	if revision > s.revision {
		s.stored, s.seen = time.Time{}, now
	}
	s.revision, s.exists, s.record, s.vanished, s.damaged = revision, true, r, 0, nil
	c.takeUp(s, now)
}

// takeUp acts on a stored record of ours. It is idempotent and correct in every state, because a
// write may be applied late.
func (c *Core) takeUp(s *share, now pace.Instant) {
	switch {
	case s.record.Released:
		if s.state == shareReleasing {
			s.part, s.state, s.freeSince = nil, shareIdle, now
		}
	case s.state == shareReleasing:
	case s.part == nil:
		v := c.valve(s.policy)
		if v == nil || v.ending {
			s.state = shareIdle
			return
		}
		c.tenures++
		name := handle.Partition{Policy: s.policy, Number: s.number, Tenure: c.tenures}
		s.part = &partition{Part: v.Own(name, s.revision), fresh: true}
		s.state, s.takenAt, s.freeSince = shareOwned, now, 0
		c.out.opens = append(c.out.opens, Opening{s.part.Partition, s.part.Epoch, true})
	case s.part.Epoch != s.revision:
		c.valve(s.policy)
		s.part.Reopen(s.revision)
		s.state = shareOwned
		c.out.opens = append(c.out.opens, Opening{s.part.Partition, s.part.Epoch, s.part.fresh})
	default:
		s.state = shareOwned
	}
}

// ownerRead handles the read after a write with an unknown result. An unapplied write is repeated.
func (c *Core) ownerRead(p Put, found Record, now pace.Instant) {
	s := c.shares[p.Key]
	if s == nil {
		return
	}
	c.ownerSeen(s, found, now)
	switch {
	case s.state == shareReleasing && s.damaged != nil,
		s.state == shareReleasing && s.exists && s.record.Owner == c.Lease.Id && !s.record.Released:
		if p.Why == whyRelease {
			var r record.Owner
			if record.Decode(p.value, &r) == nil {
				s.unwritten = &r
				s.actAt = now.Add(pace.Doubled(releaseAgain, s.rewrites, reopenMost))
				s.rewrites++
			}
		}
	case s.state == shareIdle:
		s.actAt = now
	case s.state == shareTaking && p.Why == whyTake:
		if s.part != nil {
			s.state = shareOwned
			s.part.broken = true
		} else {
			s.state = shareIdle
		}
		s.actAt = now.Add(100 * time.Millisecond)
	}
}

// ownerSeen handles an ownership record. A missing record stays in effect; see [Record.vanished].
func (c *Core) ownerSeen(s *share, found Record, now pace.Instant) {
	c.stir(s)
	if found.vanished() && s.exists {
		if s.vanished == 0 {
			s.vanished = now
		}
		if s.state == shareOwned {
			s.part.broken, s.part.Checkpoints.Changed = true, true
			c.valve(s.policy)
		}
		return
	}
	if found.Revision < s.revision {
		return
	}
	if found.Revision == s.revision && s.exists == found.Exists {
		s.stored, s.vanished = found.Stored, 0
		return
	}
	s.revision, s.exists, s.stored, s.seen, s.vanished = found.Revision, found.Exists, found.Stored,
		found.seen, 0
	before := s.record
	s.record, s.strange, s.damaged = record.Owner{}, false, nil
	if found.Exists {
		err := record.Decode(found.Value, &s.record)
		if s.strange = errors.Is(err, record.ErrVersion); s.strange {
			s.record = record.Owner{}
		} else if err != nil {
			c.ownerDamaged(s, before, found.Value, now)
			if s.part != nil {
				return
			}
		}
	}
	if s.exists && !s.strange && s.record.Owner == c.Lease.Id {
		if c.Lease.Held {
			c.takeUp(s, now)
		}
		return
	}
	if s.part != nil {
		c.dropShare(s)
	}
	s.state = shareIdle
	s.freeSince = 0
}

// ownerDamaged handles an unreadable record; before was its last readable version. A live owner
// writes it again for a new epoch. Others leave it alone for a lease, and while the last known
// owner lives; then they take it as after a crash, with the checkpoint of any epoch.
func (c *Core) ownerDamaged(s *share, before record.Owner, bytes []byte, now pace.Instant) {
	s.damaged, s.seen = bytes, now
	s.record = record.Owner{V: record.Version, After: 1}
	if !before.Released && before.Owner != c.Lease.Id {
		s.record.Owner = before.Owner
	}
	if s.part != nil {
		s.part.broken, s.part.Checkpoints.Changed = true, true
	}
}

func (c *cluster) Newer(tell func(t Table, key string)) {
	for _, s := range c.order {
		if s.strange {
			tell(TablePartitions, s.key())
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.peers)) {
		if c.peers[id].strange {
			tell(TableDrainers, id)
		}
	}
}

// closeBacklog also cancels a pending opening.
func (c *Core) closeBacklog(p *partition) {
	c.valve(p.Policy)
	c.out.opens = slices.DeleteFunc(c.out.opens,
		func(o Opening) bool { return o.Part == p.Partition })
	c.out.closes = append(c.out.closes, p.Partition)
}

func (c *Core) dropShare(s *share) {
	c.closeBacklog(s.part)
	if s.part.Owned() {
		s.part.Drop()
	}
	s.part, s.state, s.freeSince = nil, shareIdle, 0
}

// release hands a partition over, once no job of it is on its way to a worker: otherwise the new
// owner might start it too (laws 2 and 3).
func (c *Core) release(s *share, now pace.Instant) {
	c.valve(s.policy)
	s.part.Quiesce()
	if s.part.Undecided() {
		c.TickAt = min(c.TickAt, now.Add(time.Millisecond))
		return
	}
	c.closeBacklog(s.part)
	var h record.Handover
	if s.over {
		h = s.part.Handover(now)
		s.part.Drop()
	} else {
		h = s.part.Surrender(now)
		if n := s.part.Unreported; n > 0 {
			c.unsettled[s.key()] += n
		}
	}
	h.At = c.Wall(now).UnixMicro()
	s.state, s.unwritten, s.rewrites = shareReleasing, nil, 0
	c.write(s, record.Owner{V: record.Version, Owner: c.Lease.Id, Nonce: c.nonce(), Released: true,
		Handover: h}, whyRelease, now)
}

func (c *Core) giveBack(s *share, now pace.Instant) {
	if s.part != nil {
		c.closeBacklog(s.part)
		s.part.Drop()
	}
	r := s.before.record
	switch {
	case !s.before.exists:
		r = record.Owner{V: record.Version, Owner: c.Lease.Id, Released: true,
			Handover: record.Handover{Partial: true}}
	case !r.Released:
		r.After = cmp.Or(r.After, s.before.revision)
	}
	r.Nonce = c.nonce()
	s.state, s.unwritten, s.rewrites = shareReleasing, nil, 0
	c.write(s, r, whyRelease, now)
}
