package core

import (
	"cmp"
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
	able      bool   // this drainer may own it
	favourite string // preferred drainer, or empty

	ownership

	state     shareState
	part      *partition   // owned, or being released
	before    ownership    // replaced by its taking, given back if no backlog can be opened
	since     pace.Instant // of its state: taken, or free; 0: idle, but not free
	actAt     pace.Instant
	failures  int
	unwritten *Put // a release to be repeated
	rewrites  int
	over      bool
	calm      bool // see moveNone
	unsettled int  // undelivered outcomes, once handed over
}

type ownership = known[record.Owner]

type partition struct {
	*valve.Part
	fresh     bool // the predecessor's state is not taken over yet
	broken    bool // its backlog must be reopened
	unopened  bool // its backlog could not be opened in this epoch
	gathering *valve.Gathering
}

type shareState uint8

const (
	shareIdle shareState = iota
	shareTaking
	shareOwned
	shareReleasing
)

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

func (s *share) key() string { return record.ShareKey(s.policy, s.number) }

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
	} else {
		s.part.broken = false
	}
	r := record.Owner{Owner: c.Lease.Id}
	switch {
	case s.part != nil && !s.part.fresh:
		r.Handover = s.part.HandoverBut(now).Jobs()
		// checkpoints continue under the old epoch until this is answered
		r.After, r.At = s.part.Epoch, c.Wall(now).UnixMicro()
	case s.before.exists:
		r.Handover = s.before.record.Jobs()
		if !s.before.record.Released {
			r.After = cmp.Or(s.before.record.After, s.before.revision)
		}
	}
	s.state = shareTaking
	c.write(s, r, whyTake, now)
}

// write writes an ownership record of ours. Of two takings decided on one revision, one fails.
func (c *Core) write(s *share, r record.Owner, why reason, now pace.Instant) {
	r.V = record.Version
	r.Running, r.Done = slices.Clone(r.Running), slices.Clone(r.Done)
	r.Fit(c.most)
	c.out.puts = append(c.out.puts, Put{
		Table: TablePartitions, Key: s.key(), value: record.Encode(r), Revision: s.base(),
		sent: now, Why: why, Aside: s.damaged,
	})
}

// takeUp acts on a stored record of ours. It is idempotent and correct in every state, because a
// write may be applied late.
func (c *Core) takeUp(s *share, now pace.Instant) {
	switch {
	case s.record.Released:
		if s.state == shareReleasing {
			s.part, s.state, s.since = nil, shareIdle, now
		}
	case s.state == shareReleasing:
	case s.part == nil:
		v := c.valves.visit(s.policy)
		if v == nil || v.ending {
			s.state = shareIdle
			return
		}
		c.tenures++
		name := handle.Partition{Policy: s.policy, Number: s.number, Tenure: c.tenures}
		s.part = &partition{Part: v.Own(name, s.revision), fresh: true}
		s.state, s.since = shareOwned, now
		c.open(s.part)
	case s.part.Epoch != s.revision:
		c.valves.visit(s.policy)
		s.part.Reopen(s.revision)
		s.state = shareOwned
		c.open(s.part)
	default:
		s.state = shareOwned
	}
}

func (c *Core) open(p *partition) {
	p.unopened = false
	c.out.opens = append(c.out.opens, Opening{p.Partition, p.Epoch, p.fresh})
}

// ownerAnswered handles the record after a write: as it was written or, if the result is unknown,
// read. The answer and the watch come in either order. An unapplied write is repeated.
func (c *Core) ownerAnswered(p Put, found Record, now pace.Instant) {
	s := c.shares.all[p.Key]
	if s == nil {
		return
	}
	c.ownerSeen(s, found, now)
	ours := s.exists && s.record.Owner == c.Lease.Id && !s.record.Released
	switch {
	case p.Why == whyRelease:
		if s.state == shareReleasing && (s.damaged != nil || ours) {
			s.unwritten = &p
			s.actAt = now.Add(pace.Doubled(releaseAgain, s.rewrites, reopenMost))
			s.rewrites++
		}
	case s.state == shareIdle:
		s.actAt = now
	case s.state == shareTaking:
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
//
// A live owner writes an unreadable record again for a new epoch. Others leave it alone for a
// lease, and while the last known owner lives; then they take it as after a crash, with the
// checkpoint of any epoch.
func (c *Core) ownerSeen(s *share, found Record, now pace.Instant) {
	c.shares.stir(s)
	before, lost := s.record, s.exists && found.vanished()
	changed := s.see(found, now)
	damaged := changed && s.damaged != nil
	if damaged {
		s.seen, s.record = now, record.Owner{V: record.Version, After: 1}
		if !before.Released && before.Owner != c.Lease.Id {
			s.record.Owner = before.Owner
		}
	}
	switch {
	case s.state == shareOwned && lost, s.part != nil && damaged:
		c.valves.visit(s.policy)
		s.part.broken, s.part.Checkpoints.Changed = true, true
	case !changed:
	case s.exists && !s.strange && s.record.Owner == c.Lease.Id:
		if c.Lease.Held {
			c.takeUp(s, now)
		}
	default:
		if s.part != nil {
			c.dropShare(s)
		}
		s.state, s.since = shareIdle, 0
	}
}

// Newer tells which records are of a newer format.
func (c *Core) Newer(tell func(t Table, key string)) {
	for _, s := range c.shares.order {
		if s.strange {
			tell(TablePartitions, s.key())
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.peers.all)) {
		if c.peers.all[id].strange {
			tell(TableDrainers, id)
		}
	}
}

// closeBacklog also cancels a pending opening.
func (c *Core) closeBacklog(p *partition) {
	c.valves.visit(p.Policy)
	c.out.opens = slices.DeleteFunc(c.out.opens,
		func(o Opening) bool { return o.Part == p.Partition })
	c.out.closes = append(c.out.closes, p.Partition)
}

func (c *Core) dropShare(s *share) {
	c.closeBacklog(s.part)
	if s.part.Owned() {
		s.part.Drop()
	}
	s.part, s.state, s.since = nil, shareIdle, 0
}

// release hands a partition over, once no job of it is on its way to a worker: otherwise the new
// owner might start it too (laws 2 and 3).
func (c *Core) release(s *share, now pace.Instant) {
	c.valves.visit(s.policy)
	s.part.Quiesce()
	if s.part.Undecided() {
		c.TickAt = min(c.TickAt, now.Add(time.Millisecond))
		return
	}
	var h record.Handover
	if s.over {
		h = s.part.Handover(now)
		s.part.Drop()
	} else {
		h = s.part.Surrender(now)
		s.unsettled += s.part.Unreported
	}
	h.At = c.Wall(now).UnixMicro()
	c.letGo(s, record.Owner{Owner: c.Lease.Id, Released: true, Handover: h}, now)
}

// giveBack restores the state that a partition had before its taking.
func (c *Core) giveBack(s *share, now pace.Instant) {
	if s.part != nil {
		s.part.Drop()
	}
	r := s.before.record
	switch {
	case !s.before.exists:
		r = record.Owner{Owner: c.Lease.Id, Released: true,
			Handover: record.Handover{Partial: true}}
	case !r.Released:
		r.After = cmp.Or(r.After, s.before.revision)
	}
	c.letGo(s, r, now)
}

func (c *Core) letGo(s *share, r record.Owner, now pace.Instant) {
	if p := s.part; p != nil {
		c.closeBacklog(p)
		switch {
		case !p.unopened:
		case s.over:
			s.actAt = now.Add(overFor)
		case !c.Leaving && s.able:
			s.failures, s.actAt = 0, now.Add(reopenMost)
		}
	}
	s.state, s.unwritten, s.rewrites = shareReleasing, nil, 0
	c.write(s, r, whyRelease, now)
}
