package valve

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A recreated stream counts from 1 again, while jobs of the former one may still run.

// restarted is a valve whose job 1 of a deleted stream runs, while the new stream has a job 1 too.
func restarted(t *testing.T) (b *valveBench, runs Run) {
	b = newValveBench(t, leaky("api", "10/s"))
	b.p.created = originWall
	b.arrive("a")
	runs = b.start()[0]
	b.p.restart()
	b.p.created = originWall.Add(time.Minute)
	b.deliver(1, "a")
	return b, runs
}

func TestAPauseThatATargetAsksForHoldsInTheNextStream(t *testing.T) {
	b, runs := restarted(t)
	b.end(runs, record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: 30 * second})
	if starts := b.until(time.Minute, b.done); len(starts) != 1 || starts[0] < 30*second {
		t.Errorf("starts at %v, want one after 30 s", starts)
	}
}

func TestAnOutcomeOfAFormerStreamIsIgnored(t *testing.T) {
	b, former := restarted(t)
	b.at(100 * ms)
	next := b.start()[0]
	h := b.p.Surrender(b.now)
	if b.end(former, record.Outcome{Kind: record.OutcomeDone}); len(b.out.Reports) > 0 {
		t.Errorf("the next owner is told %+v", b.out.Reports)
	}
	if b.end(next, record.Outcome{Kind: record.OutcomeDone}); len(b.out.Reports) == 0 {
		t.Fatal("the next owner is not told of what it waits for")
	}
	o := b.out.Reports[len(b.out.Reports)-1].Outcome
	for _, heir := range []struct {
		created time.Time
		acks    int
	}{{b.p.created, 1}, {b.p.created.Add(time.Minute), 0}} {
		n := unownedValve(t,
			leaky("api", "10/s")).inheritFrom(inheritance.State{Owner: "me", Handover: h})
		n.p.created = heir.created
		n.deliver(1, "a")
		if n.p.Reported(o, n.now); len(n.out.Acks) != heir.acks {
			t.Errorf("a stream made %v later: %d acknowledged, want %d",
				heir.created.Sub(b.p.created), len(n.out.Acks), heir.acks)
		}
	}
}

func TestTheRecordOfAnAttemptNamesItsStream(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	b.p.created = originWall
	b.arrive("a")
	b.end(b.start()[0], record.Outcome{Kind: record.OutcomeFailed})
	if s := b.out.Saves[0].Record.Stream; s != originWall.UnixNano() {
		t.Errorf("the record of an attempt names stream %d", s)
	}
}
