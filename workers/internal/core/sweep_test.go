package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// heldElsewhere is a core that has taken api.0 over, with job 3 running in a process that lives,
// while the stream goes up to a sequence.
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

func arrives(c *Core, p *partition, now pace.Instant, seq uint64, key job.Key) {
	j := job.Arrived{Seq: seq, Key: key, Cost: 1, Stored: originWall}
	c.Handle(Arrived{p.Partition, p.Epoch, []job.Arrived{j}}, now)
}

// startsWithin lets a core act, while the holder renews its lease, and tells what it starts.
func startsWithin(c *Core, now pace.Instant, length time.Duration) (started []uint64) {
	revision := uint64(100_000)
	for end := now.Add(length); now < end; now = now.Add(100 * ms) {
		c.advance(now)
		for _, r := range c.out.starts {
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

func TestUntilTheSweepIsOverNothingInheritedIsForgotten(t *testing.T) {
	c, part, now := heldElsewhere(t, 10)
	arrives(c, part, now, 2, "b")
	if !part.sweeping {
		t.Fatal("the sweep is over after one arrival")
	}
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
	c.Handle(Swept{part.Partition, part.Epoch}, now)
	if started := startsWithin(c, now, second); len(started) != 1 {
		t.Errorf("started %v, want job 4", started)
	}
	if len(part.inherited) > 0 {
		t.Errorf("still waits for %d jobs", len(part.inherited))
	}
}

// Whatever keeps a sweep from its end, it does not hold buckets up for longer than the runs may
// last.
func TestRunsThatDoNotArriveHoldNothingUpForEver(t *testing.T) {
	c, part, now := heldElsewhere(t, 10)
	arrives(c, part, now, 4, "b")
	attempt := time.Duration(c.valves["api"].Policy.Timeout)
	if started := startsWithin(c, now, attempt+2*second); len(started) != 1 {
		t.Fatalf("started %v, want job 4", started)
	}
	arrives(c, part, now, 3, "a") // late, and it runs all the same
	if j := part.jobs[3]; j.stage != stageRunning || j.holder != "holder" || part.unseen != 0 {
		t.Errorf("stage %d, holder %q, unseen %d", j.stage, j.holder, part.unseen)
	}
}

// Who told the stream's last sequence may have been out of date: what lies beyond it is not gone.
func TestASweepSaysNothingOfWhatLiesBeyondIt(t *testing.T) {
	c, part, now := heldElsewhere(t, 2)
	c.Handle(Swept{part.Partition, part.Epoch}, now)
	arrives(c, part, now, 3, "a")
	if started := startsWithin(c, now, second); len(started) > 0 {
		t.Errorf("started %v, which runs in a process that lives", started)
	}
}

// An owner whose backlog broke knows what it had finished, until all has come that was stored.
func TestAFinishedJobThatComesLateDoesNotRunAgain(t *testing.T) {
	b := newValveBench(t, leaky("api", "1000/s"))
	b.arrive("a")
	b.end(b.start()[0], Outcome{Kind: OutcomeDone})
	b.at(10 * ms)
	b.v.reopen(b.p, 2)
	b.p.last = 1
	b.at(500 * ms)
	b.v.confirmed(b.p, 1, b.now)
	b.at(2 * second)
	b.deliver(1, "a") // by a consumer that lags
	if runs := b.start(); len(runs) > 0 || len(b.out.acks) != 2 {
		t.Errorf("started %s, acknowledged %v", b.seqs(runs), b.out.acks)
	}
}

func TestASweepKeepsTheAttemptsOfWhatIsStillToCome(t *testing.T) {
	p := leaky("api", "1000/s")
	minute := policy.Duration(time.Minute)
	p.Retry = policy.Retry{MaxAttempts: 3, Backoff: minute, MaxBackoff: minute}
	b := newValveBench(t, p)
	j := b.arrive("a")
	b.end(b.start()[0], Outcome{Kind: OutcomeFailed, Error: "500"})
	b.v.saved(j, b.now)
	b.at(10 * ms)
	b.v.reopen(b.p, 2)
	b.at(second)
	b.deliver(1, "a")
	b.p.last = 1
	b.v.swept(b.p, b.now)
	if runs := b.start(); len(runs) > 0 || len(b.out.forgets) > 0 || j.Attempts != 1 {
		t.Errorf("started %s, forgot %v, %d attempts", b.seqs(runs), b.out.forgets, j.Attempts)
	}
}

func TestOnlyWhatWasAddedSinceIsToldAsAccepted(t *testing.T) {
	c, part, now := heldElsewhere(t, 5)
	for seq := uint64(4); seq <= 6; seq++ {
		arrives(c, part, now, seq, "a")
	}
	if len(c.out.accepted) != 1 || c.out.accepted[0].Seq != 6 {
		t.Errorf("told of %d jobs", len(c.out.accepted))
	}
}
