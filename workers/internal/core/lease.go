package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// lease proves that this process is alive, and bounds its starts by a fence. Law 2 rests on clocks
// that are never compared: the owner counts from when a renewal was sent, others from when they saw
// it. The owner counts a margin less, and stops before others may declare it dead.
type lease struct {
	Id       string
	name     string
	number   int // of the name's leases, from 1
	duration time.Duration
	nonce    uint64 // of the last renewal
	revision uint64
	Held     bool
	// sending of the last applied renewal, + duration − margin
	Fence    pace.Instant
	inFlight bool
	damaged  []byte // unreadable bytes that the next renewal replaces
	renewAt  pace.Instant
	told     []string
	sends    [16]pace.Instant // of the last renewals, by nonce: those of most of a lease
}

// next returns the lease that follows one that ended, under a new name.
func (l *lease) next() *lease {
	n := l.number + 1
	return &lease{Id: fmt.Sprintf("%s-%d", l.name, n), name: l.name, number: n,
		duration: l.duration}
}

// margin is half a millisecond for clocks that differ by 100 ppm, and the rest for the time between
// a final check and its start. The floor is for short leases.
func (l *lease) margin() time.Duration { return max(l.duration/20, 50*time.Millisecond) }

// due returns when the next renewal must be sent.
func (l *lease) due() pace.Instant {
	if l.inFlight {
		return pace.Never
	}
	return l.renewAt
}

// renewal returns a write over this process's last revision, which fails over a tombstone: a dead
// process must not return under its name.
func (l *lease) renewal(r record.Lease, now pace.Instant) Put {
	l.nonce++
	l.sends[l.nonce%uint64(len(l.sends))] = now
	l.inFlight, l.told = true, r.Policies
	r.V, r.Nonce, r.Lease = record.Version, l.nonce, l.duration.Milliseconds()
	return Put{
		Table: TableDrainers, Key: l.Id, value: record.Encode(r), Revision: l.revision,
		sent: now, Why: WhyRenew, Aside: l.damaged,
	}
}

// sent returns when a renewal was sent.
func (l *lease) sent(nonce uint64) (at pace.Instant, known bool) {
	n := uint64(len(l.sends))
	return l.sends[nonce%n], nonce != 0 && nonce <= l.nonce && l.nonce-nonce < n
}

// extend extends the lease from a renewal's sending. A fence never goes back, because answers,
// reads and the watch come in any order. After a third of the lease there is room for two lost
// renewals.
func (l *lease) extend(revision uint64, sent pace.Instant) {
	l.Held, l.damaged = true, nil
	l.revision = max(l.revision, revision)
	l.Fence = max(l.Fence, sent.Add(l.duration-l.margin()))
	l.renewAt = max(l.renewAt, sent.Add(l.duration/3))
}

// answered handles the record after a renewal: as it was written or, if the result is unknown,
// read. It reports whether this process was declared dead. If the record's nonce is ours, the lease
// counts from that renewal.
func (l *lease) answered(p Put, found Record, open, leaving bool, now pace.Instant) (lost bool) {
	l.inFlight = false
	// a server that refuses must not be asked at once
	l.renewAt = max(now, p.sent.Add(l.margin()))
	if !found.Exists {
		l.revision = 0
		return l.Held && (!open || leaving && !found.vanished())
	}
	var r record.Lease
	err := record.Decode(found.Value, &r)
	damaged := err != nil && !errors.Is(err, record.ErrVersion)
	if r.Tombstone || err != nil && !damaged || damaged && l.Held && !open {
		return true
	}
	if l.revision, l.damaged = found.Revision, nil; damaged {
		l.damaged = found.Value
		return false
	}
	if at, ours := l.sent(r.Nonce); ours {
		l.extend(found.Revision, at)
	}
	return false
}

func (c *Core) renew(now pace.Instant) {
	o := c.options
	r := record.Lease{Host: o.Host, PID: o.Pid, Leaving: c.Leaving,
		Policies: c.valves.runnable(len(c.policies)), Version: o.Version, Started: o.Started}
	if o.Crews != nil {
		r.Workers = o.Crews()
	}
	c.out.puts = append(c.out.puts, c.Lease.renewal(r, now))
}

func (c *Core) leaseAnswered(p Put, found Record, now pace.Instant) {
	if p.Key != c.Lease.Id {
		return
	}
	held := c.Lease.Held
	if c.Lease.answered(p, found, c.Open(now), c.Leaving, now) {
		c.loseLease(now)
		return
	}
	if c.Lease.Held != held {
		c.shares.anew()
	}
	if p.sent < c.server.since {
		c.Lease.renewAt = now
	}
}

// loseLease handles being declared dead. This process continues under a new name, because it could
// not distinguish its records from its former ones.
func (c *Core) loseLease(now pace.Instant) {
	c.out.lost++
	for _, s := range c.shares.order {
		if s.part != nil {
			c.dropShare(s)
		}
		s.state = shareIdle
	}
	c.peers.all[c.Lease.Id] = &peer{gone: true, goneAt: now}
	c.Lease = c.Lease.next()
	for _, v := range c.valves.sorted {
		v.Self = c.Lease.Id
	}
	c.shares.anew()
	c.renew(now)
}

// leaseSeen handles a lease. An equal revision is no sign of life.
func (c *Core) leaseSeen(id string, found Record, now pace.Instant) {
	if id == c.Lease.Id {
		var r record.Lease
		switch {
		case !found.Exists || record.Decode(found.Value, &r) != nil:
		case !r.Tombstone:
			if sent, ours := c.Lease.sent(r.Nonce); ours {
				c.stamped(sent, found.Stored, now)
			}
		case found.Revision > c.Lease.revision:
			c.loseLease(now)
		}
		return
	}
	died, anew := c.peers.see(id, found, now)
	if died {
		c.valves.rouseAll()
		for _, v := range c.valves.sorted {
			v.HolderGone(id, now)
		}
	}
	if anew {
		c.shares.anew()
	}
}

// stamped handles the time of storage of a renewal.
func (c *Core) stamped(sent pace.Instant, stored time.Time, now pace.Instant) {
	if c.server.see(sent, stored, now) {
		c.Lease.renewAt = now
	}
	if c.server.redated() {
		c.valves.rouseAll()
		for _, v := range c.valves.sorted {
			v.Redate(now)
		}
	}
}

// After a suspension or a live migration, the lease may have ended by other clocks. No job starts
// until a renewal sent after this is seen (laws 2 and 3).
func (Jumped) apply(c *Core, now pace.Instant) {
	c.server.jumped(now)
	c.Lease.renewAt = now
}

// Wall returns the time by JetStream's clock.
func (c *Core) Wall(now pace.Instant) time.Time { return c.server.wall(now) }
