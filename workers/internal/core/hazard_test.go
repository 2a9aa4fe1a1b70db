package core

import (
	"testing"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// What the hazards of the simulation brought to light, each in a few lines.

// A second delivery of a job can be on its way to the loop while the first one's acknowledgement is
// confirmed: the two come by different channels.
func TestADeliveryThatComesTwiceIsNoNewJob(t *testing.T) {
	b := newValveBench(t, leaky("api", "1000/s"))
	b.arrive("a")
	b.arrive("a")
	r := b.start()[0]
	b.end(r, Outcome{Kind: OutcomeDone})
	b.v.confirmed(b.p, r.Seq, b.now)
	b.deliver(r.Seq, "a")
	if j := b.p.jobs[r.Seq]; j == nil || j.stage != stageAcking {
		t.Errorf("a job that is done waits again: %+v", j)
	}
	b.now = b.now.Add(2 * staleFor)
	if j := b.deliver(b.seq, "a"); j.stage != stageWaiting {
		t.Errorf("one that waits came twice and is in stage %v", j.stage)
	}
}

// A drainer that may not own a policy any more still lends the workers that it has for it.
func TestAChangeOfWorkersReachesAPolicyThatIsNotOwnedAnyMore(t *testing.T) {
	p := leaky("api", "1000/s").WithDefaults()
	p.Workers = 4
	c := coreBench(t, p)
	for range 2 {
		if _, ok := c.Reserve("api"); !ok {
			t.Fatal("four workers, and none to lend")
		}
	}
	p.Workers = 2
	c.Handle(Configured{[]QueuePolicy{{Policy: p, Local: true}}}, origin)
	if _, ok := c.Reserve("api"); ok {
		t.Error("a third worker is lent of two")
	}
}

// lean makes a delivery one without a body, which is read before the job starts.
func lean(a *job.Arrived) { a.Size, a.Body, a.Lean = 1<<20, nil, true }

// Somebody removed the job whose body is about to be read. Those behind it wait for nothing else.
func TestThoseBehindAJobThatIsGoneAreReadNext(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/10s"))
	b.arrive("a", lean)
	b.v.advance(b.now, true)
	first := b.out.fetches
	b.out.fetches = nil
	next := b.arrive("a", lean)
	b.v.loaded(b.p.jobs[first[0].Seq], nil, true, b.now)
	b.v.advance(b.now, true)
	if len(b.out.fetches) != 1 || b.out.fetches[0] != next.ref() {
		t.Errorf("reads %d bodies, want that of job %d", len(b.out.fetches), next.Seq)
	}
}

// A job that was removed from the stream is missed when its backlog was opened anew. The next one's
// body is not there yet.
func TestAJobBehindOneThatVanishedWaitsForItsBody(t *testing.T) {
	b := newValveBench(t, leaky("api", "1000/s"))
	gone := b.arrive("a")
	b.arrive("a", lean)
	b.v.reopen(b.p, 2)
	b.p.last = gone.Seq + 1
	b.deliver(b.p.last, "a", lean)
	b.v.swept(b.p, b.now)
	if runs := b.start(); len(runs) > 0 {
		t.Errorf("job %d starts without its body", runs[0].Seq)
	}
	if len(b.out.fetches) != 1 {
		t.Errorf("reads %d bodies, want one", len(b.out.fetches))
	}
}

// A policy that this drainer may not own any more, while its claim is under way: the claim is
// applied, so the partition must be given back, or nobody else may ever take it.
func TestAClaimAnsweredWhenItsPolicyMayNotBeOwnedAnyMoreIsGivenBack(t *testing.T) {
	p := leaky("api", "1/s").WithDefaults()
	c := coreBench(t, p)
	now := origin
	for ; len(c.out.puts) == 0 || c.out.puts[0].Why != whyTake; now = now.Add(20 * ms) {
		answerPuts(c, now)
		c.advance(now)
	}
	c.Handle(Configured{[]QueuePolicy{{Policy: p, Local: true}}}, now)
	released := false
	c.run(now, 2*second, func(_ pace.Instant, written []Put) {
		for _, w := range written {
			var r record.Owner
			released = released || w.Why == whyRelease && record.Decode(w.value, &r) == nil &&
				r.Released
		}
	})
	if !released {
		t.Error("it keeps a partition that it does nothing with")
	}
}

// A start of cost 2 was noted, its owner crashed, and nobody can tell how long ago: a leader's
// clock was wrong. Then the bucket may have started another job meanwhile, but the wait for the one
// that is known is no shorter for that.
func TestInDoubtTheLongerWaitHoldsAfterACrash(t *testing.T) {
	p := leaky("api", "1/5s")
	b := unownedValve(t, p)
	b.own()
	b.v.inherit(b.p, inheritance{
		crashed: true, owner: "gone", elapsed: 4 * second, age: 20 * second,
		handover: record.Handover{Rate: "1/5s",
			Clocks: []record.Clock{{Key: "a", Due: record.Micros(10 * second),
				Tat: record.Micros(10 * second)}}},
	}, b.now)
	if due := b.p.buckets["a"].clock.Due.Since(b.now); due != 6*second {
		t.Errorf("its next start is due in %v, want 6s", due)
	}
}
