package core

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func putFor(t *testing.T, c *Core, why reason) Put {
	t.Helper()
	i := slices.IndexFunc(c.out.puts, func(p Put) bool { return p.Why == why })
	if i < 0 {
		t.Fatalf("no write for reason %d among %d", why, len(c.out.puts))
	}
	p := c.out.puts[i]
	c.out.puts = slices.Delete(c.out.puts, i, i+1)
	return p
}

func renewal(t *testing.T, c *Core) Put {
	t.Helper()
	c.advance(c.Lease.renewAt)
	return putFor(t, c, WhyRenew)
}

// The last sixteen renewals are known by their nonces, so whichever of them is stored counts.
func TestALeaseCountsFromTheRenewalThatIsStored(t *testing.T) {
	l := (&lease{name: "me", duration: simulatedLease}).next()
	var first, last Put
	for i := range 16 {
		last = l.renewal(record.Lease{}, origin.Add(time.Duration(i)*second))
		if i == 0 {
			first = last
		}
	}
	if l.answered(last, first.stored(7, origin), true, false, last.sent) || !l.Held ||
		l.Fence != origin.Add(simulatedLease-l.margin()) || l.revision != 7 {
		t.Errorf("the first one is stored: %+v", l)
	}
	l.renewal(record.Lease{}, last.sent)
	if _, known := l.sent(1); known {
		t.Error("the seventeenth last one is known")
	}
	if n := l.next(); n.Id != "me-2" || n.Held || n.duration != l.duration {
		t.Errorf("the next lease is %+v", n)
	}
}

// The fence counts from a renewal's sending, and ends a margin before the lease, because clocks
// differ in speed, and a start follows its last check.
func TestTheFenceComesAMarginBeforeTheEndOfTheLease(t *testing.T) {
	c := coreBench(t)
	p := renewal(t, c)
	before := c.Fence()
	if sent := origin.Add(simulatedLease / 3); p.sent != sent {
		t.Errorf("the lease was renewed %v after the last time, want a third of it",
			p.sent.Since(origin))
	}
	c.Handle(Written{p, 2000}, p.sent.Add(200*ms))
	if want := p.sent.Add(simulatedLease - simulatedLease/20); c.Fence() != want || before >= want {
		t.Errorf("the fence is %v after the renewal was sent, want %v", c.Fence().Since(p.sent),
			want.Since(p.sent))
	}
	c.Handle(Storing{Fails: true}, p.sent)
	if c.Fence() != 0 {
		t.Error("jobs may start whose end could not be stored")
	}
	c.Handle(Storing{}, p.sent)
	if c.Fence() == 0 {
		t.Error("no job may start although its end could be stored again")
	}
	c.Handle(Connected{}, p.sent)
	if c.Fence() != 0 {
		t.Error("jobs may start without a connection")
	}
}

func TestARenewalOfUnknownResultIsReadBack(t *testing.T) {
	for name, ours := range map[string]bool{"it was stored": true, "another's was": false} {
		t.Run(name, func(t *testing.T) {
			c := coreBench(t)
			first := renewal(t, c)
			before := c.Fence()
			c.Handle(Written{first, 0}, first.sent.Add(ms))
			if c.Fence() != before || len(c.out.reads) != 1 {
				t.Fatalf("the fence moved by %v, and %d reads", c.Fence().Since(before),
					len(c.out.reads))
			}
			nonce, want := c.Lease.nonce, first.sent.Add(simulatedLease-c.Lease.margin())
			if !ours {
				nonce, want = 0, before
			}
			c.Handle(Found{first,
				Record{Exists: true, Revision: 2000,
					Value: record.Encode(record.Lease{V: record.Version, Nonce: nonce})}},
				first.sent.Add(second))
			if c.Fence() != want {
				t.Errorf("the fence moved by %v, want %v", c.Fence().Since(before),
					want.Since(before))
			}
		})
	}
}

func TestRenewalsThatAreRefusedAtOnceAreSentAfterAPause(t *testing.T) {
	c := coreBench(t)
	first := renewal(t, c)
	c.Handle(Written{first, 0}, first.sent)
	for now, renewals := first.sent, 1; now < first.sent.Add(second); now = now.Add(ms) {
		for _, r := range c.out.reads {
			c.Handle(Found{r,
				Record{Exists: true, Revision: 1,
					Value: record.Encode(record.Lease{V: record.Version})}},
				now)
		}
		c.out.reads = nil
		c.advance(now)
		for _, p := range c.out.puts {
			if p.Why == WhyRenew {
				c.Handle(Written{p, 0}, now)
				renewals++
			}
		}
		c.out.puts = nil
		if most := 2 + int(now.Since(first.sent)/c.Lease.margin()); renewals > most {
			t.Fatalf("%d renewals within %v", renewals, now.Since(first.sent))
		}
	}
}

func TestATombstoneOverTheOwnLeaseEndsAllOwnership(t *testing.T) {
	p := leaky("api", "10/s")
	tombstone := Record{Exists: true, Revision: 1 << 40,
		Value: record.Encode(record.Lease{V: record.Version, Tombstone: true})}
	for name, tell := range map[string]func(c *Core, now pace.Instant){
		"watched": func(c *Core, now pace.Instant) {
			c.Handle(Watched{TableDrainers, c.Lease.Id, tombstone}, now)
		},
		"read": func(c *Core, now pace.Instant) {
			c.advance(c.Lease.renewAt)
			c.Handle(Written{putFor(t, c, WhyRenew), 0}, now)
			c.Handle(Found{c.out.reads[0], tombstone}, now)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := coreBench(t, p)
			part, now := takeOver(c, Opened{})
			dead := c.Lease.Id
			tell(c, now)
			if c.shares.all["api.0"].part != nil || !part.Lost() || c.Open(now) {
				t.Error("it goes on with its partition")
			}
			if c.Lease.Id == dead || c.valves.all["api"].Self != c.Lease.Id ||
				!c.peers.all[dead].gone {
				t.Errorf("it was %s and goes on as %s, its valve as %s", dead, c.Lease.Id,
					c.valves.all["api"].Self)
			}
		})
	}
}

// A late last check may find this process under another name, whose lease is not for the job.
func TestAWorkerThatIsLateStartsNothingForItsFormerSelf(t *testing.T) {
	for name, elsewhere := range map[string]bool{"here": false, "elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			c := coreBench(t, policy.Policy{
				Name: "api", Partitions: 1, Queue: &policy.Queue{Capacity: 100},
				Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 5,
					Window: policy.Duration(time.Second)},
			})
			part, now := takeOver(c, Opened{})
			if elsewhere {
				v := c.valves.all["api"]
				v.Crew.Local = false
				v.Crew.Claim(crew.Claim{Worker: "w", Until: pace.Never})
			}
			c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
				Jobs: []job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}}, now)
			c.advance(now)
			runs := c.out.Starts
			if len(runs) != 1 {
				t.Fatalf("%d jobs are given to a worker", len(runs))
			}
			c.out = actions{}
			now = c.Lease.Fence.Add(second)
			heardOf(c, c.Lease.Id, 1<<40, record.Lease{Tombstone: true}, now)
			answerPuts(c, now)
			if !c.Open(now) {
				t.Fatal("under its new name nothing may start")
			}
			gate := func() (fence, _ pace.Instant) { return c.Fence(), now }
			if _, passed := runs[0].Decide(gate, nil); passed {
				t.Error("it starts")
			}
		})
	}
}

func heardOf(c *Core, id string, revision uint64, r record.Lease, now pace.Instant) {
	r.V = record.Version
	c.Handle(Watched{TableDrainers, id, Record{Exists: true, Revision: revision,
		Value: record.Encode(r)}},
		now)
}

// A peer is dead after its whole lease without a renewal, by the own clock. Renewals may have been
// missed while disconnected.
func TestAPeerIsDeclaredDeadAfterItsWholeLease(t *testing.T) {
	const lease = 2 * simulatedLease
	for name, reconnect := range map[string]time.Duration{"silent": 0,
		"silent while we were cut off": second} {
		t.Run(name, func(t *testing.T) {
			c := coreBench(t)
			heardOf(c, "peer", 10, record.Lease{Lease: lease.Milliseconds()}, origin)
			if reconnect > 0 {
				c.Handle(Connected{}, origin)
				c.Handle(Connected{Up: true}, origin.Add(reconnect))
			}
			died := time.Duration(0)
			c.run(origin, lease+2*second, func(now pace.Instant, written []Put) {
				for _, w := range written {
					if w.Why == whyTombstone && died == 0 {
						died = now.Since(origin)
					}
				}
			})
			if died < lease+reconnect || died > lease+reconnect+tick+20*ms {
				t.Errorf("declared dead after %v, want %v", died, lease+reconnect)
			}
		})
	}
}

func TestAStrangeLeaseIsLeftAlone(t *testing.T) {
	c := coreBench(t)
	c.Handle(Watched{TableDrainers, "peer",
		Record{Exists: true, Revision: 10, Value: []byte(`{"v":2}`)}},
		origin)
	c.run(origin, 10*simulatedLease, func(_ pace.Instant, written []Put) {
		for _, w := range written {
			if w.Why == whyTombstone {
				t.Fatalf("wrote %s over the lease of %s", w.value, w.Key)
			}
		}
	})
}

func TestAJumpOfTheClocksIsFollowedByARenewalAtOnce(t *testing.T) {
	c := coreBench(t)
	now := origin.Add(ms)
	c.Handle(Jumped{}, now)
	c.advance(now)
	if p := putFor(t, c, WhyRenew); p.sent != now {
		t.Errorf("renewed at %v", p.sent.Since(origin))
	}
}
