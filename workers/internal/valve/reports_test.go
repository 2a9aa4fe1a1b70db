package valve

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A caller repeats a report whose confirmation is lost.
func TestARepeatedReportCountsOnce(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Capacity = 1000
	p.Limits = []policy.Limit{{Name: "hour", Cost: "tokens", Rule: policy.Rule{
		Algorithm: policy.SlidingLog, Limit: 1000, Window: policy.Duration(time.Hour)}}}
	c, now := newCalling(t, p), callsBegin
	noted := func() {
		begin(c.part)
		c.part.Checkpoints.Store()
	}
	noted()
	c.NotedFirst(c.Valve, now)
	c.ask("x", now)
	c.at(now, "x go")
	for range 3 {
		c.tell("x", job.OpSettle,
			job.Settlement{Status: job.SettledDone, Used: map[string]int64{"tokens": 400}}, now)
		now += 1000 * milli
	}
	noted()
	now += 5000 * milli
	c.askOf("y", job.Claim{Costs: map[string]int64{"tokens": 300}}, now)
	c.Advance(now, pace.Never)
	if len(c.out.Starts) == 0 {
		t.Error("a repeated report took units again")
	}
}

func TestAReportRepeatedToTheNextOwnerCountsOnce(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Capacity = 1000
	p.Limits = []policy.Limit{{Name: "hour", Cost: "tokens", Rule: policy.Rule{
		Algorithm: policy.SlidingLog, Limit: 1000, Window: policy.Duration(time.Hour)}}}
	for name, x := range map[string]struct {
		crashed, ended bool
		starts         int
	}{
		"handed over": {false, true, 1}, "crashed": {true, true, 1},
		"ended since the record": {false, false, 0},
	} {
		c, now := newCalling(t, p), callsBegin
		c.begins(now)
		c.ask("x", now)
		c.at(now, "x go")
		used := job.Settlement{Status: job.SettledDone, Used: map[string]int64{"tokens": 400}}
		before := c.part.Handover(now)
		c.tell("x", job.OpSettle, used, now)
		h := c.part.Handover(now)
		if !x.ended {
			h.Ended = before.Ended
		}
		h, _ = stored(t, h, record.MostBytes)
		heir := newCalling(t, p)
		heir.part.inherit(inheritance.State{Owner: "old", Crashed: x.crashed,
			Unstarted: x.crashed, Handover: h}, now)
		heir.begins(now)
		for range 2 {
			heir.tell("x", job.OpSettle, used, now)
			if n := heir.progress("x", now); n != job.TurnGone {
				t.Errorf("%s: a report that came late is answered by %q", name, n)
			}
			now += 5000 * milli
		}
		heir.begins(now)
		heir.askOf("y", job.Claim{Costs: map[string]int64{"tokens": 300}}, now)
		if heir.Advance(now, pace.Never); len(heir.out.Starts) != x.starts {
			t.Errorf("%s: %d starts, want %d", name, len(heir.out.Starts), x.starts)
		}
	}
}

// Messages overtake each other.
func TestALateCopyOfAClaimTakesNoStart(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Concurrency = 1
	c, now := newCalling(t, p), callsBegin
	c.ask("x", now)
	c.at(now, "x go")
	c.settle("x", job.SettledDone, now)
	c.ask("x", now+10*milli)
	if said := c.progress("x", now+10*milli); said != job.TurnGone {
		t.Error(said)
	}
	c.at(now+10*milli, "x gone")
	c.ask("y", now+10*milli)
	c.at(now+10*milli, "y go")
}
