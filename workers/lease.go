package workers

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// lease is this process's proof that it is alive, and its fence: jobs may start only before it.
type lease struct {
	id       string
	revision uint64
	held     bool
	fence    instant // last renewal that is known to have been applied was sent + duration − margin
	inFlight bool    // a renewal or a read is under way
	renewAt  instant
	sends    []send // renewals whose result may still be unknown
}

type send struct {
	nonce uint64
	at    instant
}

// peer is another drainer, as far as its lease tells.
type peer struct {
	revision uint64
	seen     instant // when a new revision was last seen, on our clock
	record   leaseRecord
	gone     bool // its lease is a tombstone or was deleted
	strange  bool // its lease is of another format version: it is not ours to judge
	vanished bool // its lease is gone, though it did not give it up
	goneAt   instant
	inFlight bool // a tombstone for it is being written
}

// renew sends the next renewal.
func (c *core) renew(now instant) {
	l := &c.lease
	l.inFlight = true
	nonce := c.nonce()
	l.sends = append(l.sends, send{nonce, now})
	if len(l.sends) > 16 {
		l.sends = slices.Delete(l.sends, 0, 1)
	}
	record := leaseRecord{
		V: version, Nonce: nonce, Lease: c.options.lease.Milliseconds(), Host: c.options.host, PID: c.options.pid,
		Policies: c.runnable(), Leaving: c.leaving, Version: c.options.version, Started: c.options.started,
	}
	if c.options.crews != nil {
		record.Workers = c.options.crews()
	}
	c.out.puts = append(c.out.puts, put{
		table: tableDrainers, key: l.id, value: encode(record), revision: l.revision, nonce: nonce, sent: now, why: whyRenew,
	})
}

// renewed takes the answer to a renewal.
func (c *core) renewed(p put, result putResult, revision uint64, now instant) {
	if p.key != c.lease.id {
		return // of an identity given up
	}
	if result != putOK {
		c.out.reads = append(c.out.reads, read{p})
		return
	}
	c.hold(revision, p.sent)
	c.lease.inFlight = false
	if p.sent < c.server.since {
		c.lease.renewAt = now
	}
}

func (c *core) hold(revision uint64, sent instant) {
	l := &c.lease
	if !l.held {
		c.changed = true
	}
	l.held = true
	l.revision = max(l.revision, revision)
	l.fence = max(l.fence, sent.add(c.options.lease-c.margin()))
	l.renewAt = max(l.renewAt, sent.add(c.options.lease/3))
}

// jumped is told that the wall clock jumped against this process's own: this machine's clocks may have stood still, and others
// may have taken it for dead meanwhile. Nothing starts until a renewal that is sent from now on is seen, which proves that it
// lives and tells what time it is.
func (c *core) jumped(now instant) {
	c.server.known, c.server.since, c.lease.renewAt = false, now, now
}

// margin is the part of a lease that is not used: for clocks that run at different speeds, and for the moment between
// the last check and the start.
func (c *core) margin() time.Duration { return max(c.options.lease/20, 50*time.Millisecond) }

// leaseRead takes what a read of our own lease found after a renewal of unknown result: if the value is ours by its
// nonce, the lease holds from when that was sent.
func (c *core) leaseRead(p put, found record, now instant) {
	if p.key != c.lease.id {
		return
	}
	l := &c.lease
	l.inFlight = false
	// A server that refuses each at once is not asked without a pause.
	again := max(now, p.sent.add(c.margin()))
	l.renewAt = again
	if !found.exists {
		if l.held && !(found.vanished() && c.open(now)) { // while the lease lasts nobody can have taken it for expired
			c.loseLease(now)
		}
		l.revision = 0
		return
	}
	var r leaseRecord
	if err := decode(found.value, &r); err != nil || r.Tombstone {
		c.loseLease(now)
		return
	}
	l.revision = found.revision
	for _, s := range l.sends {
		if s.nonce == r.Nonce {
			c.hold(found.revision, s.at)
			l.renewAt = again
		}
	}
}

// loseLease is called when others have declared this process dead: everything it owned is theirs. It begins again
// under a new name, which no old record mentions.
func (c *core) loseLease(now instant) {
	c.out.lost++
	for _, s := range c.sortedShares() {
		if s.part != nil {
			c.dropShare(s)
		}
		s.state = shareIdle
	}
	c.peers[c.lease.id] = &peer{gone: true, goneAt: now, seen: now}
	c.identify()
	c.renew(now)
}

// identify begins a new identity.
func (c *core) identify() {
	c.identities++
	c.lease = lease{id: fmt.Sprintf("%s-%d", c.options.name, c.identities)}
	for _, v := range c.valves {
		v.self = c.lease.id
	}
	c.changed = true
}

// leaseSeen takes a lease that the watch delivered.
func (c *core) leaseSeen(id string, found record, now instant) {
	if id == c.lease.id {
		var r leaseRecord
		switch {
		case !found.exists || decode(found.value, &r) != nil:
		case !r.Tombstone:
			c.stamped(r.Nonce, found.stored, now)
		case found.revision > c.lease.revision:
			c.loseLease(now)
		}
		return
	}
	p := c.peer(id, now)
	if found.vanished() && !p.gone { // it writes it again, unless it is dead
		p.vanished, p.seen, p.inFlight = true, now, false
		return
	}
	if found.revision == p.revision && found.exists {
		p.vanished = false // what was told of a table made anew came late
		return
	}
	if found.revision < p.revision {
		return
	}
	before := *p
	p.revision, p.seen, p.inFlight, p.vanished = found.revision, now, false, false
	p.record, p.strange = leaseRecord{}, false
	if found.exists && decode(found.value, &p.record) != nil {
		p.record, p.strange = leaseRecord{}, true
		if !before.strange {
			c.out.strange++
		}
	}
	p.gone = !found.exists || p.record.Tombstone
	if p.gone && !before.gone {
		p.goneAt = now
		for _, v := range c.valves {
			v.holderGone(id, now)
		}
	}
	if p.gone != before.gone || p.record.Leaving != before.record.Leaving ||
		!slices.Equal(p.record.Policies, before.record.Policies) {
		c.changed = true
	}
}

// peer returns what is known of a drainer; one that is met for the first time counts as alive from now.
func (c *core) peer(id string, now instant) *peer {
	p := c.peers[id]
	if p == nil {
		p = &peer{seen: now}
		c.peers[id] = p
	}
	return p
}

// duration is how long the peer's lease lasts.
func (p *peer) duration(ours time.Duration) time.Duration {
	if p.record.Lease > 0 {
		return time.Duration(p.record.Lease) * time.Millisecond
	}
	return ours
}

// alive reports whether a peer was heard of so recently that it can be expected to act.
func (p *peer) alive(now instant, ours time.Duration) bool {
	return !p.gone && now.since(p.seen) < p.duration(ours)/2
}

// buryPeers writes tombstones over the leases that have expired, and removes old tombstones that no record names.
func (c *core) buryPeers(now instant) {
	for _, id := range slices.Sorted(maps.Keys(c.peers)) {
		p := c.peers[id]
		switch {
		case !p.gone && !p.strange && !p.inFlight && now.since(p.seen) >= p.duration(c.options.lease):
			p.inFlight = true
			r := leaseRecord{V: version, Nonce: c.nonce(), Tombstone: true, Host: p.record.Host, PID: p.record.PID}
			revision := p.revision
			if p.vanished {
				revision = 0
			}
			c.out.puts = append(c.out.puts, put{
				table: tableDrainers, key: id, value: encode(r), revision: revision, nonce: r.Nonce, sent: now, why: whyTombstone,
			})
		case p.gone && now.since(p.goneAt) > 10*p.duration(c.options.lease) && !c.named(id):
			if p.record.Tombstone {
				c.out.deletes = append(c.out.deletes, put{table: tableDrainers, key: id, revision: p.revision})
			}
			delete(c.peers, id)
		}
	}
}

// entombed takes the answer to a tombstone.
func (c *core) entombed(p put, result putResult, revision uint64, now instant) {
	if result == putOK {
		c.leaseSeen(p.key, record{exists: true, value: p.value, revision: revision}, now)
		return
	}
	c.out.reads = append(c.out.reads, read{p})
}

// entombedRead takes what became of a tombstone of unknown result. A peer that has renewed meanwhile lives.
func (c *core) entombedRead(p put, found record, now instant) {
	peer := c.peer(p.key, now)
	peer.inFlight = false
	c.leaseSeen(p.key, found, now)
}

// serverClock is what is known of JetStream's clock: by how much it is ahead of instants, in Unix ns, at least and at most.
type serverClock struct {
	least, most int64
	known       bool
	vague       int       // stamps in a row that would not tell it well enough
	since       instant   // the clocks jumped: renewals that were sent before tell nothing
	dated       time.Time // what it showed at instant 0 when the dates of all jobs were put into instants last
}

const (
	// datesOff is by how much JetStream's clock must differ from that for it to be done again.
	datesOff = 100 * time.Millisecond
	// mostVague is how many renewals in a row may be slow until it is taken that they all are.
	mostVague = 3
)

// stamped takes the time at which JetStream stored a renewal: after it was sent, and before it was seen. All that is known
// together tells most; what contradicts it is news: of another leader's clock, of a clock that was set, or of drift. News
// that leaves more open than dates may be off by is not acted on: as after a jump, a renewal is sent at once to tell better.
func (c *core) stamped(nonce uint64, stored time.Time, now instant) {
	i := slices.IndexFunc(c.lease.sends, func(s send) bool { return s.nonce == nonce })
	s := &c.server
	if i < 0 || stored.IsZero() || c.lease.sends[i].at < s.since {
		return
	}
	least, most := stored.UnixNano()-int64(now), stored.UnixNano()-int64(c.lease.sends[i].at)
	if !s.known || most < s.least || least > s.most {
		if s.vague++; most-least > 2*int64(datesOff) && s.vague < mostVague {
			c.jumped(now)
			return
		}
		s.least, s.most, s.known, s.vague = least, most, true, 0
	} else {
		s.least, s.most = max(s.least, least), min(s.most, most)
	}
	if off := c.wall(0).Sub(s.dated); off.Abs() >= datesOff {
		s.dated = c.wall(0)
		for _, v := range c.sorted {
			v.redate(now, c.wall(now))
		}
	}
}

// wall is the time by JetStream's clock, which deadlines and the like go by: a host may be in the wrong year.
func (c *core) wall(now instant) time.Time {
	return time.Unix(0, c.server.least+(c.server.most-c.server.least)/2+int64(now)).UTC()
}
