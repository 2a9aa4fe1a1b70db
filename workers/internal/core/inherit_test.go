package core

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A holder whose lease ended before the partition was opened will never report.
func TestRunsOfAGoneHolderCountAsCrashed(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	gone := record.Lease{V: record.Version, Tombstone: true}
	c.Handle(Watched{TableDrainers, "holder",
		Record{Exists: true, Value: record.Encode(gone), Revision: 7}},
		origin)
	left := record.Owner{V: record.Version, Owner: "before", Released: true,
		Handover: record.Handover{Running: []record.Run{{Seq: 3, Holder: "holder"}}}}
	ownedBefore(c, left, 8)
	part, now := takeOver(c, Opened{Last: 100})
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
		Jobs: []job.Arrived{{Seq: 3, Key: "a", Cost: 1, Stored: originWall}}}, now)
	if saves := c.out.Saves; len(saves) != 1 || saves[0].Seq != 3 || saves[0].Record.Crashes != 1 {
		t.Errorf("records %+v; want the crash to be recorded", saves)
	}
}

// A record's age counts from its storage. For its own records this process gets that time from the
// watch, perhaps late, so it reads the record before the claim.
func TestARecordOfUnknownAgeIsReadBeforeItIsClaimed(t *testing.T) {
	p := leaky("api", "10/s")
	c := coreBench(t, p)
	left := record.Owner{V: record.Version, Owner: "before", Released: true,
		Handover: record.Handover{Running: []record.Run{{Seq: 3, Holder: "holder"}}}}
	found := Record{Exists: true, Value: record.Encode(left), Revision: 8}
	c.Handle(Watched{TablePartitions, "api.0", found}, origin)
	now := origin.Add(2 * favouriteFirst)
	c.advance(now)
	if len(c.out.reads) != 1 ||
		slices.ContainsFunc(c.out.puts, func(p Put) bool { return p.Why == whyTake }) {
		t.Fatalf("%d reads; wrote %v", len(c.out.reads), c.out.puts)
	}
	asked := c.out.reads[0]
	found.Stored = originWall
	c.Handle(Found{asked, found}, now)
	part, now := takeOver(c, Opened{Last: 100, Created: originWall.Add(-time.Hour)})
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
		Jobs: []job.Arrived{{Seq: 3, Key: "a", Cost: 1, Stored: originWall}}}, now)
	if holder := runsAt(c, part, 3, now); holder != "holder" || stands(c, part, 3, now) == nil {
		t.Errorf("holder %q; want it to run where it ran", holder)
	}
}

func TestHandoverWaitsForCrashesToBeRecorded(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	heardOf(c, "dead", 7, record.Lease{Tombstone: true}, origin)
	ownedBefore(c, record.Owner{V: record.Version, Owner: "before", Released: true,
		Handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "dead"}}}}, 8)
	now := c.run(origin, 2*time.Second, nil)
	s := c.shares.all["api.0"]
	c.Handle(Arrived{Part: s.part.Partition, Epoch: s.part.Epoch,
		Jobs: []job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}},
		now)
	c.release(s, now)
	if len(c.out.Reports) > 0 || s.state != shareOwned {
		t.Fatalf("handed over while a crash was being recorded; reports %+v", c.out.Reports)
	}
	c.Handle(Saved{c.out.Saves[0]}, now)
	c.release(s, now)
	if s.state != shareReleasing || len(c.out.Reports) > 0 {
		t.Errorf("state %d, reports %+v", s.state, c.out.Reports)
	}
}

func TestRecordsOfAFormerStreamAreNotApplied(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	left := record.Owner{V: record.Version, Owner: "before", Released: true,
		Handover: record.Handover{Done: []uint64{1}, Running: []record.Run{{Seq: 2,
			Holder: "before"}}}}
	ownedBefore(c, left, 8)
	part, now := takeOver(c, Opened{
		Last: 100, Taken: originWall.Add(time.Hour), Created: originWall.Add(time.Minute),
		Attempts: map[uint64]StoredAttempt{3: {
			Attempt: record.Attempt{V: record.Version, Attempts: 4}, Stored: originWall}},
	})
	jobs := []job.Arrived{{Seq: 1, Key: "a", Cost: 1}, {Seq: 2, Key: "b", Cost: 1},
		{Seq: 3, Key: "c", Cost: 1}}
	for i := range jobs {
		jobs[i].Stored = originWall.Add(2 * time.Minute)
	}
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch, Jobs: jobs}, now)
	if len(c.out.Acks) > 0 {
		t.Errorf("acknowledged %v, which never ran", c.out.Acks)
	}
	for _, seq := range []uint64{1, 2, 3} {
		if j := stands(c, part, seq, now); j == nil || j.State != job.Waiting || j.Attempts != 0 {
			t.Errorf("job %d: %+v", seq, j)
		}
	}
}

func TestAStreamRecreatedUnderItsOwner(t *testing.T) {
	c := coreBench(t, leaky("api", "1000/s"))
	now := c.run(origin, 2*time.Second, nil)
	part := c.shares.all["api.0"].part
	c.Handle(Opened{Opening: Opening{part.Partition, part.Epoch, false}, Created: originWall}, now)
	j := func(seq uint64, body string) job.Arrived {
		return job.Arrived{Seq: seq, Key: "a", Cost: 1, Stored: originWall, Body: []byte(body)}
	}
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
		Jobs: []job.Arrived{j(1, "old"), j(2, "old")}}, now)
	c.advance(now)
	first := c.out.Starts[0]
	if _, passed := first.Decide(atOnce(first), nil); !passed {
		t.Fatal("not started")
	}
	c.out = actions{}
	part.broken = true
	opens := 0
	for range 20 {
		now = now.Add(100 * ms)
		c.advance(now)
		for _, r := range c.out.Starts {
			r.Decide(atOnce(r), nil)
		}
		c.out.Starts = nil
		answerPuts(c, now)
		for _, o := range c.out.opens {
			opens++
			c.Handle(Opened{Opening: o, Last: 100, Created: originWall.Add(time.Minute)}, now)
		}
		c.out.opens = nil
		if opens > 0 {
			break
		}
	}
	c.Handle(Finish(first, record.Outcome{Seq: 1, Kind: record.OutcomeDone}), now)
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
		Jobs: []job.Arrived{j(1, "new"), j(2, "new")}}, now)
	if len(c.out.Acks) > 0 {
		t.Errorf("acknowledged %d jobs of the new stream", len(c.out.Acks))
	}
	var bodies []string
	c.run(now, second, func(pace.Instant, []Put) {
		for _, r := range c.out.Starts {
			r.Decide(atOnce(r), nil)
			bodies = append(bodies, string(r.Body))
		}
	})
	if !slices.Equal(bodies, []string{"new", "new"}) {
		t.Errorf("started %q", bodies)
	}
}
