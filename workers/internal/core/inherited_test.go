package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// An owner that crashed before its first checkpoint left an old one: its own claim lists the runs.
func TestACheckpointOfAFormerOwnerListsNoCurrentRuns(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	heardOf(c, "third", 6, record.Lease{Lease: aLease.Milliseconds()}, origin)
	heardOf(c, "second", 7, record.Lease{Tombstone: true}, origin)
	claim := record.Owner{V: record.Version, Owner: "second",
		Handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "third"}}}}
	ownedBefore(c, claim, 10)
	part, now := takeOver(c, Opened{
		Last: 2, Taken: originWall.Add(time.Minute), Noted: originWall.Add(-time.Hour),
		Checkpoint: record.Checkpoint{V: record.Version, Owner: "first", Epoch: 5,
			Handover: record.Handover{Running: []record.Run{{Seq: 2, Holder: "first"}}}},
	})
	arrives(c, part, now, 1, "a")
	arrives(c, part, now, 2, "b")
	if holder := runsAt(c, part, 1, now); holder != "third" {
		t.Errorf("job 1: holder %q; want it to run where it runs", holder)
	}
	if j := stands(c, part, 2, now); j.State != job.Waiting || len(c.out.Saves) > 0 {
		t.Errorf("job 2: %+v, records %+v; want it to wait", j, c.out.Saves)
	}
}
