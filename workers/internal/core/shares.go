package core

import (
	"slices"

	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// shares are the partitions of all policies. Calm ones are visited only after an event about them,
// and at intervals.
type shares struct {
	all     map[string]*share // by key
	order   []*share          // by name, because a seed must reproduce a run
	changed bool              // favourites must be recomputed
	calm    bool
	allAt   pace.Instant // next visit to all
	// when the set of drainers has been the same for long enough to move partitions
	steadyAt pace.Instant
}

// anew recomputes favourites and visits all shares, because drainers changed.
func (s *shares) anew() { s.changed, s.allAt = true, 0 }

func (s *shares) stir(x *share) { x.calm, s.calm = false, false }

// of returns the share of an owned partition, or of one being released.
func (s *shares) of(name handle.Partition) *share {
	x := s.all[record.ShareKey(name.Policy, name.Number)]
	if x == nil || x.part == nil || x.part.Partition != name {
		return nil
	}
	return x
}

// names reports whether an ownership record names a drainer. New owners distinguish crashed holders
// from live ones by tombstones.
func (s *shares) names(id string) bool {
	for _, x := range s.order {
		if x.exists && x.record.Owner == id && !x.record.Released ||
			slices.ContainsFunc(x.record.Running,
				func(r record.Run) bool { return r.Holder == id }) {
			return true
		}
	}
	return false
}

// left reports whether no partition is held, and no outcome is to be reported (law 3).
func (s *shares) left() bool {
	return !slices.ContainsFunc(s.order,
		func(x *share) bool { return x.state != shareIdle || x.unsettled > 0 })
}

func (s *shares) add(x *share) {
	s.all[x.key()], s.order = x, inserted(s.order, x, byName)
}

// keep drops the idle shares that a policy has no more, and updates who may own the others. v is
// its valve, or nil if it has none here.
func (s *shares) keep(policy string, p *QueuePolicy, v *livePolicy) (dropped bool) {
	from, _ := slices.BinarySearchFunc(s.order, &share{policy: policy}, byName)
	to := from
	var kept []*share
	for ; to < len(s.order) && s.order[to].policy == policy; to++ {
		x := s.order[to]
		if x.state == shareIdle && (p == nil || x.number >= p.Partitions) {
			delete(s.all, x.key())
			continue
		}
		kept = append(kept, x)
		s.stir(x)
		x.able = v != nil && !v.ending
		if !x.able && x.part != nil && x.part.Owned() {
			x.part.Quiesce()
		}
	}
	if v != nil {
		v.shares = kept
	}
	s.order = slices.Replace(s.order, from, to, kept...)
	return len(kept) < to-from
}
