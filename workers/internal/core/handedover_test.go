package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// timedOut is a valve that has given up waiting for job 1, which runs in another process; the
// bucket's rate keeps it waiting for half a minute more.
func timedOut(t *testing.T) *valveBench {
	t.Helper()
	p := leaky("api", "1/m")
	p.Timeout = policy.Duration(30 * second)
	b := unownedValve(t, p).inheritFrom(inheritance{owner: "old", handover: record.Handover{
		Running: []record.Run{{Seq: 1, Holder: "old"}}, Rate: "1/m",
		Clocks: []record.Clock{{Key: "a", Due: 60_000_000, Tat: 60_000_000}},
	}})
	j := b.deliver(1, "a")
	b.until(31*second, b.done)
	if j.stage != stageWaiting {
		t.Fatalf("stage %d, want it to wait", j.stage)
	}
	return b
}

// NATS may be away for longer than a job's time-out. Who ran it reports all the same, and what it
// says is true.
func TestAnOutcomeThatComesAfterTheTimeoutIsHeard(t *testing.T) {
	for name, c := range map[string]struct {
		said   Outcome
		starts int // within ten minutes
		acked  int
		buried string
	}{
		"done": {said: Outcome{Kind: OutcomeDone}, acked: 1},
		"permanent": {said: Outcome{Kind: OutcomePermanent, Reason: job.ReasonPermanent,
			Attempts: 1}, buried: "[permanent]"},
		"failed, for the last": {said: Outcome{Kind: OutcomeFailed, Attempts: 100},
			buried: "[attempts]"},
		"of another process": {said: Outcome{Kind: OutcomeDone, Holder: "another"}, starts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := timedOut(t)
			if c.said.Seq = 1; c.said.Holder == "" {
				c.said.Holder = "old"
			}
			b.v.reported(b.p, c.said, b.now)
			acked, buried := len(b.out.acks), b.reasons()
			if buried == "[]" {
				buried = ""
			}
			starts := len(b.until(10*time.Minute, func(Run) {}))
			if starts != c.starts || acked != c.acked || buried != c.buried {
				t.Errorf("%d starts, %d acknowledged, buried for %q; want %d, %d, %q", starts,
					acked, buried, c.starts, c.acked, c.buried)
			}
			if n := b.p.buckets["a"].running; n != c.starts {
				t.Errorf("%d hold concurrency", n)
			}
		})
	}
}

// A run that was given up and says that it goes on is running again, and nobody starts it beside
// that.
func TestProgressAfterTheTimeoutKeepsTheJobFromStarting(t *testing.T) {
	b := timedOut(t)
	goesOn := Outcome{Seq: 1, Kind: outcomeProgress, Holder: "old"}
	for end := 31 * second; end < 5*time.Minute; end += 20 * second {
		if b.v.reported(b.p, goesOn, b.now); len(b.until(end, b.done)) > 0 {
			t.Fatalf("it started at %v while it runs elsewhere", b.now.Since(origin))
		}
	}
	b.v.reported(b.p, Outcome{Seq: 1, Kind: OutcomeDone, Holder: "old"}, b.now)
	if b.v.confirmed(b.p, 1, b.now); len(b.p.jobs) > 0 {
		t.Error("it is still held")
	}
}

// Once the job has started anew, the word on the first run is none on the second.
func TestAnOutcomeThatComesAfterTheNextStartIsNotHeard(t *testing.T) {
	b := timedOut(t)
	b.at(61 * second)
	again := b.p.jobs[b.start()[0].Seq]
	b.v.reported(b.p, Outcome{Seq: 1, Kind: OutcomeFailed, Holder: "old", Attempts: 1}, b.now)
	if again.stage != stageRunning {
		t.Errorf("stage %d, want it to run", again.stage)
	}
}

// A drainer that leaves without an heir lets its jobs finish, for minutes. If it crashes meanwhile,
// the next one must know what ran, and what the targets asked for.
func TestAPartitionThatStartsNoMoreIsStillCheckpointed(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	now := c.run(origin, 2*time.Second, nil)
	part := c.shares["api.0"].part
	c.Handle(Arrived{part.Partition, part.Epoch, []job.Arrived{
		{Seq: 1, Key: "a", Cost: 1, Stored: originWall},
		{Seq: 2, Key: "b", Cost: 1, Stored: originWall},
	}}, now)
	c.Decide(now) // and its checkpoint is still to come
	runs := c.out.starts
	if len(runs) != 2 {
		t.Fatalf("%d started", len(runs))
	}
	for i := range runs {
		runs[i].Decide(runs[i].atOnce, nil)
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
	throttled := Outcome{Seq: 1, Kind: OutcomeThrottled, RetryAfter: 10 * time.Minute}
	c.Handle(runs[0].Finished(throttled), now)
	c.run(now, 2*time.Second, each)
	if len(noted.Running) != 1 || len(noted.Clocks) != 1 || noted.Clocks[0].Cool == 0 {
		t.Errorf("one runs, and one cools down; a checkpoint has %v and %v", noted.Running,
			noted.Clocks)
	}
}

// A process that was frozen for longer than its lease answers first, before it knows that the
// partition has another owner.
func TestAThawedProcessHearsNoOutcomes(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	left := record.Owner{V: record.Version, Owner: "before", Released: true,
		Handover: record.Handover{Running: []record.Run{{Seq: 3, Holder: "holder"}}}}
	ownedBefore(c, left, 8)
	_, now := takeOver(c, Opened{Last: 100})
	done := Outcome{Seq: 3, Kind: OutcomeDone, Holder: "holder"}
	if c.reported("api", 0, done, now.Add(2*simulatedLease)) {
		t.Error("it said that it heard, twice a lease after its last renewal")
	}
	if !c.reported("api", 0, done, now) {
		t.Error("it does not hear while its lease lasts")
	}
}
