package core

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

func ownerBench(t *testing.T) (*Core, *partition, pace.Instant) {
	t.Helper()
	c := coreBench(t, leaky("api", "10/s"))
	part, now := takeOver(c, Opened{})
	return c, part, now
}

func delivers(t *testing.T, c *Core, part *partition, seq uint64, now pace.Instant) valve.Run {
	t.Helper()
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
		Jobs: []job.Arrived{{Seq: seq, Key: "a", Cost: 1, Stored: originWall,
			Body: []byte{}}}}, now)
	c.advance(now)
	if len(c.out.Starts) != 1 {
		t.Fatalf("%d jobs started, want one", len(c.out.Starts))
	}
	r := c.out.Starts[0]
	c.out.Starts = nil
	return r
}

func heir(c *Core, now pace.Instant) {
	heardOf(c, "heir", uint64(now),
		record.Lease{Lease: simulatedLease.Milliseconds(), Policies: []string{"api"}}, now)
}

func TestAHandoverWaitsForJobsOnTheirWayToAWorker(t *testing.T) {
	c, part, now := ownerBench(t)
	r := delivers(t, c, part, 1, now)
	c.release(c.shares.all["api.0"], now)
	if !part.Owned() {
		t.Fatal("handed over while a job was on its way to a worker")
	}
	if _, passed := r.Decide(atOnce(r), nil); !passed {
		t.Fatal("the job did not pass its last check")
	}
	c.release(c.shares.all["api.0"], now)
	if part.Owned() {
		t.Error("not handed over though the job runs")
	}
}

func TestADrainerEndsWhenItsOutcomesAreDelivered(t *testing.T) {
	c, part, now := ownerBench(t)
	r := delivers(t, c, part, 1, now)
	r.Decide(atOnce(r), nil)
	heir(c, now)
	c.Handle(Stopped{}, now)
	now = c.run(now, second, func(at pace.Instant, _ []Put) { heir(c, at) })
	if part.Owned() || c.Left() {
		t.Fatalf("owned: %v; left while a job of it runs: %v", part.Owned(), c.Left())
	}
	c.Handle(Finish(r, record.Outcome{Seq: 1, Kind: record.OutcomeDone}), now)
	if len(c.out.Reports) != 1 || c.Left() {
		t.Fatalf("%d reports; left before it was delivered: %v", len(c.out.Reports), c.Left())
	}
	c.Handle(Delivered{c.out.Reports[0]}, now)
	if !c.Left() {
		t.Error("it does not end when everything is told")
	}
}

func TestADrainerThatLeavesWithoutAnHeirWaitsForItsJobs(t *testing.T) {
	for name, lives := range map[string]bool{"an heir lives": true, "the heir is silent": false} {
		t.Run(name, func(t *testing.T) {
			c, part, now := ownerBench(t)
			r := delivers(t, c, part, 1, now)
			r.Decide(atOnce(r), nil)
			heir(c, now)
			now = c.run(now, simulatedLease*3/4, nil)
			if lives {
				heir(c, now)
			}
			c.Handle(Stopped{}, now)
			c.run(now, 200*ms, nil)
			if handedOver := !part.Owned(); handedOver != lives {
				t.Errorf("handed over: %v, want %v", handedOver, lives)
			}
		})
	}
}

// Otherwise the partition would have no owner, unnoticed.
func TestAReleaseThatWasNotAppliedIsRepeated(t *testing.T) {
	c, _, now := ownerBench(t)
	s := c.shares.all["api.0"]
	mine := Record{Exists: true, Value: record.Encode(s.record), Revision: s.revision,
		Stored: originWall}
	c.release(s, now)
	p := putFor(t, c, whyRelease)
	c.Handle(Written{p, 0}, now)
	c.Handle(Found{c.out.reads[0], mine}, now)
	again := 0
	c.run(now, second, func(_ pace.Instant, written []Put) {
		for _, w := range written {
			if w.Why == whyRelease {
				if again++; w.Revision != mine.Revision || !slices.Equal(w.value, p.value) {
					t.Errorf("wrote %s at revision %d, want the same again", w.value, w.Revision)
				}
			}
		}
	})
	if again != 1 {
		t.Errorf("written %d times more, want once", again)
	}
}

func TestAReleaseWhoseAnswerIsLostIsOver(t *testing.T) {
	c, _, now := ownerBench(t)
	s := c.shares.all["api.0"]
	c.release(s, now)
	p := putFor(t, c, whyRelease)
	applied := Record{Exists: true, Value: p.value, Revision: s.revision + 1, Stored: originWall}
	c.Handle(Written{p, 0}, now)
	c.Handle(Watched{TablePartitions, "api.0", applied}, now)
	c.Handle(Found{c.out.reads[0], applied}, now)
	if s.part != nil || s.state != shareIdle {
		t.Errorf("state %d: it waits for the release, which has been applied", s.state)
	}
}

// Drainers that join one by one move each partition once, after the set of drainers is stable.
func TestPartitionsMoveWhenTheDrainersHaveBeenTheSameForAWhile(t *testing.T) {
	p := leaky("api", "10/s")
	p.Partitions = 8
	c := coreBench(t, p)
	now := c.run(origin, 4*second, nil)
	heir(c, now)
	joined := now
	moved := time.Duration(0)
	c.run(now, second, func(at pace.Instant, written []Put) {
		for _, w := range written {
			if w.Why == whyRelease && moved == 0 {
				moved = at.Since(joined)
			}
		}
		heir(c, at)
	})
	if moved < steadyFor || moved > steadyFor+3*tick {
		t.Errorf("the first partition moved after %v, want %v", moved, steadyFor)
	}
}

func TestBacklogsAreReopenedAfterAReconnect(t *testing.T) {
	c, part, now := ownerBench(t)
	former := part.Epoch
	c.Handle(Connected{}, now)
	c.Handle(Connected{Up: true}, now)
	c.run(now, second, nil)
	if part.Epoch == former || !part.Live() {
		t.Errorf("epoch %d, live: %v, want a later one and the partition live", part.Epoch,
			part.Live())
	}
}

// Before the records are read, the report would be lost.
func TestAnOutcomeIsNotTakenBeforeTheInheritanceIsKnown(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	now := origin
	for ; len(c.out.opens) == 0; now = now.Add(20 * ms) {
		c.advance(now)
		answerPuts(c, now)
	}
	o := c.out.opens[0]
	told := record.Outcome{Seq: 1, Kind: record.OutcomeDone, Holder: "old"}
	if c.reported("api", 0, told, now) {
		t.Error("it was taken before the partition was opened")
	}
	c.Handle(Opened{Opening: o}, now)
	if !c.reported("api", 0, told, now) {
		t.Error("it was not taken though the partition is ours")
	}
}
