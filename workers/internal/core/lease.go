package core

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// lease proves that this process is alive, and bounds its starts by a fence. Law 2 rests on clocks
// that are never compared: the owner counts from when a renewal was sent, others from when they saw
// it. The owner counts a margin less, and stops before others may declare it dead.
type lease struct {
	Id       string
	revision uint64
	Held     bool
	// sending of the last applied renewal, + duration − margin
	Fence    pace.Instant
	inFlight bool
	damaged  []byte // unreadable bytes that the next renewal replaces
	renewAt  pace.Instant
	told     []string
	// the last sixteen renewals, most of a lease
	sends []send
}

type send struct {
	nonce uint64
	at    pace.Instant
}

// peer is another drainer. Only an advancing revision proves that it is alive; dates come from
// other clocks.
type peer struct {
	revision uint64
	seen     pace.Instant
	record   record.Lease
	gone     bool // deleted or a tombstone
	strange  bool // of a newer format, and not judged
	// unreadable: it expires
	damaged  []byte
	vanished bool
	goneAt   pace.Instant
	inFlight bool
}

// renew sends a renewal over this process's last revision, which fails over a tombstone: a dead
// process must not return under its name.
func (c *Core) renew(now pace.Instant) {
	l := &c.Lease
	l.inFlight = true
	nonce := c.nonce()
	l.sends = append(l.sends, send{nonce, now})
	if len(l.sends) > 16 {
		l.sends = slices.Delete(l.sends, 0, 1)
	}
	l.told = c.runnable()
	r := record.Lease{
		V: record.Version, Nonce: nonce, Lease: c.options.Lease.Milliseconds(),
		Host: c.options.Host, PID: c.options.Pid,
		Policies: l.told, Leaving: c.Leaving, Version: c.options.Version,
		Started: c.options.Started,
	}
	if c.options.Crews != nil {
		r.Workers = c.options.Crews()
	}
	c.out.puts = append(c.out.puts, Put{
		Table: TableDrainers, Key: l.Id, value: record.Encode(r), Revision: l.revision,
		nonce: nonce, sent: now, Why: WhyRenew, Aside: l.damaged,
	})
}

func (c *Core) renewed(p Put, revision uint64, now pace.Instant) {
	if p.Key != c.Lease.Id {
		return
	}
	c.extend(revision, p.sent)
	c.Lease.inFlight = false
	if p.sent < c.server.since {
		c.Lease.renewAt = now
	}
}

// extend extends the lease from a renewal's sending. A fence never goes back, because answers,
// reads and the watch come in any order. After a third of the lease there is room for two lost
// renewals.
func (c *Core) extend(revision uint64, sent pace.Instant) {
	l := &c.Lease
	if !l.Held {
		c.anew()
	}
	l.Held, l.damaged = true, nil
	l.revision = max(l.revision, revision)
	l.Fence = max(l.Fence, sent.Add(c.options.Lease-c.options.margin()))
	l.renewAt = max(l.renewAt, sent.Add(c.options.Lease/3))
}

// After a suspension or a live migration, the lease may have ended by other clocks. No job starts
// until a renewal sent after this is seen (laws 2 and 3).
func (Jumped) apply(c *Core, now pace.Instant) {
	c.server.known, c.server.since, c.Lease.renewAt = false, now, now
}

// margin is half a millisecond for clocks that differ by 100 ppm, and the rest for the time between
// a final check and its start. The floor is for short leases.
func (o *Options) margin() time.Duration { return max(o.Lease/20, 50*time.Millisecond) }

// leaseRead handles the read after a renewal with an unknown result. If its nonce is ours, the
// lease counts from that renewal.
func (c *Core) leaseRead(p Put, found Record, now pace.Instant) {
	if p.Key != c.Lease.Id {
		return
	}
	l := &c.Lease
	l.inFlight = false
	// a server that refuses must not be asked at once
	again := max(now, p.sent.Add(c.options.margin()))
	l.renewAt = again
	if !found.Exists {
		if l.Held && (!c.Open(now) || c.Leaving && !found.vanished()) {
			c.loseLease(now)
		}
		l.revision = 0
		return
	}
	var r record.Lease
	err := record.Decode(found.Value, &r)
	damaged := err != nil && !errors.Is(err, record.ErrVersion)
	if r.Tombstone || err != nil && !damaged || damaged && l.Held && !c.Open(now) {
		c.loseLease(now)
		return
	}
	if l.revision, l.damaged = found.Revision, nil; damaged {
		l.damaged = found.Value
		return
	}
	for _, s := range l.sends {
		if s.nonce == r.Nonce {
			c.extend(found.Revision, s.at)
			l.renewAt = again
		}
	}
}

// loseLease handles being declared dead. This process continues under a new name, because it could
// not distinguish its records from its former ones.
func (c *Core) loseLease(now pace.Instant) {
	c.out.lost++
	for _, s := range c.order {
		if s.part != nil {
			c.dropShare(s)
		}
		s.state = shareIdle
	}
	c.peers[c.Lease.Id] = &peer{gone: true, goneAt: now, seen: now}
	c.identify()
	c.renew(now)
}

func (c *Core) identify() {
	c.identities++
	c.Lease = lease{Id: fmt.Sprintf("%s-%d", c.options.Name, c.identities)}
	for _, v := range c.valves {
		v.Self = c.Lease.Id
	}
	c.anew()
}

// leaseSeen handles a lease, delivered in any order: older revisions are ignored, and an equal one
// is no sign of life.
func (c *Core) leaseSeen(id string, found Record, now pace.Instant) {
	if id == c.Lease.Id {
		var r record.Lease
		switch {
		case !found.Exists || record.Decode(found.Value, &r) != nil:
		case !r.Tombstone:
			c.stamped(r.Nonce, found.Stored, now)
		case found.Revision > c.Lease.revision:
			c.loseLease(now)
		}
		return
	}
	p := c.peer(id, now)
	if !p.gone && (found.vanished() || p.deleted(found)) {
		p.vanished, p.seen, p.inFlight = true, now, false
		return
	}
	if found.Revision == p.revision && found.Exists {
		p.vanished = false
		return
	}
	if found.Revision < p.revision {
		return
	}
	before := *p
	p.revision, p.seen, p.inFlight, p.vanished = found.Revision, now, false, false
	p.record, p.strange, p.damaged = record.Lease{}, false, nil
	if found.Exists {
		if err := record.Decode(found.Value, &p.record); err != nil {
			p.record = record.Lease{Lease: before.record.Lease}
			if p.strange = errors.Is(err, record.ErrVersion); !p.strange {
				p.damaged = found.Value
			}
		}
	}
	p.gone = !found.Exists || p.record.Tombstone
	if p.gone && !before.gone {
		p.goneAt = now
		c.rouseAll()
		for _, v := range c.valves {
			v.HolderGone(id, now)
		}
	}
	if p.gone != before.gone || p.record.Leaving != before.record.Leaving ||
		!slices.Equal(p.record.Policies, before.record.Policies) {
		c.anew()
	}
}

// deleted reports whether others deleted the lease: a leaving drainer announces that. The drainer
// may run until its fence (law 2).
func (p *peer) deleted(found Record) bool {
	return !found.Exists && found.Revision > p.revision && p.revision > 0 &&
		!p.record.Leaving && !p.strange
}

func (c *cluster) peer(id string, now pace.Instant) *peer {
	p := c.peers[id]
	if p == nil {
		p = &peer{seen: now}
		c.peers[id] = p
	}
	return p
}

func (p *peer) duration(ours time.Duration) time.Duration {
	if p.record.Lease > 0 {
		return time.Duration(p.record.Lease) * time.Millisecond
	}
	return ours
}

func (p *peer) alive(now pace.Instant, ours time.Duration) bool {
	return !p.gone && !p.vanished && now.Since(p.seen) < p.duration(ours)/2
}

// buryPeers writes tombstones over expired leases, and removes them after ten leases.
//
// A tombstone is written over the last revision seen. It fails if the peer has renewed, and
// otherwise makes the peer's renewals fail, so all observers agree that it is dead. Tombstones of
// drainers that records name must stay, or a drainer that starts later would wait for a lease.
func (c *Core) buryPeers(now pace.Instant) {
	var due []string
	for id, p := range c.peers {
		if expires := p.duration(c.options.Lease); p.gone && now.Since(p.goneAt) > 10*expires ||
			!p.gone && !p.strange && !p.inFlight && now.Since(p.seen) >= expires {
			due = append(due, id)
		}
	}
	slices.Sort(due)
	for _, id := range due {
		p := c.peers[id]
		switch {
		case !p.gone:
			p.inFlight = true
			r := record.Lease{V: record.Version, Nonce: c.nonce(), Tombstone: true,
				Host: p.record.Host, PID: p.record.PID}
			revision := p.revision
			if p.vanished {
				revision = 0
			}
			c.out.puts = append(c.out.puts, Put{
				Table: TableDrainers, Key: id, value: record.Encode(r), Revision: revision,
				nonce: r.Nonce, sent: now, Why: whyTombstone, Aside: p.damaged,
			})
		case !c.named(id):
			if p.record.Tombstone {
				c.out.deletes = append(c.out.deletes,
					Put{Table: TableDrainers, Key: id, Revision: p.revision})
			}
			delete(c.peers, id)
		}
	}
}

// serverClock bounds by how much JetStream's clock, which stamps jobs, is ahead of instants, in ns:
// between a renewal's sending and the sight of its stamp.
type serverClock struct {
	least, most int64
	known       bool
	at          pace.Instant
	vague       int
	since       pace.Instant // last jump: renewals sent before are ignored
	// reading at instant 0 of the last conversion of dates
	dated time.Time
}

const (
	// datesOff is the change of JetStream's clock that requires converting all dates again.
	datesOff = 100 * time.Millisecond
	// mostVague consecutive slow renewals make slowness acceptable.
	mostVague = 3
	// clockDrift bounds the relative rate of two quartz clocks: 100 ppm each, seven times the PHI
	// of NTP (RFC 5905).
	clockDrift = 200e-6
)

// stamped handles the time of storage of a renewal. All bounds are intersected; a contradiction
// means another leader's clock, or a clock that was set. If new bounds are too wide, a renewal is
// sent at once.
func (c *Core) stamped(nonce uint64, stored time.Time, now pace.Instant) {
	i := slices.IndexFunc(c.Lease.sends, func(s send) bool { return s.nonce == nonce })
	s := &c.server
	if i < 0 || stored.IsZero() || c.Lease.sends[i].at < s.since {
		return
	}
	least, most := stored.UnixNano()-int64(now), stored.UnixNano()-int64(c.Lease.sends[i].at)
	drift := drifted(now.Since(s.at))
	s.least, s.most, s.at = s.least-drift, s.most+drift, now
	if !s.known || most < s.least || least > s.most {
		if s.vague++; most-least > 2*int64(datesOff) && s.vague < mostVague {
			c.Handle(Jumped{}, now)
			return
		}
		s.least, s.most, s.known, s.vague = least, most, true, 0
	} else {
		s.least, s.most = max(s.least, least), min(s.most, most)
	}
	if off := c.Wall(0).Sub(s.dated); off.Abs() >= datesOff {
		s.dated = c.Wall(0)
		c.rouseAll()
		for _, v := range c.sorted {
			v.Redate(now)
		}
	}
}

// Wall returns the time by JetStream's clock.
func (c *Core) Wall(now pace.Instant) time.Time { return c.server.wall(now) }

func (s *serverClock) wall(now pace.Instant) time.Time {
	return time.Unix(0, s.least+(s.most-s.least)/2+int64(now)).UTC()
}

// read returns its time, and its largest error.
func (s *serverClock) read(now pace.Instant) (at time.Time, off time.Duration) {
	return s.wall(now), time.Duration((s.most-s.least)/2 + drifted(now.Since(s.at)))
}

func drifted(within time.Duration) int64 { return int64(float64(within.Abs()) * clockDrift) }
