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

// share is one partition of one policy as all drainers see it, and what this one is doing about it.
//
// The record is the truth, and what is known of it may be late. So what this process does about a
// partition (state, part) is kept apart from what the record says, and a write always names the
// revision that it was decided by: if that is not the latest any more, the write fails and is
// decided anew.
type share struct {
	policy string
	number int

	revision uint64
	exists   bool
	strange  bool // the record is of a newer format: this version may not touch it
	// the record's bytes if they cannot be read: kept aside before they are written over
	damaged []byte
	// 0, or when it was found that the record is gone though nobody deleted it; what it said stands
	vanished pace.Instant
	record   record.Owner
	stored   time.Time    // when JetStream stored the record
	seen     pace.Instant // when this process saw that, live; 0: it came later

	state     shareState
	part      *partition   // owned, or being released
	before    predecessor  // as the record stood when it was taken
	freeSince pace.Instant // 0: it is not free
	takenAt   pace.Instant
	actAt     pace.Instant  // not before: a new attempt after one that failed
	failures  int           // openings in a row
	unwritten *record.Owner // a release to be written again
	rewrites  int           // of it
	over      bool          // its stream is gone for good, as far as is known
}

// partition is one that this drainer owns, or releases.
type partition struct {
	*valve.Part
	fresh        bool // what the predecessor left was not taken over yet
	broken       bool // its backlog lost its way and must be opened anew
	unopened     bool // its backlog could not be opened in this epoch
	checkpointed checkpointState
}

type shareState uint8

const (
	shareIdle shareState = iota
	// a taking is under way, of a free partition or of our own for a new epoch
	shareTaking
	shareOwned     // part is set
	shareReleasing // part is set, its record is being written
)

// predecessor is the record that a taking replaced.
//
// It is kept beside the record because the taking overwrites that: what the former owner left is
// read only when the backlog is open, and if that never succeeds it has to be given back.
type predecessor struct {
	exists   bool
	record   record.Owner
	revision uint64
	stored   time.Time
	seen     pace.Instant
}

const (
	// favouriteFirst is how long a free partition is left to the drainer that should have it, so
	// that not all take it at once and the one that gets it does not have to hand it on. A
	// favourite that is frozen or cut off holds nothing up for longer.
	favouriteFirst = time.Second
	// steadyFor is how long the set of drainers must have been the same before partitions move:
	// several that start or leave together, as in a rolling restart, would each move what the next
	// one moves again.
	steadyFor = 500 * time.Millisecond
	// reopenAfter is the wait before a backlog that could not be opened is tried again, doubled for
	// each further failure up to reopenMost: its stream may not be there yet, or not any more.
	reopenAfter = 500 * time.Millisecond
	reopenMost  = 10 * time.Second
	// releaseAgain is the wait before a release that was not applied is written again, doubled
	// likewise.
	releaseAgain = 100 * time.Millisecond
	// mostFailures is after how many openings that failed in a row a partition is left to another
	// drainer, some 15 s: 0.5 + 1 + 2 + 4 + 8.
	mostFailures = 5
	// overFor is how long nobody looks again whether the stream of a retired policy is there after
	// all.
	overFor = 10 * time.Minute
)

func (s *share) key() string { return record.ShareKey(s.policy, s.number) }

// free reports whether anyone may take the partition.
//
// A partition of an owner that is late is not free, however late it is: only its tombstone, which
// buryPeers writes, stops it from renewing. What names this process is not free either; distribute
// settles that.
func (c *Core) free(s *share, now pace.Instant) bool {
	if !s.exists || s.record.Released {
		// Somebody may have taken it just before its record vanished, and writes that again.
		return s.vanished == 0 || now.Since(s.vanished) >= c.options.Lease
	}
	if s.strange {
		return false
	}
	unknown := s.record.Owner == "" // the record was damaged
	if (unknown || s.damaged != nil) && now.Since(s.seen) < c.options.Lease {
		return false // an owner that lives writes it again
	}
	if s.record.Owner == c.Lease.Id {
		return false
	}
	return unknown || c.peer(s.record.Owner, now).gone
}

// named reports whether an ownership record names a drainer.
//
// While one does, the drainer's tombstone must stay: a new owner has to tell who crashed from who
// still runs a job that was handed over.
func (c *Core) named(id string) bool {
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

// take asks for a partition, or for a new epoch of our own.
//
// A taking says again what it overwrites: who runs what, and what is done. Its writer may crash
// before it has opened anything and noted a checkpoint of its own, and then the record is all that
// the next owner finds: jobs of a third process that still runs them would start a second time (law
// 3).
func (c *Core) take(s *share, now pace.Instant) {
	if s.part == nil && s.exists && s.stored.IsZero() && s.vanished == 0 {
		// how long ago it was released must be known: look first
		s.actAt = pace.Never
		c.out.reads = append(c.out.reads,
			read{Put{Table: TablePartitions, Key: s.key(), Why: whyTake}})
		return
	}
	if s.part == nil {
		s.before = predecessor{s.exists, s.record, s.revision, s.stored, s.seen}
	}
	r := record.Owner{V: record.Version, Owner: c.Lease.Id, Nonce: c.nonce()}
	switch {
	case s.part != nil && !s.part.fresh:
		h := c.valves[s.policy].HandoverBut(s.part.Part, now)
		r.Running, r.Stream, r.Through, r.Edits = h.Running, h.Stream, h.Through, h.Edits
		// checkpoints go on under the old epoch until this is answered
		r.After, r.At = s.part.Epoch, c.Wall(now).UnixMicro()
	case s.before.exists: // not taken in yet
		b := s.before.record
		r.Running, r.Done, r.Stream, r.Last, r.Through = b.Running, b.Done, b.Stream, b.Last,
			b.Through
		r.Edits = b.Edits
		if !s.before.record.Released {
			r.After = cmp.Or(s.before.record.After, s.before.revision)
		}
	}
	s.state = shareTaking
	c.write(s, r, whyTake, now)
}

// write has an ownership record written. Compare-and-set by the revision that the decision was made
// by is what makes one writer: of two takings for one partition one is refused. Where there is no
// record, or it went with its table, it must be created: revision 0.
func (c *Core) write(s *share, r record.Owner, why reason, now pace.Instant) {
	r.Running, r.Done = slices.Clone(r.Running), slices.Clone(r.Done) // fit sorts them
	r.Fit(c.most)
	r.Kept = -1
	if from, known := s.record.KeepsFrom(s.revision); known && s.exists {
		r.Kept = int64(from)
	}
	revision := s.revision
	if !s.exists || s.vanished != 0 {
		revision = 0
	}
	c.out.puts = append(c.out.puts, Put{
		Table: TablePartitions, Key: s.key(), value: record.Encode(r), Revision: revision,
		nonce: r.Nonce, sent: now, Why: why, Aside: s.damaged,
	})
}

// owned takes the answer to a taking or a release. One that was refused, or is not known, is read
// back: it may be our own earlier write that is in the way, and an unknown write may still have
// been applied. The answer and the watch come in either order, so that both end in takeUp,
// which does nothing the second time.
func (c *Core) owned(p Put, result putResult, revision uint64, now pace.Instant) {
	s := c.shares[p.Key]
	if s == nil {
		return
	}
	if result != PutOK {
		c.out.reads = append(c.out.reads, read{p})
		return
	}
	var r record.Owner
	if err := record.Decode(p.value, &r); err != nil {
		panic(fmt.Sprintf("workers: our own record: %v", err))
	}
	if s.damaged != nil && s.state == shareReleasing && r.Released {
		s.unwritten = &r // it was damaged since: once more
		return
	}
	if revision < s.revision || r.Owner != c.Lease.Id {
		return // overtaken: the watch told more, or the lease was lost meanwhile
	}
	if revision > s.revision {
		s.stored, s.seen = time.Time{}, now // the watch will tell
	}
	s.revision, s.exists, s.record, s.vanished, s.damaged = revision, true, r, 0, nil
	c.takeUp(s, now)
}

// takeUp acts on a record of ours that is known to stand.
//
// It must be right in every state, since a write can be applied when it was given up long ago: a
// taking whose policy has gone, or one that a release has followed.
func (c *Core) takeUp(s *share, now pace.Instant) {
	switch {
	case s.record.Released:
		if s.state == shareReleasing {
			s.part, s.state, s.freeSince = nil, shareIdle, now
		}
	case s.state == shareReleasing: // a late taking; the release is on its way or is repeated
	case s.part == nil:
		v := c.valve(s.policy)
		if v == nil || v.ending {
			s.state = shareIdle // distribute gives it back
			return
		}
		c.tenures++
		name := handle.Partition{Policy: s.policy, Number: s.number, Tenure: c.tenures}
		s.part = &partition{Part: v.Own(name, s.revision), fresh: true}
		s.state, s.takenAt, s.freeSince = shareOwned, now, 0
		c.out.opens = append(c.out.opens, Opening{s.part.Partition, s.part.Epoch, true})
	case s.part.Epoch != s.revision:
		c.valve(s.policy).Reopen(s.part.Part, s.revision)
		s.state = shareOwned
		c.out.opens = append(c.out.opens, Opening{s.part.Partition, s.part.Epoch, s.part.fresh})
	default:
		s.state = shareOwned
	}
}

// ownerRead takes what a read found after a taking or a release of unknown result.
//
// What was wanted and is not so is wanted again, after a pause if the server refused it at once. A
// release is repeated as it was, with the clocks and runs of then: this process starts nothing of
// the partition since, and what ends is reported.
func (c *Core) ownerRead(p Put, found Record, now pace.Instant) {
	s := c.shares[p.Key]
	if s == nil {
		return
	}
	c.ownerSeen(s, found, now)
	switch {
	case s.state == shareReleasing && s.damaged != nil,
		s.state == shareReleasing && s.exists && s.record.Owner == c.Lease.Id &&
			!s.record.Released:
		if p.Why == whyRelease {
			var r record.Owner
			if record.Decode(p.value, &r) == nil {
				s.unwritten = &r // it was not applied: once more
				s.actAt = now.Add(pace.Doubled(releaseAgain, s.rewrites, reopenMost))
				s.rewrites++
			}
		}
	case s.state == shareIdle:
		s.actAt = now
	case s.state == shareTaking && p.Why == whyTake:
		if s.part != nil {
			s.state = shareOwned // a new epoch of our own is asked for again
			s.part.broken = true
		} else {
			s.state = shareIdle
		}
		s.actAt = now.Add(100 * time.Millisecond)
	}
}

// ownerSeen takes an ownership record that the watch or a read delivered.
//
// A record that vanished with its table takes nothing from its owner, who writes it again for a new
// epoch; others leave the partition alone for a lease meanwhile. If nobody wrote it again, that
// would be one owner without a record and soon another with one.
func (c *Core) ownerSeen(s *share, found Record, now pace.Instant) {
	if found.vanished() && s.exists {
		if s.vanished == 0 {
			s.vanished = now
		}
		if s.state == shareOwned { // then its owner writes it again, for a new epoch
			s.part.broken, s.part.Changed = true, true
			c.valve(s.policy)
		}
		return
	}
	if found.Revision < s.revision {
		return
	}
	if found.Revision == s.revision && s.exists == found.Exists {
		s.stored, s.vanished = found.Stored, 0 // what was told of a table made anew may come late
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

// ownerDamaged takes an ownership record that cannot be read, of which before was the former one.
//
// An owner that lives knows all that the record said, and writes it again for a new epoch: no other
// process can have taken the partition since, or this write would fail. Others leave the partition
// alone for a lease, and while the last known owner lives; then they take it as after a crash of an
// owner of which only the checkpoint tells, of whatever epoch that is.
func (c *Core) ownerDamaged(s *share, before record.Owner, bytes []byte, now pace.Instant) {
	s.damaged, s.seen = bytes, now
	s.record = record.Owner{V: record.Version, After: 1}
	if !before.Released && before.Owner != c.Lease.Id {
		s.record.Owner = before.Owner
	}
	if s.part != nil {
		s.part.broken, s.part.Changed = true, true
	}
}

// Newer tells of the owners' records and the leases of a newer format.
func (c *Core) Newer(tell func(t Table, key string)) {
	for _, s := range c.sortedShares() {
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

// closeBacklog closes the backlog of a partition that this process gives up, also one that was to
// be opened in this turn: it would stay open, and refuse for good what others ask the owner.
func (c *Core) closeBacklog(p *partition) {
	c.out.opens = slices.DeleteFunc(c.out.opens,
		func(o Opening) bool { return o.Part == p.Partition })
	c.out.closes = append(c.out.closes, p.Partition)
}

// dropShare forgets a partition that is no longer ours.
//
// What runs of it here runs on, to no effect: its new owner has counted it as crashed, and the old
// consumer's acknowledgements do nothing.
func (c *Core) dropShare(s *share) {
	c.closeBacklog(s.part)
	if s.part.Owned() {
		c.valve(s.policy).Drop(s.part.Part)
	}
	s.part, s.state, s.freeSince = nil, shareIdle, 0
}

// release hands a partition over to whoever takes it, as soon as no job of it is on its way to a
// worker: a job that came back after the handover would start too late for its order.
//
// First the valve starts nothing more; then the last jobs pass their last check or come back, in a
// millisecond; only then is it collected who runs what and written. In any other order a job could
// start that the record does not tell of: its new owner would start it too (laws 2 and 3). While
// the record is on its way nobody starts anything, which is the gap that a handover has.
func (c *Core) release(s *share, now pace.Instant) {
	c.valve(s.policy).Quiesce(s.part.Part)
	if s.part.Undecided() {
		c.TickAt = min(c.TickAt, now.Add(time.Millisecond))
		return
	}
	c.closeBacklog(s.part)
	var h record.Handover
	if v := c.valves[s.policy]; s.over { // no successor will want to hear what becomes of the jobs
		h = v.Handover(s.part.Part, now, 0)
		v.Drop(s.part.Part)
	} else {
		h = v.Surrender(s.part.Part, now)
		if n := s.part.Unreported(); n > 0 {
			c.unsettled[s.key()] += n
		}
	}
	h.At = c.Wall(now).UnixMicro()
	s.state, s.unwritten, s.rewrites = shareReleasing, nil, 0
	c.write(s,
		record.Owner{V: record.Version, Owner: c.Lease.Id, Nonce: c.nonce(), Released: true,
			Handover: h},
		whyRelease, now)
}

// giveBack writes again what a taking replaced, so that whoever takes the partition next knows as
// much: nothing that its former owner left was taken in here.
func (c *Core) giveBack(s *share, now pace.Instant) {
	if s.part != nil {
		c.closeBacklog(s.part)
		c.valve(s.policy).Drop(s.part.Part)
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
