package workers

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// A KV bucket may be deleted and made anew under the drainers' feet. Its records are gone then without a word, unlike those
// that somebody deletes, and revisions go on above the former ones.

// anew is the records of a core as a server has them.
type anew struct {
	t       *testing.T
	c       *core
	now     instant
	records map[string]record
	renews  bool // its peer
}

func newAnew(t *testing.T) *anew {
	p := leaky("api", "10/s")
	p.Partitions = 1
	return &anew{t: t, c: coreBench(t, p), now: origin, records: map[string]record{}}
}

// lose makes a table anew; the watch tells of it only when told is set.
func (a *anew) lose(t table, told bool) {
	for key, r := range a.records {
		if ownersKey := key == "api.0" || key == "api.0"+checkpointSuffix; (t == tablePartitions) == ownersKey {
			delete(a.records, key)
			if told && key != "api.0"+checkpointSuffix {
				a.c.watched(t, key, record{revision: r.revision}, a.now)
			}
		}
	}
	benchRevision += 1000
}

// set writes a record as another drainer.
func (a *anew) set(t table, key string, value any) {
	benchRevision++
	a.records[key] = record{exists: true, value: encode(value), revision: benchRevision, stored: originWall.Add(a.now.since(origin))}
	a.c.watched(t, key, a.records[key], a.now)
}

// run plays the server: writes by compare-and-set, reads, and openings that succeed.
func (a *anew) run(length time.Duration, each func()) {
	for end := a.now.add(length); a.now < end; a.now = a.now.add(20 * ms) {
		if a.renews && a.now.since(origin)%(500*ms) == 0 {
			a.set(tableDrainers, "another", leaseRecord{V: version, Nonce: uint64(a.now), Lease: simulatedLease.Milliseconds(), Policies: []string{"api"}})
		}
		a.c.advance(a.now)
		for len(a.c.out.puts)+len(a.c.out.reads) > 0 {
			puts, reads := a.c.out.puts, a.c.out.reads
			a.c.out.puts, a.c.out.reads = nil, nil
			for _, w := range puts {
				if a.records[w.key].revision != w.revision && !(w.revision == 0 && !a.records[w.key].exists) {
					a.c.put(w, putConflict, 0, a.now)
					continue
				}
				benchRevision++
				found := record{exists: true, value: w.bytes(), revision: benchRevision, stored: originWall.Add(a.now.since(origin))}
				a.records[w.key] = found
				a.c.put(w, putOK, benchRevision, a.now)
				if w.why != whyCheckpoint {
					a.c.watched(w.table, w.key, found, a.now)
				}
			}
			for _, r := range reads {
				a.c.read(r.put, a.records[r.put.key], a.now)
			}
		}
		for _, o := range a.c.out.opens {
			a.c.opened(o, o.part.epoch, opened{created: originWall.Add(-time.Hour), claimed: originWall.Add(a.now.since(origin))}, a.now)
		}
		if each != nil {
			each()
		}
		a.c.out = actions{}
	}
}

// owns reports whether the core owns the partition, by its own lights and by the record's.
func (a *anew) owns() bool {
	var r ownerRecord
	stands := a.records["api.0"].exists && decode(a.records["api.0"].value, &r) == nil && r.Owner == a.c.lease.id && !r.Released
	s := a.c.shares["api.0"]
	return stands && s.part != nil && s.part.state == partitionLive && s.part.epoch == a.records["api.0"].revision
}

func TestAnOwnerWritesAVanishedRecordAgain(t *testing.T) {
	for _, told := range []bool{true, false} { // when not, it learns by its next write
		a := newAnew(t)
		a.run(2*time.Second, nil)
		part := a.c.shares["api.0"].part
		a.c.arrived(part, part.epoch, []queue.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}, a.now)
		a.c.decide(a.now)
		a.c.out.starts[0].decide(whenever, nil)
		a.lose(tablePartitions, told)
		if !told {
			part.broken = true
		}
		a.run(time.Second, nil)
		var r ownerRecord
		if !a.owns() || a.c.shares["api.0"].part != part || decode(a.records["api.0"].value, &r) != nil || len(r.Running) != 1 {
			t.Errorf("told: %t; owned: %t; the record says %s", told, a.owns(), a.records["api.0"].value)
		}
		var noted checkpoint
		if decode(a.records["api.0"+checkpointSuffix].value, &noted) != nil || len(noted.Running) != 1 {
			t.Errorf("told: %t; the checkpoint says %s", told, a.records["api.0"+checkpointSuffix].value)
		}
	}
}

// What others leave alone, because its owner writes it again, or somebody else claimed it just before, is theirs after a
// lease, and what it said last is still known.
func TestAReleasedRecordThatVanishedIsClaimedAfterALease(t *testing.T) {
	a := newAnew(t)
	a.set(tablePartitions, "api.0", ownerRecord{V: version, Owner: "before", Released: true, handover: handover{Running: []runRecord{{3, "holder"}}}})
	a.lose(tablePartitions, true)
	var at instant
	a.run(10*time.Second, func() {
		if at == 0 && a.records["api.0"].exists {
			at = a.now
		}
	})
	if !a.owns() || at.since(origin) < simulatedLease {
		t.Errorf("owned: %t, claimed after %v", a.owns(), at.since(origin))
	}
	if in := a.c.shares["api.0"].before.record; len(in.Running) != 1 {
		t.Errorf("it was told of %v", in.Running)
	}
}

func TestTheOwnerOfAVanishedRecordIsLeftInPeaceWhileItLives(t *testing.T) {
	a := newAnew(t)
	a.renews = true
	a.set(tableDrainers, "another", leaseRecord{V: version, Lease: simulatedLease.Milliseconds(), Policies: []string{"api"}})
	a.set(tablePartitions, "api.0", ownerRecord{V: version, Owner: "another"})
	a.run(time.Second, nil)
	a.lose(tablePartitions, true)
	a.lose(tableDrainers, true)
	a.run(10*time.Second, nil)
	if a.records["api.0"].exists {
		t.Errorf("another's partition was claimed: %s", a.records["api.0"].value)
	}
	a.renews = false
	a.run(simulatedLease-600*ms, nil)
	if a.records["api.0"].exists {
		t.Errorf("another's partition was claimed before its lease had expired: %s", a.records["api.0"].value)
	}
	if a.run(5*time.Second, nil); !a.owns() {
		t.Error("another is dead, and nobody owns its partition")
	}
}

// A process that begins then finds no record, as in a new installation, where policies are younger than the table.
func TestWhoBeginsAfterALossLeavesOwnersTheTimeToWriteAgain(t *testing.T) {
	for name, older := range map[string]time.Duration{"made anew": second, "new": -second} {
		t.Run(name, func(t *testing.T) {
			p := leaky("api", "10/s")
			p.Partitions = 1
			a := newAnew(t)
			a.c = newCore(coreOptions{
				name: "begins", lease: simulatedLease, random: func() float64 { return 0.5 }, ownersMade: originWall,
			})
			a.c.connection(true, origin)
			a.c.synced = true
			stored := originWall.Add(-older)
			a.c.setPolicies([]queuePolicy{{Policy: p.WithDefaults(), own: true, local: true, stored: stored}}, origin)
			var claimed instant
			a.run(2*simulatedLease, func() {
				if claimed == 0 && a.records["api.0"].exists {
					claimed = a.now
				}
			})
			if !a.owns() || (claimed.since(origin) >= simulatedLease) != (older > 0) {
				t.Errorf("owned: %t, claimed after %v", a.owns(), claimed.since(origin))
			}
		})
	}
}

func TestALeaseThatVanishedIsWrittenAgain(t *testing.T) {
	a := newAnew(t)
	a.run(2*time.Second, nil)
	id := a.c.lease.id
	a.lose(tableDrainers, true)
	a.run(5*time.Second, func() {
		if !a.c.open(a.now) {
			t.Fatalf("at %v it may start nothing", a.now.since(origin))
		}
	})
	if a.c.lease.id != id || !a.records[id].exists || !a.owns() {
		t.Errorf("it is %s now, and was %s; owned: %t", a.c.lease.id, id, a.owns())
	}
}

// When its own lease may have ended, others may have taken what it owned.
func TestALeaseThatVanishedTooLongAgoIsLost(t *testing.T) {
	a := newAnew(t)
	a.run(2*time.Second, nil)
	id := a.c.lease.id
	a.lose(tableDrainers, false)
	a.now = a.now.add(2 * simulatedLease)
	a.run(time.Second, nil)
	if a.c.lease.id == id {
		t.Error("it goes on under its name")
	}
}

func TestAReleaseIsWrittenThoughTheRecordVanished(t *testing.T) {
	a := newAnew(t)
	a.run(2*time.Second, nil)
	a.c.leave(a.now)
	a.lose(tablePartitions, false)
	a.run(5*time.Second, nil)
	var r ownerRecord
	if decode(a.records["api.0"].value, &r) != nil || !r.Released || !a.c.left() {
		t.Errorf("left: %t; the record says %s", a.c.left(), a.records["api.0"].value)
	}
}

// Who knows nothing of a stream that is older than the records lets a lease pass: its owner may not have heard yet that its
// own record is gone, and starts jobs meanwhile.
func TestAStreamThatIsOlderThanTheRecordsMayHaveAnOwner(t *testing.T) {
	for name, found := range map[string]opened{
		"older":                {created: originWall, since: originWall.Add(time.Second)},
		"checkpointed":         {created: originWall, checkpoint: checkpoint{V: version, Owner: "owner", Epoch: 3}},
		"younger, so nobody's": {created: originWall, since: originWall.Add(-time.Second)},
	} {
		older := found.since.After(found.created) || found.checkpoint.V != 0
		p := leaky("api", "10/s")
		p.Partitions = 1
		c := coreBench(t, p)
		part, taken := takeOver(c, found)
		c.arrived(part, part.epoch, []queue.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}, taken)
		var started instant
		c.run(taken, 10*time.Second, func(now instant, _ []put) {
			if started == 0 && len(c.out.starts) > 0 {
				started = now
			}
		})
		if wait := started.since(taken); older != (wait >= simulatedLease) {
			t.Errorf("%s: it started after %v", name, wait)
		}
	}
}

// On a server, with jobs that run and wait: none is lost, none runs twice, and the rate is kept.
func TestDrainersOutliveTheirTables(t *testing.T) {
	for name, buckets := range map[string][]string{
		"ownership": {"KV_PENSTOCK_PARTITIONS"},
		"leases":    {"KV_PENSTOCK_DRAINERS"},
		"both":      {"KV_PENSTOCK_PARTITIONS", "KV_PENSTOCK_DRAINERS"},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy.Policy{Name: "api", Algorithm: policy.LeakingBucket, Capacity: 2000, Partitions: 4,
				Outflow: algorithms.Rate{Count: 50, Per: time.Second}}
			b := newBench(t, p)
			var ran seen
			held, finish := make(chan struct{}, 1000), make(chan struct{})
			end := sync.OnceFunc(func() { close(finish) })
			defer end()
			handle := func(ctx context.Context, job Job) error {
				if string(job.Body) == "0" { // runs all the while
					held <- struct{}{}
					<-finish
				}
				return ran.handle(ctx, job)
			}
			const keys, each = 8, 100
			for range 2 {
				b.drain(Options{Lease: 5 * time.Second}, map[string]Handler{"api": handle})
			}
			for k := range keys {
				b.publish("api", fmt.Sprint("k", k), 0, each)
			}
			for range keys {
				<-held
			}
			js, err := b.nc.JetStream()
			if err != nil {
				t.Fatal(err)
			}
			for _, bucket := range buckets {
				if err := js.DeleteStream(bucket); err != nil {
					t.Fatal(err)
				}
			}
			b.drain(Options{Lease: 5 * time.Second}, map[string]Handler{"api": handle}) // makes them anew
			b.until("the tables are there", func() bool {
				_, owners := b.broker.Partitions().Created(t.Context())
				_, leases := b.broker.Drainers().Created(t.Context())
				return owners == nil && leases == nil
			})
			b.until("all partitions have owners again, with leases", func() bool {
				for n := range p.Partitions {
					r := b.owner(shareKey("api", n))
					if _, err := b.broker.Drainers().Read(t.Context(), cmp.Or(r.Owner, "nobody")); err != nil || r.Released {
						return false
					}
				}
				return true
			})
			end()
			b.empty("api")
			times := map[string]int{}
			for k := range keys {
				var starts []time.Duration
				for _, job := range ran.all() {
					if string(job.Key) == fmt.Sprint("k", k) {
						times[fmt.Sprint(job.Key, " ", string(job.Body))]++
						starts = append(starts, job.Started.Sub(time.Unix(0, 0)))
					}
				}
				if why := exceeds(starts, 50, 1); why != "" {
					t.Errorf("key %d: %s", k, why)
				}
			}
			if len(times) != keys*each {
				t.Errorf("%d of %d jobs ran", len(times), keys*each)
			}
			for job, n := range times {
				if n > 1 {
					t.Errorf("job %s ran %d times", job, n)
				}
			}
		})
	}
}

// What a watch tells of the old table may come after this process has met the new one.
func TestThatARecordVanishedMayBeOldNews(t *testing.T) {
	a := newAnew(t)
	a.run(2*time.Second, nil)
	a.c.watched(tablePartitions, "api.0", record{revision: 1}, a.now)
	if a.run(2*time.Second, nil); !a.owns() || a.c.shares["api.0"].vanished != 0 {
		t.Errorf("owned: %t", a.owns())
	}
	a.set(tableDrainers, "another", leaseRecord{V: version, Lease: simulatedLease.Milliseconds(), Policies: []string{"api"}})
	a.c.watched(tableDrainers, "another", record{revision: 1}, a.now)
	if a.run(4*simulatedLease, nil); !a.c.peers["another"].gone {
		t.Error("another has not renewed its lease for long, and counts as alive")
	}
}
