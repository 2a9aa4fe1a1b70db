package core

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// peers are the other drainers, by id.
type peers struct {
	all   map[string]*peer
	lease time.Duration // of those whose own is not known
}

// peer is another drainer. Only an advancing revision proves that it is alive; dates come from
// other clocks. Its lease counts as seen when this process saw it, live or not.
type peer struct {
	known[record.Lease]
	gone     bool // deleted or a tombstone
	goneAt   pace.Instant
	inFlight bool
}

// of returns a drainer, from now on if it was not known.
func (p *peers) of(id string, now pace.Instant) *peer {
	if p.all[id] == nil {
		p.all[id] = &peer{known: known[record.Lease]{seen: now}}
	}
	return p.all[id]
}

// anew lets all waits for leases begin again, because events were missed.
func (p *peers) anew(now pace.Instant) {
	for _, peer := range p.all {
		peer.seen = now
	}
}

// see handles a lease, and reports whether its drainer has died, and whether partitions may be
// distributed in another way.
func (p *peers) see(id string, found Record, now pace.Instant) (died, anew bool) {
	x := p.of(id, now)
	if x.lostBy(found) {
		found = Record{}
	}
	before := *x
	changed := x.known.see(found, now)
	if changed || found.vanished() {
		x.seen, x.inFlight = now, false
	}
	if changed {
		if x.strange || x.damaged != nil {
			x.record.Lease = before.record.Lease
		}
		x.gone = !found.Exists || x.record.Tombstone
		if died = x.gone && !before.gone; died {
			x.goneAt = now
		}
	}
	return died, x.gone != before.gone || x.record.Leaving != before.record.Leaving ||
		!slices.Equal(x.record.Policies, before.record.Policies)
}

// lostBy reports whether others deleted the lease: a leaving drainer announces that. The drainer
// may run until its fence (law 2).
func (p *peer) lostBy(found Record) bool {
	return !found.Exists && found.Revision > p.revision && p.exists && !p.gone &&
		!p.record.Leaving && !p.strange
}

func (p *peers) duration(of *peer) time.Duration {
	if of.record.Lease > 0 {
		return time.Duration(of.record.Lease) * time.Millisecond
	}
	return p.lease
}

// live reports whether a drainer was seen lately.
func (p *peers) live(id string, now pace.Instant) bool {
	x := p.all[id]
	return x != nil && !x.gone && x.vanished == 0 && now.Since(x.seen) < p.duration(x)/2
}

// run reports whether a live drainer that stays may own a policy's valve.
func (p *peers) run(policy string, now pace.Instant) bool {
	for id, x := range p.all {
		if p.live(id, now) && !x.record.Leaving && x.record.Runs(policy) {
			return true
		}
	}
	return false
}

// expire writes tombstones over expired leases, and removes them after ten leases.
//
// A tombstone is written over the last revision seen. It fails if the drainer has renewed, and
// otherwise makes its renewals fail, so all observers agree that it is dead. Tombstones of drainers
// that records of partitions name must stay, or a drainer that starts later would wait for a lease.
func (p *peers) expire(named func(id string) bool, out *actions, now pace.Instant) {
	for _, id := range slices.Sorted(maps.Keys(p.all)) {
		x := p.all[id]
		switch expires := p.duration(x); {
		case !x.gone && !x.strange && !x.inFlight && now.Since(x.seen) >= expires:
			x.inFlight = true
			r := record.Lease{V: record.Version, Tombstone: true, Host: x.record.Host,
				PID: x.record.PID}
			out.puts = append(out.puts, Put{
				Table: TableDrainers, Key: id, value: record.Encode(r), Revision: x.base(),
				sent: now, Why: whyTombstone, Aside: x.damaged,
			})
		case x.gone && now.Since(x.goneAt) > 10*expires && !named(id):
			if x.record.Tombstone {
				out.deletes = append(out.deletes,
					Put{Table: TableDrainers, Key: id, Revision: x.revision})
			}
			delete(p.all, id)
		}
	}
}
