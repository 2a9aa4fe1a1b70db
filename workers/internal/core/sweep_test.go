package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// heldElsewhere is a core that took over api.0, whose job 3 runs in a live process.
func heldElsewhere(t *testing.T, last uint64) (*Core, *partition, pace.Instant) {
	t.Helper()
	p := leaky("api", "10/s")
	p.Partitions, p.Concurrency = 1, 2
	c := coreBench(t, p)
	alive := record.Lease{V: record.Version, Lease: simulatedLease.Milliseconds()}
	c.Handle(Watched{TableDrainers, "holder",
		Record{Exists: true, Value: record.Encode(alive), Revision: 7}}, origin)
	left := record.Owner{V: record.Version, Owner: "holder", Released: true,
		Handover: record.Handover{Running: []record.Run{{Seq: 3, Holder: "holder"}}}}
	ownedBefore(c, left, 8)
	part, now := takeOver(c, Opened{Last: last})
	return c, part, now
}

func arrives(c *Core, p *partition, now pace.Instant, seq uint64, key queue.Key) {
	j := job.Arrived{Seq: seq, Key: key, Cost: 1, Stored: originWall}
	c.Handle(Arrived{Part: p.Partition, Epoch: p.Epoch, Jobs: []job.Arrived{j}}, now)
}

func startsWithin(c *Core, now pace.Instant, length time.Duration) (started []uint64) {
	revision := uint64(100_000)
	for end := now.Add(length); now < end; now = now.Add(100 * ms) {
		c.advance(now)
		for _, r := range c.out.Starts {
			started = append(started, r.Seq)
		}
		answerPuts(c, now)
		c.out = actions{}
		revision++
		alive := record.Lease{V: record.Version, Nonce: revision,
			Lease: simulatedLease.Milliseconds()}
		c.Handle(Watched{TableDrainers, "holder",
			Record{Exists: true, Value: record.Encode(alive), Revision: revision}}, now)
	}
	return started
}

func TestInheritedStateIsKeptDuringTheSweep(t *testing.T) {
	c, part, now := heldElsewhere(t, 10)
	arrives(c, part, now, 2, "b")
	arrives(c, part, now, 3, "a")
	if started := startsWithin(c, now, second); len(started) != 1 || started[0] != 2 {
		t.Errorf("started %v; job 3 runs in a process that lives", started)
	}
}

func TestASweepEndsTheWaitForRunsThatAreGone(t *testing.T) {
	c, part, now := heldElsewhere(t, 10)
	arrives(c, part, now, 4, "b")
	if started := startsWithin(c, now, second); len(started) > 0 {
		t.Fatalf("started %v before it was known whether job 3 runs in that bucket", started)
	}
	now = now.Add(second)
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch, Swept: true}, now)
	if started := startsWithin(c, now, second); len(started) != 1 {
		t.Errorf("started %v, want job 4", started)
	}
	if holder := runsAt(c, part, 3, now); holder != "" {
		t.Errorf("still waits for what %s runs", holder)
	}
}

func TestRunsThatDoNotArriveAreGivenUp(t *testing.T) {
	c, part, now := heldElsewhere(t, 10)
	arrives(c, part, now, 4, "b")
	attempt := time.Duration(c.valves.all["api"].Policy.Timeout)
	if started := startsWithin(c, now, attempt+2*second); len(started) != 1 {
		t.Fatalf("started %v, want job 4", started)
	}
	arrives(c, part, now, 3, "a")
	if holder := runsAt(c, part, 3, now); holder != "holder" || stands(c, part, 3, now) == nil {
		t.Errorf("holder %q", holder)
	}
}

func TestASweepIgnoresLaterJobs(t *testing.T) {
	c, part, now := heldElsewhere(t, 2)
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch, Swept: true}, now)
	arrives(c, part, now, 3, "a")
	if started := startsWithin(c, now, second); len(started) > 0 {
		t.Errorf("started %v, which runs in a process that lives", started)
	}
}

func TestOnlyNewJobsAreReportedAsAccepted(t *testing.T) {
	c, part, now := heldElsewhere(t, 5)
	for seq := uint64(4); seq <= 6; seq++ {
		arrives(c, part, now, seq, "a")
	}
	if len(c.out.Accepted) != 1 || c.out.Accepted[0].Seq != 6 {
		t.Errorf("told of %d jobs", len(c.out.Accepted))
	}
}
