package valve

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// timedOut is a valve that no longer waits for job 1, which runs elsewhere; the rate delays it by
// half a minute more.
func timedOut(t *testing.T) *valveBench {
	t.Helper()
	p := leaky("api", "1/m")
	p.Timeout = policy.Duration(30 * second)
	b := unownedValve(t, p).inheritFrom(inheritance.State{Owner: "old", Handover: record.Handover{
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

// NATS may be unavailable for longer than a job's timeout. A late report still counts.
func TestAnOutcomeThatComesAfterTheTimeoutIsHeard(t *testing.T) {
	for name, c := range map[string]struct {
		said   record.Outcome
		starts int
		acked  int
		buried string
	}{
		"done": {said: record.Outcome{Kind: record.OutcomeDone}, acked: 1},
		"permanent": {said: record.Outcome{Kind: record.OutcomePermanent,
			Reason:   queue.ReasonPermanent,
			Attempts: 1}, buried: "[permanent]"},
		"failed, for the last": {said: record.Outcome{Kind: record.OutcomeFailed, Attempts: 100},
			buried: "[attempts]"},
		"of another process": {said: record.Outcome{Kind: record.OutcomeDone, Holder: "another"},
			starts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := timedOut(t)
			if c.said.Seq = 1; c.said.Holder == "" {
				c.said.Holder = "old"
			}
			b.p.Reported(c.said, b.now)
			acked, buried := len(b.out.Acks), b.reasons()
			if buried == "[]" {
				buried = ""
			}
			starts := len(b.until(10*time.Minute, func(Run) {}))
			if starts != c.starts || acked != c.acked || buried != c.buried {
				t.Errorf("%d starts, %d acknowledged, buried for %q; want %d, %d, %q", starts,
					acked, buried, c.starts, c.acked, c.buried)
			}
			if n := b.p.buckets["a"].Running; n != c.starts {
				t.Errorf("%d hold concurrency", n)
			}
		})
	}
}

func TestProgressAfterTheTimeoutKeepsTheJobFromStarting(t *testing.T) {
	b := timedOut(t)
	goesOn := record.Outcome{Seq: 1, Kind: record.OutcomeProgress, Holder: "old"}
	for end := 31 * second; end < 5*time.Minute; end += 20 * second {
		if b.p.Reported(goesOn, b.now); len(b.until(end, b.done)) > 0 {
			t.Fatalf("it started at %v while it runs elsewhere", b.now.Since(origin))
		}
	}
	b.p.Reported(record.Outcome{Seq: 1, Kind: record.OutcomeDone, Holder: "old"}, b.now)
	if b.p.Confirmed(1, b.now); len(b.p.jobs) > 0 {
		t.Error("it is still held")
	}
}

func TestAnOutcomeThatComesAfterTheNextStartIsNotHeard(t *testing.T) {
	b := timedOut(t)
	b.at(61 * second)
	again := b.p.jobs[b.start()[0].Seq]
	b.p.Reported(record.Outcome{Seq: 1, Kind: record.OutcomeFailed, Holder: "old",
		Attempts: 1}, b.now)
	if again.stage != stageRunning {
		t.Errorf("stage %d, want it to run", again.stage)
	}
}
