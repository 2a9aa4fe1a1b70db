package workers

import (
	"slices"
	"testing"
	"time"
)

// putFor takes the core's write for a reason out of its actions.
func putFor(t *testing.T, c *core, why reason) put {
	t.Helper()
	i := slices.IndexFunc(c.out.puts, func(p put) bool { return p.why == why })
	if i < 0 {
		t.Fatalf("no write for reason %d among %d", why, len(c.out.puts))
	}
	p := c.out.puts[i]
	c.out.puts = slices.Delete(c.out.puts, i, i+1)
	return p
}

// renewal is the next renewal of a core's lease, sent when it is due.
func renewal(t *testing.T, c *core) put {
	t.Helper()
	c.advance(c.lease.renewAt)
	return putFor(t, c, whyRenew)
}

// The fence is counted from when a renewal was sent, not from its answer, and ends a margin before the lease: clocks run at
// different speeds, and a start takes a moment after its last check.
func TestTheFenceComesAMarginBeforeTheEndOfTheLease(t *testing.T) {
	c := coreBench(t)
	p := renewal(t, c)
	before := c.fence()
	if sent := origin.add(simulatedLease / 3); p.sent != sent {
		t.Errorf("the lease was renewed %v after the last time, want a third of it", p.sent.since(origin))
	}
	c.put(p, putOK, 2000, p.sent.add(200*ms))
	if want := p.sent.add(simulatedLease - simulatedLease/20); c.fence() != want || before >= want {
		t.Errorf("the fence is %v after the renewal was sent, want %v", c.fence().since(p.sent), want.since(p.sent))
	}
	c.connection(false, p.sent)
	if c.fence() != 0 {
		t.Error("jobs may start without a connection")
	}
}

// A renewal of unknown result moves the fence only when a read finds it by its nonce, and then from when it was sent.
func TestARenewalOfUnknownResultIsReadBack(t *testing.T) {
	for name, ours := range map[string]bool{"it was stored": true, "another's was": false} {
		t.Run(name, func(t *testing.T) {
			c := coreBench(t)
			first := renewal(t, c)
			before := c.fence()
			c.put(first, putUnknown, 0, first.sent.add(ms))
			if c.fence() != before || len(c.out.reads) != 1 {
				t.Fatalf("the fence moved by %v, and %d reads", c.fence().since(before), len(c.out.reads))
			}
			nonce, want := first.nonce, first.sent.add(simulatedLease-c.margin())
			if !ours {
				nonce, want = 0, before
			}
			c.read(first, record{exists: true, revision: 2000, value: encode(leaseRecord{V: version, Nonce: nonce})}, first.sent.add(second))
			if c.fence() != want {
				t.Errorf("the fence moved by %v, want %v", c.fence().since(before), want.since(before))
			}
		})
	}
}

// A server may refuse renewals at once and answer reads, as one whose store has no room does.
func TestRenewalsThatAreRefusedAtOnceAreSentAfterAPause(t *testing.T) {
	c := coreBench(t)
	first := renewal(t, c)
	c.put(first, putUnknown, 0, first.sent)
	for now, renewals := first.sent, 1; now < first.sent.add(second); now = now.add(ms) {
		for _, r := range c.out.reads {
			c.read(r.put, record{exists: true, revision: 1, value: encode(leaseRecord{V: version})}, now)
		}
		c.out.reads = nil
		c.advance(now)
		for _, p := range c.out.puts {
			if p.why == whyRenew {
				c.put(p, putUnknown, 0, now)
				renewals++
			}
		}
		c.out.puts = nil
		if most := 2 + int(now.since(first.sent)/c.margin()); renewals > most {
			t.Fatalf("%d renewals within %v", renewals, now.since(first.sent))
		}
	}
}

// Who finds its own tombstone is dead: what it owned is another's, and it begins again under a name that no record knows.
func TestATombstoneOverTheOwnLeaseEndsAllOwnership(t *testing.T) {
	p := leaky("api", "10/s")
	p.Partitions = 1
	tombstone := record{exists: true, revision: 1 << 40, value: encode(leaseRecord{V: version, Tombstone: true})}
	for name, tell := range map[string]func(c *core, now instant){
		"watched": func(c *core, now instant) { c.watched(tableDrainers, c.lease.id, tombstone, now) },
		"read": func(c *core, now instant) {
			c.advance(c.lease.renewAt)
			c.put(putFor(t, c, whyRenew), putConflict, 0, now)
			c.read(c.out.reads[0].put, tombstone, now)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := coreBench(t, p)
			part, now := takeOver(c, opened{})
			dead := c.lease.id
			tell(c, now)
			if c.shares["api.0"].part != nil || part.state != partitionLost || c.open(now) {
				t.Error("it goes on with its partition")
			}
			if c.lease.id == dead || c.valves["api"].self != c.lease.id || !c.peers[dead].gone {
				t.Errorf("it was %s and goes on as %s, its valve as %s", dead, c.lease.id, c.valves["api"].self)
			}
		})
	}
}

// heardOf makes a core know a drainer by a lease of a revision.
func heardOf(c *core, id string, revision uint64, r leaseRecord, now instant) {
	r.V = version
	c.watched(tableDrainers, id, record{exists: true, revision: revision, value: encode(r)}, now)
}

// Another is dead when its lease has not been renewed for all of its duration, by the own clock, and not a moment sooner.
// What was not heard while the connection was down may have been a renewal.
func TestAPeerIsDeclaredDeadAfterItsWholeLease(t *testing.T) {
	const lease = 2 * simulatedLease // its own, not ours
	for name, reconnect := range map[string]time.Duration{"silent": 0, "silent while we were cut off": second} {
		t.Run(name, func(t *testing.T) {
			c := coreBench(t)
			heardOf(c, "peer", 10, leaseRecord{Lease: lease.Milliseconds()}, origin)
			if reconnect > 0 {
				c.connection(false, origin)
				c.connection(true, origin.add(reconnect))
			}
			died := time.Duration(0)
			c.run(origin, lease+2*second, func(now instant, written []put) {
				for _, w := range written {
					if w.why == whyTombstone && died == 0 {
						died = now.since(origin)
					}
				}
			})
			if died < lease+reconnect || died > lease+reconnect+tick+20*ms {
				t.Errorf("declared dead after %v, want %v", died, lease+reconnect)
			}
		})
	}
}

// A lease of another format version is not ours to judge.
func TestAStrangeLeaseIsLeftAlone(t *testing.T) {
	c := coreBench(t)
	c.watched(tableDrainers, "peer", record{exists: true, revision: 10, value: []byte(`{"v":2}`)}, origin)
	c.run(origin, 10*simulatedLease, func(_ instant, written []put) {
		for _, w := range written {
			if w.why == whyTombstone {
				t.Fatalf("wrote %s over the lease of %s", w.value, w.key)
			}
		}
	})
}

// After a jump of the clocks only a renewal proves that the lease still holds, so it is not put off.
func TestAJumpOfTheClocksIsFollowedByARenewalAtOnce(t *testing.T) {
	c := coreBench(t)
	now := origin.add(ms)
	c.jumped(now)
	c.advance(now)
	if p := putFor(t, c, whyRenew); p.sent != now {
		t.Errorf("renewed at %v", p.sent.since(origin))
	}
}
