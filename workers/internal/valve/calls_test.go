package valve

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// A policy for calls alone must not be reported as one without workers.
func TestNoWorkerIsSoughtForCalls(t *testing.T) {
	c, now := newCalling(t, leaky("api", "10/s").WithDefaults()), origin
	c.Crew.Local = false
	offers := func() (n int) {
		for range 40 {
			c.Advance(now, pace.Never)
			n += len(c.out.Offers)
			for _, run := range c.out.Starts {
				run.Decide(atOnce(run), run.Call.Tell)
			}
			c.out.Reset()
			now += 5 * milli
		}
		return n
	}
	for i := range 5 {
		c.ask(fmt.Sprint(i), now)
	}
	if n := offers(); n > 0 {
		t.Errorf("%d offers while only calls wait", n)
	}
	c.publish("a", 1, now)
	if n := offers(); n == 0 {
		t.Error("no offer for a job behind calls")
	}
}

func TestACallEndsAfterItsPartitionStopped(t *testing.T) {
	now := origin
	c := newCalling(t, leaky("api", "10/s").WithDefaults())
	c.ask("x", now)
	c.Advance(now, pace.Never)
	run := c.out.Starts[0]
	run.Decide(func() (pace.Instant, pace.Instant) { return pace.Never, now }, run.Call.Tell)
	c.part.Quiesce()
	c.Finished(run.Number, run.Call.Outcome(true), now)
	if b := c.part.buckets["a"]; b != nil && (b.Running != 0 || b.callers.Running != 0) {
		t.Errorf("%d jobs and %d calls still run", b.Running, b.callers.Running)
	}
}

func TestACallerSpeaksBeforeItsFinalCheckIsKnown(t *testing.T) {
	for _, status := range []string{job.SettledDone, job.SettledReturned} {
		for _, passes := range []bool{true, false} {
			p := leaky("api", "10/s")
			p.Concurrency = 3
			c, now := newCalling(t, p), callsBegin
			c.ask("x", now)
			c.Advance(now, pace.Never)
			run := c.out.Starts[0]
			gate := func() (fence, at pace.Instant) { return now, now }
			if passes {
				gate = atOnce(run)
			}
			_, passed := run.Decide(gate, run.Call.Tell)
			if said := c.settle("x", status, now); passed != passes || said != job.TurnSettled {
				t.Fatal(passed, said)
			}
			c.Finished(run.Number, run.Call.Outcome(passed), now)
			b := c.part.buckets["a"]
			if status != job.SettledDone && c.texts.memory.calls != 0 || b.Running != 0 ||
				b.callers.Running != 0 {
				t.Errorf("%s, passed %v: %d calls, %d run, %d of them calls", status, passed,
					c.texts.memory.calls, b.Running, b.callers.Running)
			}
		}
	}
}

func TestAWaitingCallerThatAsksNoMoreHasGone(t *testing.T) {
	p := leaky("api", "10/s")
	p.Concurrency = 1
	c, now := newCalling(t, p), callsBegin
	c.ask("runs", now)
	c.ask("stays", now)
	c.ask("goes", now)
	c.at(now, "stays waiting 100, goes waiting 200, runs go")
	for ; now <= callsBegin.Add(callSilence); now += 2000 * milli {
		c.progress("runs", now)
		c.ask("stays", now)
		c.Advance(now, pace.Never)
	}
	if n := c.part.buckets["a"].callers.Len(); n != 1 {
		t.Errorf("%d calls wait", n)
	}
	c.heard = nil
	c.Change(c.Policy, true, now)
	c.ask("stays", now)
	c.at(now, "stays no paused")
	if n := c.part.buckets["a"].callers.Len(); n != 0 || c.texts.memory.calls != 1 {
		t.Errorf("%d calls wait, of %d", n, c.texts.memory.calls)
	}
}

const callsBegin = 1000 * milli

func TestACallIsOfferedItsTurnAndClaimsIt(t *testing.T) {
	c, now := newCalling(t, leaky("api", "10/s")), callsBegin
	c.ask("x", now)
	c.at(now, "x go")
	c.ask("y", now)
	c.ask("z", now)
	c.at(now, "y waiting 100, z waiting 200")
	if at := c.Wake(true); at != now+80*milli {
		t.Fatalf("wakes at %v", time.Duration(at))
	}
	c.at(now+80*milli, "y offer")
	c.ask("y", now+81*milli)
	c.at(now+99*milli, "")
	c.at(now+100*milli, "y go")
	c.at(now+180*milli, "z offer")
	c.at(now+200*milli, "")
	c.publish("a", 1, now+210*milli)
	c.at(now+229*milli, "")
	c.at(now+230*milli, "job 1")
	c.at(now+500*milli, "")
	if len(c.part.calls.All()) > 0 || c.texts.memory.calls != 0 {
		t.Errorf("%d calls are left, %d counted", len(c.part.calls.All()), c.texts.memory.calls)
	}
}

func TestAWithdrawnCallLeavesItsTurnToTheNext(t *testing.T) {
	c, now := newCalling(t, leaky("api", "10/s")), callsBegin
	for _, id := range []string{"w", "x", "y"} {
		c.ask(id, now)
	}
	c.at(now, "x waiting 100, y waiting 200, w go")
	c.settle("x", job.SettledReturned, now+milli)
	c.askOf("old", job.Claim{AgeMS: 500}, now+2*milli)
	c.at(now+80*milli, "old waiting 98, old offer")
	c.ask("old", now+81*milli)
	c.at(now+100*milli, "old go")
	c.at(now+180*milli, "y offer")
}

// Every second start is left to jobs once the first job has waited a step per level of priority
// below the highest.
func TestCallsGoBeforeJobsAndLeaveThemEveryTenthStart(t *testing.T) {
	for name, x := range map[string]struct {
		step, at time.Duration
		perJob   int
	}{
		"without a step": {0, time.Hour, 9},
		"still young":    {second, 9 * second, 9},
		"overdue":        {second, 9*second + 1, 1},
	} {
		p := leaky("api", "10/s")
		p.Outflow, p.PriorityStep = algorithms.Rate{}, policy.Duration(x.step)
		c, now := newCalling(t, p), origin.Add(x.at)
		c.paused, c.base.paused = true, true
		c.publish("a", 3, now)
		c.paused, c.base.paused = false, false
		var want []string
		for i := range 4 * x.perJob {
			c.ask(fmt.Sprint("c", i), now)
			want = append(want, fmt.Sprintf("c%d go", i))
			if (i+1)%x.perJob == 0 && i < 3*x.perJob {
				want = append(want, fmt.Sprint("job ", (i+1)/x.perJob))
			}
		}
		t.Log(name)
		c.at(now, strings.Join(want, ", "))

		c = newCalling(t, p)
		c.paused, c.base.paused, c.texts.memory.most = true, true, 1
		c.publish("a", 3, now)
		b := c.part.buckets["a"]
		late := b.queue.Overdue(job.MaxPriority, c.wall.at(now).UnixNano())
		if b.queue.Deep() != 3 || late != (x.perJob == 1) {
			t.Errorf("%s: of %d deep jobs the first is overdue: %v", name, b.queue.Deep(), late)
		}
	}
}

func TestALeaseHoldsAPlaceUntilItIsSettledOrLost(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Concurrency, p.Timeout = 1, policy.Duration(3*time.Second)
	c, now := newCalling(t, p), callsBegin
	c.ask("x", now)
	c.ask("y", now)
	c.at(now, "x go")
	c.at(now+2999*milli, "")
	if said := c.progress("x", now+2999*milli); said != job.TurnSettled {
		t.Error(said)
	}
	c.at(now+5998*milli, "")
	c.at(now+5999*milli, "y offer")
	c.ask("y", now+6000*milli)
	c.at(now+6000*milli, "y go")
	if said := c.settle("x", job.SettledDone, now+6000*milli); said != job.TurnSettled {
		t.Error(said)
	}
	c.ask("z", now+6001*milli)
	c.at(now+6001*milli, "z waiting")
	c.settle("y", job.SettledDone, now+6002*milli)
	c.at(now+6002*milli, "z offer")

	heir := newCalling(t, p)
	if said := heir.progress("y", now); said != job.TurnSettled {
		t.Error(said)
	}
	heir.ask("z", now)
	heir.at(now, "z waiting")
}

func TestALostLeaseKeepsItsCharge(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Timeout = policy.Duration(time.Second)
	p.Limits = []policy.Limit{{Name: "hour", Rule: policy.Rule{Algorithm: policy.SlidingLog,
		Limit: 1, Window: policy.Duration(time.Hour)}}}
	for name, x := range map[string]struct {
		play func(c *calling, now pace.Instant)
		back bool
	}{
		"lost": {func(c *calling, now pace.Instant) { c.at(now+2000*milli, "") }, false},
		"settled": {func(c *calling, now pace.Instant) {
			c.settle("x", job.SettledDone, now)
		}, false},
		"returned": {func(c *calling, now pace.Instant) {
			c.settle("x", job.SettledReturned, now)
		}, true},
		"old news": {func(c *calling, now pace.Instant) {
			c.n -= 3
			c.ask("x", now)
			c.settle("x", job.SettledReturned, now)
			c.n += 3
		}, false},
	} {
		c, now := newCalling(t, p), callsBegin
		begin(c.part)
		c.part.Checkpoints.Store()
		c.NotedFirst(c.Valve, now)
		c.n = 2
		c.ask("x", now)
		c.at(now, "x go")
		x.play(c, now+milli)
		c.heard = nil
		begin(c.part)
		c.part.Checkpoints.Store()
		now += 5000 * milli
		c.ask("y", now)
		c.Advance(now, pace.Never)
		if back := len(c.out.Starts) > 0; back != x.back {
			t.Errorf("%s: another may start: %v, heard %q", name, back, c.heard)
		}
	}
}

func TestAStartThatCameTooLateIsGivenBack(t *testing.T) {
	for name, x := range map[string]struct {
		after time.Duration
		tell  string
		want  string
	}{
		"asked again": {60 * time.Millisecond, "", "x waiting 30, y waiting 130"},
		"returned":    {60 * time.Millisecond, job.SettledReturned, "x waiting 30, y waiting 130"},
		"too late":    {300 * time.Millisecond, "", "y waiting 100, x go"},
	} {
		t.Run(name, func(t *testing.T) {
			c, now := newCalling(t, leaky("api", "10/s")), callsBegin
			c.ask("x", now)
			c.at(now, "x go")
			now = now.Add(x.after)
			if x.tell != "" {
				c.settle("x", x.tell, now)
			}
			c.at(now, "")
			c.ask("x", now)
			c.Advance(now, pace.Never)
			c.ask("y", now)
			c.at(now, x.want)
		})
	}
}

// Only failures of calls with a lease count, because others' successes are unknown. While it is
// open, calls other than the probe are refused.
func TestCallsOpenTheBreaker(t *testing.T) {
	c, now := newCalling(t, leaky("api", "100/s").WithDefaults()), callsBegin
	fail := func(status string, ids ...string) {
		t.Helper()
		for _, id := range ids {
			c.ask(id, now)
			c.at(now, id+" go")
			now += 10 * milli
		}
		for _, id := range ids {
			c.settle(id, status, now)
		}
	}
	down := func(want bool) {
		t.Helper()
		if open, _ := c.View(now).Down(c.part, "a"); open != want {
			t.Errorf("down: %v", open)
		}
	}
	fail(job.SettledUnavailable, "1", "2", "3", "4", "5", "6")
	down(false)
	fail(job.SettledUnreached, "a", "b", "c")
	fail(job.SettledFailed, "d")
	fail(job.SettledUnavailable, "e")
	fail(job.SettledUnavailable, "f", "g", "h", "i")
	down(false)
	fail(job.SettledUnavailable, "j")
	down(true)
	c.ask("probe", now)
	c.ask("x", now)
	c.at(now, "probe waiting 500, x no down, again in 1000")
	c.ask("probe", now+100*milli)
	at := c.part.buckets["a"].Target.At
	c.at(at-20*milli, "probe waiting down, probe offer")
	c.ask("probe", at)
	c.at(at, "probe go")
	c.ask("y", at)
	c.at(at, "y no down, again in 1000")
	c.settle("probe", job.SettledDone, at)
	down(false)
	c.ask("z", at)
	c.at(at.Add(10*time.Millisecond), "z go")
}

func TestACallGainsNothingByImpossibleNumbers(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Capacity = 100
	p.Limits = []policy.Limit{{Name: "hour", Cost: "tokens", Rule: policy.Rule{
		Algorithm: policy.SlidingLog, Limit: 1, Window: policy.Duration(time.Hour)}}}
	c, now := newCalling(t, p), callsBegin
	begin(c.part)
	c.part.Checkpoints.Store()
	c.NotedFirst(c.Valve, now)
	for _, q := range []job.Claim{{Cost: 101}, {Cost: 1 << 62},
		{Costs: map[string]int64{"tokens": -10}}, {Costs: map[string]int64{"other": 1 << 62}}} {
		c.askOf("x", q, now)
		c.at(now, "x error")
	}
	c.ask("x", now)
	c.at(now, "x go")
	c.tell("x", job.OpSettle,
		job.Settlement{Status: job.SettledDone, Used: map[string]int64{"tokens": -90}}, now)
	begin(c.part)
	c.part.Checkpoints.Store()
	now += 5000 * milli
	c.ask("y", now)
	c.Advance(now, pace.Never)
	if len(c.out.Starts) > 0 {
		t.Error("another call got tokens that were used")
	}
}

func TestCallsTakeNoWorkers(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Workers, p.Concurrency = 4, 100
	c, now := newCalling(t, p), callsBegin
	for i := range 20 {
		c.ask(fmt.Sprint("x", i), now)
		c.at(now, fmt.Sprintf("x%d go", i))
		now += 10 * milli
	}
	c.publish("a", 1, now)
	c.at(now, "job 1")
}

func TestRefusalsOfCalls(t *testing.T) {
	p := leaky("api", "1/s")
	p.Capacity = 3
	c, now := newCalling(t, p), callsBegin
	c.ask("x", now)
	c.at(now, "x go")
	for _, id := range []string{"a", "b", "c", "d"} {
		c.ask(id, now)
	}
	c.at(now, "a waiting 1000, b waiting 2000, c waiting 3000, d no full")
	c.settle("a", job.SettledReturned, now)
	c.askOf("e", job.Claim{Cost: 3, Priority: 1}, now)
	c.settle("b", job.SettledReturned, now)
	c.askOf("f", job.Claim{WaitMS: 100}, now)
	c.at(now, "e waiting 1000, f no late")
	c.askOf("g", job.Claim{Partitions: 7, WaitMS: 100}, now)
	c.at(now, "g moved")
	c.Change(c.Policy, true, now)
	c.settle("c", job.SettledReturned, now)
	c.ask("h", now)
	c.at(now, "h no paused")
	c.part.Surrender(now)
	c.at(now, "e moved")
	if at := c.Wake(true); at != pace.Never {
		t.Errorf("looks for callers that it lost at %v", time.Duration(at))
	}
}

func TestCallsAreSeenBesideJobs(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Concurrency = 1
	c, now := newCalling(t, p), callsBegin
	c.ask("x", now)
	c.at(now, "x go")
	c.ask("y", now)
	c.ask("z", now)
	c.at(now, "y waiting, z waiting")
	seen := func(calls, running int, jobs string) {
		t.Helper()
		s := c.part.v.View(now).bucketState(c.part, "a")
		if s.Calls != calls || s.CallsRunning != running || s.Running != running ||
			fmt.Sprint(s.Depth, s.Waiting) != jobs {
			t.Errorf("the bucket is %+v, want %d, %d and %s", s, calls, running, jobs)
		}
		l := c.part.v.View(now).listBuckets(c.part, job.ByDepth, 0, 10)
		if !l.find() || l.total != min(1, calls+running+s.Depth) {
			t.Errorf("%d buckets listed", l.total)
		}
	}
	seen(2, 1, "0 0")
	c.publish("a", 2, now)
	seen(2, 1, "2 2")
	if j := c.part.v.View(now).jobState(c.part, 2); j.Calls != 2 || *j.Position != 1 {
		t.Errorf("the job is %+v", j)
	}
	c.settle("y", job.SettledReturned, now)
	c.settle("z", job.SettledReturned, now)
	c.settle("x", job.SettledDone, now)
	c.at(now+milli, "job 1")
	seen(0, 0, "2 1")
}
