package core

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A successor of a crashed owner takes over when the lease expires, perhaps less than a lease after
// the checkpoint.
func TestCheckpointListsClocksDueAfterTheLease(t *testing.T) {
	p := leaky("api", "3/s")
	c := coreBench(t, p)
	now := c.run(origin, 2*second, nil)
	for now < c.Lease.renewAt {
		now = c.run(now, 20*ms, nil)
	}
	now = now.Add(-ms)
	part := c.shares.all["api.0"].part
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
		Jobs: []job.Arrived{{Seq: 1, Key: "a", Cost: 8, Stored: originWall, Body: []byte{}}}}, now)
	left := c.Lease.Fence.Since(now)
	c.advance(now)
	if wait := 8 * second / 3; wait >= aLease || wait <= left {
		t.Fatalf("the next start is in %v, the lease ends in %v", wait, left)
	}
	i := slices.IndexFunc(c.out.puts, func(p Put) bool { return p.Why == whyCheckpoint })
	if i < 0 {
		t.Fatal("no checkpoint was written")
	}
	var noted record.Checkpoint
	if err := record.Decode(c.out.puts[i].Bytes(), &noted); err != nil {
		t.Fatal(err)
	}
	if len(noted.Clocks) != 1 || noted.Clocks[0].Key != "a" {
		t.Errorf("the checkpoint lists the clocks %+v, want that of a", noted.Clocks)
	}
}

// afterASecondCrash is a core with three peers: the first, with the given record, is dead; so is
// the second, which only claimed the partition; the third lives.
func afterASecondCrash(t *testing.T, p policy.Policy, first record.Owner) *Core {
	t.Helper()
	gone := record.Encode(record.Lease{V: record.Version, Tombstone: true})
	c := coreBench(t, p)
	c.Handle(Watched{TableDrainers, "first", Record{Exists: true, Value: gone, Revision: 5}},
		origin)
	ownedBefore(c, first, 8)

	var second record.Owner
	c.run(origin, 2*favouriteFirst, func(_ pace.Instant, written []Put) {
		if i := slices.IndexFunc(written, func(p Put) bool { return p.Why == whyTake }); i >= 0 {
			if err := record.Decode(written[i].value, &second); err != nil {
				t.Fatal(err)
			}
		}
	})
	if second.Owner == "" {
		t.Fatal("nothing was claimed")
	}
	second.Owner = "second"

	c = coreBench(t, p)
	alive := record.Encode(record.Lease{V: record.Version, Lease: aLease.Milliseconds(),
		Policies: []string{"api"}})
	c.Handle(Watched{TableDrainers, "first", Record{Exists: true, Value: gone, Revision: 5}},
		origin)
	c.Handle(Watched{TableDrainers, "second", Record{Exists: true, Value: gone, Revision: 7}},
		origin)
	c.Handle(Watched{TableDrainers, "third", Record{Exists: true, Value: alive, Revision: 9}},
		origin)
	ownedBefore(c, second, 10)
	return c
}

// An owner that took over after a crash, and crashed before its first checkpoint, leaves its
// predecessor's records: jobs of a third process continue.
func TestTwoCrashesInARowForgetNoRuns(t *testing.T) {
	p := leaky("api", "10/s")
	c := afterASecondCrash(t, p, record.Owner{V: record.Version, Owner: "first"})
	part, now := takeOver(c, Opened{
		Last: 100, Taken: originWall.Add(time.Minute), Noted: originWall.Add(-time.Second),
		Checkpoint: record.Checkpoint{V: record.Version, Owner: "first", Epoch: 8,
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

// A drainer that crashes between its claim and the opening passes on the replaced record's runs.
func TestAClaimPassesRunningJobsOn(t *testing.T) {
	p := leaky("api", "10/s")
	c := afterASecondCrash(t, p, record.Owner{
		V: record.Version, Owner: "first", Released: true,
		Handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "third"}}},
	})
	part, now := takeOver(c, Opened{Last: 100, Taken: originWall.Add(time.Minute)})
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
		Jobs: []job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}}, now)
	if holder := runsAt(c, part, 1, now); holder != "third" {
		t.Errorf("holder %q; want it to run where it runs", holder)
	}
}
