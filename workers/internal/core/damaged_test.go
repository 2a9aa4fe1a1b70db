package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func TestAnOwnerWritesADamagedRecordAgain(t *testing.T) {
	a := newAnew(t)
	a.run(2*time.Second, nil)
	part := a.c.shares.all["api.0"].part
	a.c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
		Jobs: []job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}}, a.now)
	a.c.Decide(a.now)
	a.c.out.Starts[0].Decide(atOnce(a.c.out.Starts[0]), nil)
	a.damage(TablePartitions, "api.0")
	a.run(time.Second, nil)
	var r record.Owner
	if !a.owns() || a.c.shares.all["api.0"].part != part ||
		record.Decode(a.records["api.0"].Value, &r) != nil || len(r.Running) != 1 {
		t.Errorf("owned: %t; the record says %s", a.owns(), a.records["api.0"].Value)
	}
}

// Other drainers give the owner a lease to write the record again, and longer while it lives; then
// they take the partition as after a crash, with the checkpoint's state, and keep the bytes.
func TestADamagedRecordIsReplacedAfterALease(t *testing.T) {
	for name, c := range map[string]struct {
		owner string // of the former version; empty: never readable
		renew bool
	}{"unknown": {}, "dead": {owner: "another"}, "alive": {owner: "another", renew: true}} {
		t.Run(name, func(t *testing.T) {
			a := newAnew(t)
			a.renews = c.renew
			if c.owner != "" {
				a.set(TableDrainers, c.owner, record.Lease{V: record.Version,
					Lease: simulatedLease.Milliseconds(), Policies: []string{"api"}})
				a.set(TablePartitions, "api.0",
					record.Owner{V: record.Version, Owner: c.owner})
			}
			a.damage(TablePartitions, "api.0")
			var taken pace.Instant
			var aside string
			a.asides = func(p Put) { aside = string(p.Aside) }
			a.run(10*time.Second, func() {
				if taken == 0 && a.owns() {
					taken = a.now
				}
			})
			if c.renew {
				if taken != 0 {
					t.Errorf("its partition was taken after %v", taken.Since(origin))
				}
				return
			}
			if taken == 0 || taken.Since(origin) < simulatedLease || aside != "garbage" {
				t.Errorf("taken after %v, with %q kept aside", taken.Since(origin), aside)
			}
		})
	}
}

// After a crash without a readable record, a job that the checkpoint lists as running counts as
// crashed, and the limits as used.
func TestTheCheckpointReplacesADamagedRecord(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	c.Handle(Watched{TableDrainers, "first", Record{Exists: true, Revision: 5,
		Value: record.Encode(record.Lease{V: record.Version, Tombstone: true})}}, origin)
	c.Handle(Watched{TableDrainers, "third", Record{Exists: true, Revision: 6,
		Value: record.Encode(record.Lease{V: record.Version, Lease: time.Minute.Milliseconds(),
			Policies: []string{"api"}})}}, origin)
	c.Handle(Watched{TablePartitions, "api.0", Record{Exists: true, Revision: 8,
		Value: []byte("garbage"), Stored: originWall}}, origin)
	part, now := takeOver(c, Opened{
		Last: 100, Taken: originWall.Add(time.Minute), Noted: originWall.Add(-time.Second),
		Checkpoint: record.Checkpoint{V: record.Version, Owner: "first", Epoch: 7,
			Handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "third"},
				{Seq: 2, Holder: "first"}}}},
	})
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
		Jobs: []job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall},
			{Seq: 2, Key: "a", Cost: 1, Stored: originWall}}}, now)
	if holder := runsAt(c, part, 1, now); holder != "third" {
		t.Errorf("job 1: holder %q; want it to run where it runs", holder)
	}
	if saves := c.out.Saves; len(saves) != 1 || saves[0].Seq != 2 || saves[0].Record.Crashes != 1 {
		t.Errorf("records %+v, want the crash of the first owner", saves)
	}
}

func TestADamagedLeaseExpires(t *testing.T) {
	a := newAnew(t)
	a.set(TableDrainers, "another", record.Lease{V: record.Version,
		Lease: simulatedLease.Milliseconds(), Policies: []string{"api"}})
	a.set(TablePartitions, "api.0", record.Owner{V: record.Version, Owner: "another"})
	a.damage(TableDrainers, "another")
	a.run(simulatedLease-100*ms, nil)
	if a.c.peers.all["another"].gone {
		t.Error("another counts as dead before its lease has ended")
	}
	if a.run(5*time.Second, nil); !a.owns() {
		t.Error("nobody owns its partition")
	}
}

// An unreadable checkpoint has an unknown age: after a crash, all that a limit allows may have
// started.
func TestADamagedCheckpointHasAnUnknownAge(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	c.Handle(Watched{TableDrainers, "first", Record{Exists: true, Revision: 5,
		Value: record.Encode(record.Lease{V: record.Version, Tombstone: true})}}, origin)
	ownedBefore(c, record.Owner{V: record.Version, Owner: "first"}, 8)
	found := Opened{Last: 100, Taken: originWall, Noted: originWall.Add(-time.Second),
		Checkpoint: record.Checkpoint{V: record.Version, Owner: "first", Epoch: 8}}
	_, now := takeOver(c, found)
	s := c.shares.all["api.0"]
	if in := c.inheritance(s, found, now); !in.Crashed || in.Age != time.Second {
		t.Errorf("a whole one: %+v", in)
	}
	found.Damaged()
	if in := c.inheritance(s, found, now); !in.Crashed || in.Age != pace.Forever {
		t.Errorf("a damaged one: %+v", in)
	}
}
