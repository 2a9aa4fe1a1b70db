package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// lease is this process's proof that it is alive, and its fence: jobs may start only before it.
//
// Law 2 rests here on two clocks that are never compared. The owner counts from when a renewal was
// sent, which is before it was stored; everybody else counts from when they saw it, which is after.
// Both count the same duration, and the owner a margin less. So an owner has stopped before anybody
// may declare it dead, whatever their clocks show.
type lease struct {
	Id       string
	revision uint64
	Held     bool
	// last renewal that is known to have been applied was sent + duration − margin
	Fence    pace.Instant
	inFlight bool   // a renewal or a read is under way
	damaged  []byte // the record's bytes if they cannot be read: the next renewal replaces them
	renewAt  pace.Instant
	// Renewals whose result may still be unknown, the latest sixteen: a read may find any of them.
	// They are sent no closer than a margin apart, so these reach back over most of a lease, and an
	// older one would hardly move the fence.
	sends []send // renewals whose result may still be unknown
}

type send struct {
	nonce uint64
	at    pace.Instant
}

// peer is another drainer, as far as its lease tells.
//
// Only revisions count as signs of life. A record that is delivered once more, or whose date is
// recent, says nothing: dates are of other clocks.
type peer struct {
	revision uint64
	seen     pace.Instant // when a new revision was last seen, on our clock
	record   record.Lease
	gone     bool // its lease is a tombstone or was deleted
	strange  bool // its lease is of a newer format: it is not ours to judge
	// its lease's bytes if they cannot be read: it expires, for its drainer renews it no more
	damaged  []byte
	vanished bool // its lease is gone, though it did not give it up
	goneAt   pace.Instant
	inFlight bool // a tombstone for it is being written
}

// renew sends the next renewal.
//
// It is written over the revision that this process wrote last, so that it fails when somebody has
// put a tombstone there: the dead must not come back under their own name, since others have taken
// what they owned. One is under way at a time, because a second one would conflict with the first.
func (c *Core) renew(now pace.Instant) {
	l := &c.Lease
	l.inFlight = true
	nonce := c.nonce()
	l.sends = append(l.sends, send{nonce, now})
	if len(l.sends) > 16 {
		l.sends = slices.Delete(l.sends, 0, 1)
	}
	r := record.Lease{
		V: record.Version, Nonce: nonce, Lease: c.options.Lease.Milliseconds(),
		Host: c.options.Host, PID: c.options.Pid,
		Policies: c.runnable(), Leaving: c.Leaving, Version: c.options.Version,
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

// renewed takes the answer to a renewal.
func (c *Core) renewed(p Put, result putResult, revision uint64, now pace.Instant) {
	if p.Key != c.Lease.Id {
		return // of an identity given up
	}
	if result != PutOK {
		c.out.reads = append(c.out.reads, read{p})
		return
	}
	c.extend(revision, p.sent)
	c.Lease.inFlight = false
	// The clocks jumped while it was under way: it says nothing of the time since, and its stamp
	// will not be believed.
	if p.sent < c.server.since {
		c.Lease.renewAt = now
	}
}

// extend extends the lease by a renewal that is known to be stored: from when it was sent, for the
// answer may have taken as long as its call was allowed to. A fence never goes back, because
// answers, reads and the watch come in any order. A third of the lease leaves room for two renewals
// to be lost before starts stop.
func (c *Core) extend(revision uint64, sent pace.Instant) {
	l := &c.Lease
	if !l.Held {
		c.changed = true
	}
	l.Held, l.damaged = true, nil
	l.revision = max(l.revision, revision)
	l.Fence = max(l.Fence, sent.Add(c.options.Lease-c.margin()))
	l.renewAt = max(l.renewAt, sent.Add(c.options.Lease/3))
}

// When the wall clock jumps against this process's own, this machine's clocks may have stood still,
// and others may have taken it for dead meanwhile. Nothing starts until a renewal that is sent from
// now on is seen, which proves that it lives and tells what time it is.
//
// A suspended laptop, a paused virtual machine and a live migration all look like this: the process
// goes on where it was, with a lease that ended long ago by everybody else's clock (laws 2 and 3).
func (Jumped) apply(c *Core, now pace.Instant) {
	c.server.known, c.server.since, c.Lease.renewAt = false, now, now
}

// margin is the part of a lease that is not used: for clocks that run at different speeds, and for
// the moment between the last check and the start.
//
// Clocks run some 100 ppm apart, which is half a millisecond in a lease of 5 s; nearly all of its
// 250 ms are for the start. The floor is for short leases, as tests have them.
func (c *Core) margin() time.Duration { return max(c.options.Lease/20, 50*time.Millisecond) }

// leaseRead takes what a read of our own lease found after a renewal of unknown result: if the
// value is ours by its nonce, the lease holds from when that was sent.
//
// An update that timed out is neither applied nor refused; and a refusal may be due to our own
// renewal before, whose answer was lost. Only the record tells. To take the first for applied would
// move the fence past the instant at which others count this process as dead.
func (c *Core) leaseRead(p Put, found Record, now pace.Instant) {
	if p.Key != c.Lease.Id {
		return
	}
	l := &c.Lease
	l.inFlight = false
	// A server that refuses each at once is not asked without a pause.
	again := max(now, p.sent.Add(c.margin()))
	l.renewAt = again
	if !found.Exists {
		if l.Held && (!c.Open(now) || c.Leaving && !found.vanished()) {
			c.loseLease(now) // else nobody can have taken it for expired or given up
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
	// Whichever of them it is: an earlier one counts from its own sending.
	for _, s := range l.sends {
		if s.nonce == r.Nonce {
			c.extend(found.Revision, s.at)
			l.renewAt = again
		}
	}
}

// loseLease is called when others have declared this process dead: everything it owned is theirs.
// It begins again under a new name, which no old record mentions.
//
// Under the old name it could not tell its own records from those of its former self, whose
// partitions others may have taken, worked on and released since. Its former self is a peer that is
// gone, so that what nobody has taken yet is free for this one as well.
func (c *Core) loseLease(now pace.Instant) {
	c.out.lost++
	for _, s := range c.sortedShares() {
		if s.part != nil {
			c.dropShare(s)
		}
		s.state = shareIdle
	}
	c.peers[c.Lease.Id] = &peer{gone: true, goneAt: now, seen: now}
	c.identify()
	c.renew(now)
}

// identify begins a new identity.
func (c *Core) identify() {
	c.identities++
	c.Lease = lease{Id: fmt.Sprintf("%s-%d", c.options.Name, c.identities)}
	for _, v := range c.valves {
		v.Self = c.Lease.Id
	}
	c.changed = true
}

// leaseSeen takes a lease that the watch delivered.
//
// Watches and reads tell of the same record in any order, so older revisions are no news, and the
// same revision is no sign of life.
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
	if !p.gone && (found.vanished() || p.deleted(found)) { // it writes it again, unless it is dead
		p.vanished, p.seen, p.inFlight = true, now, false
		return
	}
	if found.Revision == p.revision && found.Exists {
		p.vanished = false // what was told of a table made anew came late
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
		c.changed = true
	}
}

// deleted reports whether somebody else deleted the lease: a drainer says first that it leaves. It
// may live and go on until its fence, and be frozen for the moment, so to take its partitions at
// once would let two owners start jobs (law 2).
func (p *peer) deleted(found Record) bool {
	return !found.Exists && found.Revision > p.revision && p.revision > 0 &&
		!p.record.Leaving && !p.strange
}

// peer returns what is known of a drainer; one that is met for the first time counts as alive from
// now.
//
// A process that begins knows of the others' leases but not how old they are: each gets a whole
// lease from now on.
func (c *Core) peer(id string, now pace.Instant) *peer {
	p := c.peers[id]
	if p == nil {
		p = &peer{seen: now}
		c.peers[id] = p
	}
	return p
}

// duration is how long the peer's lease lasts.
//
// It is the peer's own word, for drainers may be configured differently while an installation is
// rolled over.
func (p *peer) duration(ours time.Duration) time.Duration {
	if p.record.Lease > 0 {
		return time.Duration(p.record.Lease) * time.Millisecond
	}
	return ours
}

// alive reports whether a peer was heard of so recently that it can be expected to act.
//
// That is half a lease, in which it renews once at least: partitions are handed to it only then.
// One that is late but not dead would leave them without an owner.
func (p *peer) alive(now pace.Instant, ours time.Duration) bool {
	return !p.gone && !p.vanished && now.Since(p.seen) < p.duration(ours)/2
}

// buryPeers writes tombstones over the leases that have expired, and removes old tombstones that no
// record names.
//
// An expired lease alone gives nobody the right to a partition. The tombstone is written by
// compare-and-set over the last revision that was seen, so it fails if the peer has renewed
// meanwhile, and once it stands the peer's own renewals fail. So there is one death, at one
// revision, and not as many opinions as observers.
//
// A tombstone that a record names must stay: a drainer that begins later and finds neither lease
// nor tombstone would wait for a lease of its own before it believed that the owner is dead. The
// others go after ten leases, or the table would grow with every restart; a process that was frozen
// for longer finds no lease at all, and gives up all the same.
func (c *Core) buryPeers(now pace.Instant) {
	for _, id := range slices.Sorted(maps.Keys(c.peers)) {
		p := c.peers[id]
		switch {
		case !p.gone && !p.strange && !p.inFlight &&
			now.Since(p.seen) >= p.duration(c.options.Lease):
			p.inFlight = true
			r := record.Lease{V: record.Version, Nonce: c.nonce(), Tombstone: true,
				Host: p.record.Host, PID: p.record.PID}
			revision := p.revision
			// there is no record any more to write over
			if p.vanished {
				revision = 0
			}
			c.out.puts = append(c.out.puts, Put{
				Table: TableDrainers, Key: id, value: record.Encode(r), Revision: revision,
				nonce: r.Nonce, sent: now, Why: whyTombstone, Aside: p.damaged,
			})
		case p.gone && now.Since(p.goneAt) > 10*p.duration(c.options.Lease) && !c.named(id):
			if p.record.Tombstone {
				c.out.deletes = append(c.out.deletes,
					Put{Table: TableDrainers, Key: id, Revision: p.revision})
			}
			delete(c.peers, id)
		}
	}
}

// entombed takes the answer to a tombstone.
func (c *Core) entombed(p Put, result putResult, revision uint64, now pace.Instant) {
	if result == PutOK {
		c.leaseSeen(p.Key, Record{Exists: true, Value: p.value, Revision: revision}, now)
		return
	}
	c.out.reads = append(c.out.reads, read{p})
}

// entombedRead takes what became of a tombstone of unknown result. A peer that has renewed
// meanwhile lives.
//
// If it stands, leaseSeen takes the peer for gone. If not, the wait begins again from the revision
// that was found.
func (c *Core) entombedRead(p Put, found Record, now pace.Instant) {
	peer := c.peer(p.Key, now)
	peer.inFlight = false
	c.leaseSeen(p.Key, found, now)
}

// serverClock is what is known of JetStream's clock: by how much it is ahead of instants, in Unix
// ns, at least and at most.
//
// Dates of jobs, deadlines and Not-Before, are other people's wall clocks; JetStream's is the one
// that all drainers of an installation share and that also stamped the jobs. It is known only to
// lie between two instants, when a renewal was sent and when its stamp was seen.
type serverClock struct {
	least, most int64
	known       bool
	at          pace.Instant // when a stamp was seen last
	vague       int          // stamps in a row that would not tell it well enough
	since       pace.Instant // the clocks jumped: renewals that were sent before tell nothing
	// what it showed at instant 0 when the dates of all jobs were put into instants last
	dated time.Time
}

const (
	// datesOff is by how much JetStream's clock must differ from that for it to be done again,
	// which looks at every job that has a date: people write deadlines in seconds.
	datesOff = 100 * time.Millisecond
	// mostVague is how many renewals in a row may be slow until it is taken that they all are: a
	// drainer behind a slow link must not stand still for ever.
	mostVague = 3
	// clockDrift is by how much two clocks of quartz differ in rate at most: 100 parts per million
	// each, seven times what NTP reckons with (PHI of RFC 5905). So what is known grows old
	// between two stamps.
	clockDrift = 200e-6
)

// stamped takes the time at which JetStream stored a renewal: after it was sent, and before it was
// seen. All that is known together tells most; what contradicts it is news: of another leader's
// clock, or of a clock that was set. News that leaves more open than dates may be off by is not
// acted on: as after a jump, a renewal is sent at once to tell better.
func (c *Core) stamped(nonce uint64, stored time.Time, now pace.Instant) {
	i := slices.IndexFunc(c.Lease.sends, func(s send) bool { return s.nonce == nonce })
	s := &c.server
	if i < 0 || stored.IsZero() || c.Lease.sends[i].at < s.since {
		return
	}
	least, most := stored.UnixNano()-int64(now), stored.UnixNano()-int64(c.Lease.sends[i].at)
	drift := int64(float64(now.Since(s.at)) * clockDrift)
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
			v.Redate(now, c.Wall(now))
		}
	}
}

// Wall is the time by JetStream's clock, which deadlines and the like go by: a host may be in the
// wrong year.
func (c *Core) Wall(now pace.Instant) time.Time {
	return time.Unix(0, c.server.least+(c.server.most-c.server.least)/2+int64(now)).UTC()
}
