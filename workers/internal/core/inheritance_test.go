package core

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// lateAndCostly is a valve whose bucket a started a job of cost 6 as late as can be: 6 s until the
// next, by the envelope alone.
func lateAndCostly(t *testing.T) (*valveBench, record.Handover) {
	old := newValveBench(t, leaky("api", "1/s"))
	old.arrive("a", cost(10))
	old.arrive("a", cost(6))
	old.done(old.start()[0])
	old.at(18 * second)
	if runs := old.start(); len(runs) != 1 || old.p.jobs[runs[0].Seq].Cost != 6 {
		t.Fatalf("started %s", old.seqs(runs))
	}
	return old, old.at(18100*ms).v.handover(old.p, old.now, simulatedLease)
}

// What a late job takes is due at once, as far as the schedule goes, and is kept by the envelope.
func TestCheckpointKeepsWhatALateJobTakes(t *testing.T) {
	_, h := lateAndCostly(t)
	b := unownedValve(t, leaky("api", "1/s")).at(21 * second).inheritFrom(inheritance{
		crashed: true, owner: "old", elapsed: 2900 * ms, handover: h,
	})
	b.arrive("a")
	starts := b.until(30*second, b.done)
	if len(starts) != 1 || starts[0] < 23900*ms || starts[0] > 24*second {
		t.Errorf("the next job started at %v, want 24 s", starts)
	}
}

func TestCheckpointKeepsWhatALateJobTakesOfTheTotal(t *testing.T) {
	old := newValveBench(t, total("1/s"))
	old.arrive("a", cost(10))
	old.arrive("a", cost(6))
	old.done(old.start()[0])
	old.at(18 * second).start()
	h := old.at(18100*ms).v.handover(old.p, old.now, simulatedLease)

	b := unownedValve(t, total("1/s")).at(21 * second).inheritFrom(inheritance{
		crashed: true, owner: "old", elapsed: 2900 * ms, handover: h,
	})
	b.arrive("b")
	starts := b.until(30*second, b.done)
	if len(starts) != 1 || starts[0] < 23900*ms || starts[0] > 24*second {
		t.Errorf("the next job started at %v, want 24 s", starts)
	}
}

// A successor that comes by a crash comes when the lease ends, which may be sooner than a lease
// from the checkpoint.
func TestCheckpointListsWhatIsDueAfterTheLease(t *testing.T) {
	p := leaky("api", "3/s")
	c := coreBench(t, p)
	now := c.run(origin, 2*second, nil)
	for now < c.Lease.renewAt { // as long after a renewal as can be
		now = c.run(now, 20*ms, nil)
	}
	now = now.Add(-ms)
	part := c.shares["api.0"].part
	c.Handle(Arrived{part.Partition, part.Epoch,
		[]job.Arrived{{Seq: 1, Key: "a", Cost: 8, Stored: originWall, Body: []byte{}}}}, now)
	left := c.Lease.Fence.Since(now)
	c.advance(now)
	next := part.buckets["a"].pace.Next(&part.buckets["a"].clock)
	if wait := next.Since(now); wait >= simulatedLease || wait <= left {
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

// What the predecessor had finished must not start because the backlog is opened twice before it
// comes, …
func TestFinishedJobsAreKnownToASecondBacklog(t *testing.T) {
	b := unownedValve(t,
		leaky("api", "10/s")).
		inheritFrom(inheritance{owner: "old", handover: record.Handover{Done: []uint64{1}}})
	b.v.reopen(b.p, 2)
	b.deliver(1, "a")
	if runs := b.start(); len(runs) > 0 || len(b.out.acks) != 1 {
		t.Errorf("started %s, acknowledged %v", b.seqs(runs), b.out.acks)
	}
}

// … nor because the partition is handed on before it was acknowledged, whether it has come or not.
func TestFinishedJobsAreKnownToTheOwnerAfterTheNext(t *testing.T) {
	for name, comes := range map[string]bool{"it came": true, "it did not come": false} {
		t.Run(name, func(t *testing.T) {
			b := unownedValve(t,
				leaky("api", "10/s")).
				inheritFrom(inheritance{owner: "old", handover: record.Handover{Done: []uint64{1}}})
			if comes {
				b.deliver(1, "a")
				b.v.swept(b.p, b.now)
			}
			if h := b.v.surrender(b.p, b.now); !slices.Equal(h.Done, []uint64{1}) {
				t.Errorf("hands over %v as finished, want job 1", h.Done)
			}
		})
	}
}

// An outcome that was told before its job came goes to the next owner. The process that told it may
// be gone by then, in good order, and must not be taken for one that crashed.
func TestAnOutcomeThatWasToldIsTheTellersNoMore(t *testing.T) {
	p := leaky("api", "10/s")
	b := unownedValve(t,
		p).inheritFrom(inheritance{owner: "old",
		handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "old"}}}})
	b.v.reported(b.p, Outcome{Seq: 1, Kind: OutcomeDone, Holder: "old"}, b.now)
	h := b.v.surrender(b.p, b.now)
	if !slices.Equal(h.Running, []record.Run{{Seq: 1, Holder: "self"}}) {
		t.Fatalf("hands over %+v as running", h.Running)
	}
	next := unownedValve(t,
		p).inheritFrom(inheritance{owner: "self", handover: h, gone: map[string]bool{"old": true}})
	next.deliver(1, "a")
	for _, r := range b.out.reports {
		next.v.reported(next.p, r.Outcome, next.now)
	}
	if j := next.p.jobs[1]; j.stage != stageAcking || j.crashes != 0 {
		t.Errorf("stage %d, crashes %d; want it to be done", j.stage, j.crashes)
	}
}

// A process that was declared dead tells how its run ended while another process runs the job: that
// says nothing about the other run.
func TestAnOutcomeOfAnEarlierRunIsNotThatOfTheNext(t *testing.T) {
	p := leaky("api", "10/s")
	old := newValveBench(t, p)
	old.v.self = "dead"
	old.arrive("a")
	run := old.start()[0]
	old.v.surrender(old.p, old.now)
	old.end(run, Outcome{Kind: OutcomeFailed, Error: "500"})

	for name, arrived := range map[string]bool{"the job came": true,
		"the job did not come": false} {
		t.Run(name, func(t *testing.T) {
			b := unownedValve(t,
				p).inheritFrom(inheritance{owner: "second",
				handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "second"}}}})
			if arrived {
				b.deliver(1, "a")
			}
			b.v.reported(b.p, old.out.reports[0].Outcome, b.now)
			if !arrived {
				b.deliver(1, "a")
			}
			if j := b.p.jobs[1]; j.stage != stageRunning || j.holder != "second" {
				t.Errorf("stage %d, holder %q; want it to run where it runs", j.stage, j.holder)
			}
		})
	}
}

// afterASecondCrash is a core that knows of three drainers: the first, whose record of api.0 is
// given, is dead; so is the second, which claimed the partition and did no more; the third lives.
func afterASecondCrash(t *testing.T, p policy.Policy, first record.Owner) *Core {
	t.Helper()
	gone := record.Encode(record.Lease{V: record.Version, Tombstone: true})
	c := coreBench(t, p)
	c.Handle(Watched{TableDrainers, "first", Record{Exists: true, Value: gone, Revision: 5}},
		origin)
	ownedBefore(c, first, 8)

	// What this process claims, the second one would have claimed alike.
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
	alive := record.Encode(record.Lease{V: record.Version, Lease: simulatedLease.Milliseconds(),
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

// An owner that took over from a crash, and crashed before its first checkpoint, leaves what its
// predecessor noted: the jobs of a third process run on.
func TestTwoCrashesInARowForgetNoRuns(t *testing.T) {
	p := leaky("api", "10/s")
	c := afterASecondCrash(t, p, record.Owner{V: record.Version, Owner: "first"})
	part, now := takeOver(c, Opened{
		Last: 100, Taken: originWall.Add(time.Minute), Noted: originWall.Add(-time.Second),
		Checkpoint: record.Checkpoint{V: record.Version, Owner: "first", Epoch: 8,
			Handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "third"},
				{Seq: 2, Holder: "first"}}}},
	})
	c.Handle(Arrived{part.Partition, part.Epoch,
		[]job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall},
			{Seq: 2, Key: "a", Cost: 1, Stored: originWall}}}, now)
	if j := part.jobs[1]; j.stage != stageRunning || j.holder != "third" {
		t.Errorf("job 1: stage %d, holder %q; want it to run where it runs", j.stage, j.holder)
	}
	if j := part.jobs[2]; j.crashes != 1 {
		t.Errorf("job 2: %d crashes, want that of the first owner", j.crashes)
	}
}

// A drainer that dies before it has looked at what it claimed passes on what the record said that
// it replaced.
func TestAClaimPassesOnWhatRan(t *testing.T) {
	p := leaky("api", "10/s")
	c := afterASecondCrash(t, p, record.Owner{
		V: record.Version, Owner: "first", Released: true,
		Handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "third"}}},
	})
	part, now := takeOver(c, Opened{Last: 100, Taken: originWall.Add(time.Minute)})
	c.Handle(Arrived{part.Partition, part.Epoch,
		[]job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}}, now)
	if j := part.jobs[1]; j.stage != stageRunning || j.holder != "third" {
		t.Errorf("stage %d, holder %q; want it to run where it runs", j.stage, j.holder)
	}
}
