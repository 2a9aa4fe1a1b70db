package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// The stream of a policy that is deleted and comes back counts from 1 again, while jobs of the
// former one may still run.

// restarted is a valve whose job 1 runs, of a stream that was deleted, while another of its name
// has a job 1 too.
func restarted(t *testing.T) (b *valveBench, runs Run) {
	b = newValveBench(t, leaky("api", "10/s"))
	b.p.created = originWall
	b.arrive("a")
	runs = b.start()[0]
	b.v.restart(b.p, b.now)
	b.p.created = originWall.Add(time.Minute)
	b.deliver(1, "a")
	return b, runs
}

func TestAPauseThatATargetAsksForHoldsInTheNextStream(t *testing.T) {
	b, runs := restarted(t)
	b.end(runs, Outcome{Kind: OutcomeThrottled, RetryAfter: 30 * second})
	if starts := b.until(time.Minute, b.done); len(starts) != 1 || starts[0] < 30*second {
		t.Errorf("starts at %v, want one after 30 s", starts)
	}
}

// Both job 1s of this process run in it when it hands the second one over.
func TestAnOutcomeOfTheFormerStreamIsNotTakenForThatOfTheNext(t *testing.T) {
	c, part, now := ownerBench(t)
	j := job.Arrived{Seq: 1, Key: "a", Cost: 1, Stored: originWall, Body: []byte("body")}
	start := func() Run {
		c.Handle(Arrived{part.Partition, part.Epoch, []job.Arrived{j}}, now)
		for len(c.out.starts) == 0 {
			now = now.Add(100 * ms)
			c.Decide(now)
		}
		r := c.out.starts[0]
		r.Decide(r.atOnce, nil)
		c.out = actions{}
		return r
	}
	part.created = originWall
	former := start()
	v := c.valves["api"]
	v.restart(part, now)
	part.created = originWall.Add(time.Minute)
	next := start()
	h := v.surrender(part, now)
	c.Handle(former.Finished(Outcome{Seq: 1, Kind: OutcomeDone}), now)
	if len(c.out.reports) > 0 {
		t.Errorf("the next owner is told %+v", c.out.reports)
	}
	c.Handle(next.Finished(Outcome{Seq: 1, Kind: OutcomeDone}), now)
	if n := len(c.out.reports); n == 0 {
		t.Fatal("the next owner is not told of what it waits for")
	}
	o := c.out.reports[len(c.out.reports)-1].Outcome
	for _, heir := range []struct {
		created time.Time
		acks    int
	}{{part.created, 1}, {part.created.Add(time.Minute), 0}} {
		b := unownedValve(t,
			leaky("api", "10/s")).inheritFrom(inheritance{owner: "me", handover: h})
		b.p.created = heir.created
		b.deliver(1, "a")
		if b.v.reported(b.p, o, b.now); len(b.out.acks) != heir.acks {
			t.Errorf("a stream made %v later: %d acknowledged, want %d",
				heir.created.Sub(part.created), len(b.out.acks), heir.acks)
		}
	}
}
