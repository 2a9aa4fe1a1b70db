package core

import (
	"cmp"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// view is what moves depend on, besides the partition.
type view struct {
	now     pace.Instant
	self    string
	leaving bool
	steady  bool // the set of drainers is stable
	peers   *peers
}

// move is the next step of a drainer with a partition.
type move uint8

const (
	moveNone   move = iota // an event or another drainer's end comes first
	moveWait               // later, perhaps
	moveTake               // a free partition, or a new epoch
	moveTakeUp             // what a late write took
	moveOpen               // its backlog
	moveRelease
	moveRepeat   // a release that was not stored
	moveGiveBack // it was not taken over
)

// next decides on a partition's next move, whatever happened to it; only this does. Events report,
// and writes are answered, in any order.
func (s *share) next(v view) move {
	switch s.state {
	case shareIdle:
		return s.idle(v)
	case shareOwned:
		return s.owned(v)
	case shareReleasing:
		if s.unwritten != nil && v.now >= s.actAt {
			return moveRepeat
		}
	}
	return moveWait
}

func (s *share) idle(v view) move {
	ours := s.exists && s.record.Owner == v.self && !s.record.Released // a late taking was applied
	switch {
	case ours && s.able:
		return moveTakeUp
	case ours:
		return moveGiveBack
	case !s.able:
		s.since = 0
		return moveNone
	case v.now < s.actAt:
		return moveWait
	case !s.free(v):
		s.since = 0
		if s.exists && s.vanished == 0 && s.damaged == nil {
			return moveNone
		}
		return moveWait
	}
	s.since = cmp.Or(s.since, v.now)
	switch waits := v.now.Since(s.since); {
	case v.leaving && (s.unsettled == 0 || waits <= steadyFor || s.heir(v)):
		return moveWait
	case v.leaving:
		// Outcomes of our runs have no successor: take the partition back to acknowledge.
		return moveTake
	case s.favourite == v.self || waits >= favouriteFirst:
		return moveTake
	}
	return moveWait
}

// owned opens, retakes or hands over an owned partition: only to a recently live favourite, after a
// stable set of drainers, and not within half a lease of its taking. One that cannot be opened is
// given up to others. If its stream may still exist, it is opened again later, to acknowledge
// finished jobs. State that was not taken over is given back.
func (s *share) owned(v view) move {
	p, looks, givesUp := s.part, s.part.LookFor(v.now), s.givesUp(v)
	stuck := p.unopened && (givesUp || s.over ||
		s.failures >= mostFailures && v.peers.run(s.policy, v.now))
	switch {
	case stuck && p.fresh:
		return moveGiveBack
	case stuck && (!givesUp || s.over || s.canGo(v)):
		return moveRelease
	case v.now < s.actAt:
		return moveWait
	case p.unopened:
		return moveOpen
	case p.broken:
		return moveTake
	case p.fresh:
		return moveWait
	case givesUp && s.canGo(v), !givesUp && p.Quiesced:
		return moveRelease
	case givesUp:
		return moveWait
	case s.favourite != "" && s.favourite != v.self:
		if v.steady && s.heir(v) && v.now.Since(s.since) >= v.peers.lease/2 {
			return moveRelease
		}
		return moveWait
	case looks:
		return moveWait
	}
	return moveNone
}

// free reports whether any drainer may take the partition. A late owner's is not free: only its
// tombstone stops it from renewing.
func (s *share) free(v view) bool {
	switch {
	case !s.exists || s.record.Released:
		return s.vanished == 0 || v.now.Since(s.vanished) >= v.peers.lease
	case s.strange || s.record.Owner == v.self:
		return false
	}
	unknown := s.record.Owner == ""
	if (unknown || s.damaged != nil) && v.now.Since(s.seen) < v.peers.lease {
		return false
	}
	return unknown || v.peers.of(s.record.Owner, v.now).gone
}

func (s *share) givesUp(v view) bool { return v.leaving || !s.able }

// heir reports whether another drainer should own the partition, and lives.
func (s *share) heir(v view) bool { return v.peers.live(s.favourite, v.now) }

// canGo reports whether a given-up partition has an heir for its runs' outcomes, or no outcomes to
// report (law 6).
func (s *share) canGo(v view) bool {
	if s.heir(v) {
		return true
	}
	s.part.Quiesce()
	return s.unsettled == 0 && s.part.Quiet()
}
