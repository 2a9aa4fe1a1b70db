package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A KV bucket may be deleted and recreated under running drainers. Its records are gone without
// deletion markers, and revisions continue.

type anew struct {
	t       *testing.T
	c       *Core
	now     pace.Instant
	records map[string]Record
	renews  bool
	asides  func(Put)
}

func newAnew(t *testing.T) *anew {
	p := leaky("api", "10/s")
	return &anew{t: t, c: coreBench(t, p), now: origin, records: map[string]Record{}}
}

// lose recreates a table; the watch reports it only if told is set.
func (a *anew) lose(t Table, told bool) {
	for key, r := range a.records {
		if ownersKey := key == "api.0" ||
			key == "api.0"+record.CheckpointSuffix; (t == TablePartitions) == ownersKey {
			delete(a.records, key)
			if told && key != "api.0"+record.CheckpointSuffix {
				a.c.Handle(Watched{t, key, Record{Revision: r.Revision}}, a.now)
			}
		}
	}
	benchRevision += 1000
}

func (a *anew) set(t Table, key string, value any) {
	benchRevision++
	a.records[key] = Record{Exists: true, Value: record.Encode(value), Revision: benchRevision,
		Stored: originWall.Add(a.now.Since(origin))}
	a.c.Handle(Watched{t, key, a.records[key]}, a.now)
}

func (a *anew) damage(t Table, key string) {
	benchRevision++
	a.records[key] = Record{Exists: true, Value: []byte("garbage"), Revision: benchRevision,
		Stored: originWall.Add(a.now.Since(origin))}
	a.c.Handle(Watched{t, key, a.records[key]}, a.now)
}

func (a *anew) run(length time.Duration, each func()) {
	for end := a.now.Add(length); a.now < end; a.now = a.now.Add(20 * ms) {
		if a.renews && a.now.Since(origin)%(500*ms) == 0 {
			a.set(TableDrainers, "another",
				record.Lease{V: record.Version, Nonce: uint64(a.now),
					Lease:    simulatedLease.Milliseconds(),
					Policies: []string{"api"}})
		}
		a.c.advance(a.now)
		for len(a.c.out.puts)+len(a.c.out.reads) > 0 {
			puts, reads := a.c.out.puts, a.c.out.reads
			a.c.out.puts, a.c.out.reads = nil, nil
			for _, w := range puts {
				if a.records[w.Key].Revision != w.Revision &&
					!(w.Revision == 0 && !a.records[w.Key].Exists) {
					a.c.Handle(Written{w, 0}, a.now)
					continue
				}
				if w.Aside != nil && a.asides != nil {
					a.asides(w)
				}
				benchRevision++
				found := Record{Exists: true, Value: w.Bytes(), Revision: benchRevision,
					Stored: originWall.Add(a.now.Since(origin))}
				a.records[w.Key] = found
				a.c.Handle(Written{w, benchRevision}, a.now)
				if w.Why != whyCheckpoint {
					a.c.Handle(Watched{w.Table, w.Key, found}, a.now)
				}
			}
			for _, r := range reads {
				a.c.Handle(Found{r, a.records[r.Key]}, a.now)
			}
		}
		for _, o := range a.c.out.opens {
			a.c.Handle(
				Opened{Opening: o, Created: originWall.Add(-time.Hour),
					Taken: originWall.Add(a.now.Since(origin))}, a.now)
		}
		if each != nil {
			each()
		}
		a.c.out = actions{}
	}
}

func (a *anew) owns() bool {
	var r record.Owner
	stands := a.records["api.0"].Exists && record.Decode(a.records["api.0"].Value, &r) == nil &&
		r.Owner == a.c.Lease.Id && !r.Released
	s := a.c.shares.all["api.0"]
	return stands && s.part != nil && s.part.Live() &&
		s.part.Epoch == a.records["api.0"].Revision
}

func TestAnOwnerWritesAVanishedRecordAgain(t *testing.T) {
	for _, told := range []bool{true, false} {
		a := newAnew(t)
		a.run(2*time.Second, nil)
		part := a.c.shares.all["api.0"].part
		a.c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
			Jobs: []job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}}, a.now)
		a.c.Decide(a.now)
		a.c.out.Starts[0].Decide(atOnce(a.c.out.Starts[0]), nil)
		a.lose(TablePartitions, told)
		if !told {
			a.c.Handle(Broken{Part: part.Partition, Epoch: part.Epoch}, a.now)
		}
		a.run(time.Second, nil)
		var r record.Owner
		if !a.owns() || a.c.shares.all["api.0"].part != part ||
			record.Decode(a.records["api.0"].Value, &r) != nil || len(r.Running) != 1 {
			t.Errorf("told: %t; owned: %t; the record says %s", told, a.owns(),
				a.records["api.0"].Value)
		}
		var noted record.Checkpoint
		if record.Decode(a.records["api.0"+record.CheckpointSuffix].Value, &noted) != nil ||
			len(noted.Running) != 1 {
			t.Errorf("told: %t; the checkpoint says %s", told,
				a.records["api.0"+record.CheckpointSuffix].Value)
		}
	}
}

// Others take it a lease later, with its last state, unless its owner writes it again or another
// has claimed it.
func TestAReleasedRecordThatVanishedIsClaimedAfterALease(t *testing.T) {
	a := newAnew(t)
	a.set(TablePartitions, "api.0",
		record.Owner{V: record.Version, Owner: "before", Released: true,
			Handover: record.Handover{Running: []record.Run{{Seq: 3, Holder: "holder"}}}})
	a.lose(TablePartitions, true)
	var at pace.Instant
	a.run(10*time.Second, func() {
		if at == 0 && a.records["api.0"].Exists {
			at = a.now
		}
	})
	if !a.owns() || at.Since(origin) < simulatedLease {
		t.Errorf("owned: %t, claimed after %v", a.owns(), at.Since(origin))
	}
	if in := a.c.shares.all["api.0"].before.record; len(in.Running) != 1 {
		t.Errorf("it was told of %v", in.Running)
	}
}

func TestTheOwnerOfAVanishedRecordIsLeftInPeaceWhileItLives(t *testing.T) {
	a := newAnew(t)
	a.renews = true
	a.set(TableDrainers, "another",
		record.Lease{V: record.Version, Lease: simulatedLease.Milliseconds(),
			Policies: []string{"api"}})
	a.set(TablePartitions, "api.0", record.Owner{V: record.Version, Owner: "another"})
	a.run(time.Second, nil)
	a.lose(TablePartitions, true)
	a.lose(TableDrainers, true)
	a.run(10*time.Second, nil)
	if a.records["api.0"].Exists {
		t.Errorf("another's partition was claimed: %s", a.records["api.0"].Value)
	}
	a.renews = false
	a.run(simulatedLease-600*ms, nil)
	if a.records["api.0"].Exists {
		t.Errorf("another's partition was claimed before its lease had expired: %s",
			a.records["api.0"].Value)
	}
	if a.run(5*time.Second, nil); !a.owns() {
		t.Error("another is dead, and nobody owns its partition")
	}
}

// In a new installation, policies are newer than the table; here a new process finds no record.
func TestANewDrainerLetsOwnersRewriteLostRecords(t *testing.T) {
	for name, older := range map[string]time.Duration{"made anew": second, "new": -second} {
		t.Run(name, func(t *testing.T) {
			p := leaky("api", "10/s")
			a := newAnew(t)
			a.c = New(Options{
				Name: "begins", Lease: simulatedLease, Random: func() float64 {
					return 0.5
				}, OwnersMade: originWall,
			})
			a.c.Handle(Connected{Up: true}, origin)
			a.c.synced = true
			stored := originWall.Add(-older)
			a.c.Handle(configured(QueuePolicy{Policy: p.WithDefaults(), Own: true, Local: true,
				Stored: stored}), origin)
			var claimed pace.Instant
			a.run(2*simulatedLease, func() {
				if claimed == 0 && a.records["api.0"].Exists {
					claimed = a.now
				}
			})
			if !a.owns() || (claimed.Since(origin) >= simulatedLease) != (older > 0) {
				t.Errorf("owned: %t, claimed after %v", a.owns(), claimed.Since(origin))
			}
		})
	}
}

func TestALeaseThatVanishedIsWrittenAgain(t *testing.T) {
	a := newAnew(t)
	a.run(2*time.Second, nil)
	id := a.c.Lease.Id
	a.lose(TableDrainers, true)
	a.run(5*time.Second, func() {
		if !a.c.Open(a.now) {
			t.Fatalf("at %v it may start nothing", a.now.Since(origin))
		}
	})
	if a.c.Lease.Id != id || !a.records[id].Exists || !a.owns() {
		t.Errorf("it is %s now, and was %s; owned: %t", a.c.Lease.Id, id, a.owns())
	}
}

func TestADeletedLeaseIsRewrittenUnlessItsDrainerLeaves(t *testing.T) {
	for name, leaves := range map[string]bool{"it stays": false, "it leaves": true} {
		t.Run(name, func(t *testing.T) {
			a := newAnew(t)
			a.run(2*time.Second, nil)
			id := a.c.Lease.Id
			if leaves {
				a.c.Handle(Stopped{}, a.now)
			}
			deleted := Record{Revision: 1 << 40, Stored: originWall}
			a.c.Handle(Found{Put{Key: id, Why: WhyRenew}, deleted}, a.now)
			if lost := a.c.Lease.Id != id; lost != leaves {
				t.Errorf("it was %s and goes on as %s", id, a.c.Lease.Id)
			}
		})
	}
}

func TestNothingIsHandedToADrainerWithoutALease(t *testing.T) {
	c := coreBench(t)
	heardOf(c, "peer", 10, record.Lease{Lease: simulatedLease.Milliseconds()}, origin)
	p := c.peers.all["peer"]
	live := c.peers.live("peer", origin)
	c.Handle(Watched{TableDrainers, "peer", Record{Revision: 11, Stored: originWall}}, origin)
	if !live || p.gone || c.peers.live("peer", origin) {
		t.Errorf("live before: %t, gone: %t, live: %t", live, p.gone,
			c.peers.live("peer", origin))
	}
}

func TestALeaseThatVanishedTooLongAgoIsLost(t *testing.T) {
	a := newAnew(t)
	a.run(2*time.Second, nil)
	id := a.c.Lease.Id
	a.lose(TableDrainers, false)
	a.now = a.now.Add(2 * simulatedLease)
	a.run(time.Second, nil)
	if a.c.Lease.Id == id {
		t.Error("it goes on under its name")
	}
}

func TestAReleaseIsWrittenThoughTheRecordVanished(t *testing.T) {
	a := newAnew(t)
	a.run(2*time.Second, nil)
	a.c.Handle(Stopped{}, a.now)
	a.lose(TablePartitions, false)
	a.run(5*time.Second, nil)
	var r record.Owner
	if record.Decode(a.records["api.0"].Value, &r) != nil || !r.Released || !a.c.Left() {
		t.Errorf("left: %t; the record says %s", a.c.Left(), a.records["api.0"].Value)
	}
}

// The owner of a stream older than the records may not have noticed the loss of its record, and
// starts jobs: a lease must pass.
func TestAStreamThatIsOlderThanTheRecordsMayHaveAnOwner(t *testing.T) {
	for name, found := range map[string]Opened{
		"older": {Created: originWall, Since: originWall.Add(time.Second)},
		"checkpointed": {Created: originWall,
			Checkpoint: record.Checkpoint{V: record.Version, Owner: "owner", Epoch: 3}},
		"younger, so nobody's": {Created: originWall, Since: originWall.Add(-time.Second)},
	} {
		older := found.Since.After(found.Created) || found.Checkpoint.V != 0
		c := coreBench(t, leaky("api", "10/s"))
		part, taken := takeOver(c, found)
		c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
			Jobs: []job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}},
			taken)
		var started pace.Instant
		c.run(taken, 10*time.Second, func(now pace.Instant, _ []Put) {
			if started == 0 && len(c.out.Starts) > 0 {
				started = now
			}
		})
		if wait := started.Since(taken); older != (wait >= simulatedLease) {
			t.Errorf("%s: it started after %v", name, wait)
		}
	}
}

func TestAnOldReportOfAVanishedRecord(t *testing.T) {
	a := newAnew(t)
	a.run(2*time.Second, nil)
	a.c.Handle(Watched{TablePartitions, "api.0", Record{Revision: 1}}, a.now)
	if a.run(2*time.Second, nil); !a.owns() || a.c.shares.all["api.0"].vanished != 0 {
		t.Errorf("owned: %t", a.owns())
	}
	a.set(TableDrainers, "another",
		record.Lease{V: record.Version, Lease: simulatedLease.Milliseconds(),
			Policies: []string{"api"}})
	a.c.Handle(Watched{TableDrainers, "another", Record{Revision: 1}}, a.now)
	if a.run(4*simulatedLease, nil); !a.c.peers.all["another"].gone {
		t.Error("another has not renewed its lease for long, and counts as alive")
	}
}
