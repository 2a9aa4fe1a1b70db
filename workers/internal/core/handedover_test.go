package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A drainer that leaves without an heir lets its jobs finish. If it crashes meanwhile, its
// successor needs its runs and its targets' pauses.
func TestAPartitionThatStartsNoMoreIsStillCheckpointed(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	now := c.run(origin, 2*time.Second, nil)
	part := c.shares.all["api.0"].part
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch, Jobs: []job.Arrived{
		{Seq: 1, Key: "a", Cost: 1, Stored: originWall},
		{Seq: 2, Key: "b", Cost: 1, Stored: originWall},
	}}, now)
	c.Decide(now)
	runs := c.out.Starts
	if len(runs) != 2 {
		t.Fatalf("%d started", len(runs))
	}
	for i := range runs {
		runs[i].Decide(atOnce(runs[i]), nil)
	}
	c.Handle(Stopped{}, now)
	var noted record.Checkpoint
	each := func(_ pace.Instant, written []Put) {
		for _, w := range written {
			if w.Why == whyCheckpoint {
				if err := record.Decode(w.Bytes(), &noted); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	now = c.run(now, 2*time.Second, each)
	if len(noted.Running) != 2 {
		t.Fatalf("two run; a checkpoint has %v", noted.Running)
	}
	throttled := record.Outcome{Seq: 1, Kind: record.OutcomeThrottled, RetryAfter: 10 * time.Minute}
	c.Handle(Finish(runs[0], throttled), now)
	c.run(now, 2*time.Second, each)
	if len(noted.Running) != 1 || len(noted.Clocks) != 1 || noted.Clocks[0].Cool == 0 {
		t.Errorf("one runs, and one cools down; a checkpoint has %v and %v", noted.Running,
			noted.Clocks)
	}
}

// reported tells a partition's owner of an outcome, as its former owner does.
func (c *Core) reported(policy string, number int, o record.Outcome,
	now pace.Instant) (heard bool) {
	s := c.shares.all[record.ShareKey(policy, number)]
	if s == nil || s.part == nil {
		return false
	}
	c.Handle(Asked{s.part.Partition, job.Question{Op: job.OpOutcome, Outcome: record.Encode(o)},
		func(a job.Answer) { heard = a.Error == "" }}, now)
	return heard
}

// A process frozen for longer than its lease has not noticed the loss of the partition.
func TestAThawedProcessHearsNoOutcomes(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	left := record.Owner{V: record.Version, Owner: "before", Released: true,
		Handover: record.Handover{Running: []record.Run{{Seq: 3, Holder: "holder"}}}}
	ownedBefore(c, left, 8)
	_, now := takeOver(c, Opened{Last: 100})
	done := record.Outcome{Seq: 3, Kind: record.OutcomeDone, Holder: "holder"}
	if c.reported("api", 0, done, now.Add(2*simulatedLease)) {
		t.Error("it said that it heard, twice a lease after its last renewal")
	}
	if !c.reported("api", 0, done, now) {
		t.Error("it does not hear while its lease lasts")
	}
}
