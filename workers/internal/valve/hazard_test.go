package valve

import (
	"testing"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Cases that the simulation's hazards found.

// A redelivery may be in flight while the first delivery's acknowledgement is confirmed: they use
// different channels.
func TestADeliveryThatComesTwiceIsNoNewJob(t *testing.T) {
	b := newValveBench(t, leaky("api", "1000/s"))
	b.arrive("a")
	b.arrive("a")
	r := b.start()[0]
	b.end(r, record.Outcome{Kind: record.OutcomeDone})
	b.p.Confirmed(r.Seq, b.now)
	b.deliver(r.Seq, "a")
	if j := b.p.jobs[r.Seq]; j == nil || j.stage != stageAcking {
		t.Errorf("a job that is done waits again: %+v", j)
	}
	b.now = b.now.Add(200 * ms)
	if j := b.deliver(b.seq, "a"); j.stage != stageWaiting {
		t.Errorf("one that waits came twice and is in stage %v", j.stage)
	}
}

func lean(a *job.Arrived) { a.Size, a.Body, a.Lean = 1<<20, nil, true }

// The job whose body is being read was removed. Later ones have no other reason to wait.
func TestJobsBehindAMissingOneAreReadNext(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/10s"))
	b.arrive("a", lean)
	b.v.Advance(b.now, pace.Never)
	first := b.out.Fetches
	b.out.Fetches = nil
	next := b.arrive("a", lean)
	b.p.Fetched(Text{Ref: first[0], Gone: true}, b.now)
	b.v.Advance(b.now, pace.Never)
	if len(b.out.Fetches) != 1 || b.out.Fetches[0] != next.ref() {
		t.Errorf("reads %d bodies, want that of job %d", len(b.out.Fetches), next.Seq)
	}
}

func TestAJobBehindOneThatVanishedWaitsForItsBody(t *testing.T) {
	b := newValveBench(t, leaky("api", "1000/s"))
	gone := b.arrive("a")
	b.arrive("a", lean)
	b.p.Reopen(2)
	b.p.last = gone.Seq + 1
	b.deliver(b.p.last, "a", lean)
	b.p.Swept(b.now)
	if runs := b.start(); len(runs) > 0 {
		t.Errorf("job %d starts without its body", runs[0].Seq)
	}
	if len(b.out.Fetches) != 1 {
		t.Errorf("reads %d bodies, want one", len(b.out.Fetches))
	}
}

// A start of cost 2 was recorded, its owner crashed, and its age is unknown, because a leader's
// clock was wrong. The bucket may have started another job, but the known wait is no shorter.
func TestInDoubtTheLongerWaitHoldsAfterACrash(t *testing.T) {
	p := leaky("api", "1/5s")
	b := unownedValve(t, p)
	b.own()
	b.p.inherit(inheritance.State{
		Crashed: true, Owner: "gone", Elapsed: 4 * second, Age: 20 * second,
		Handover: record.Handover{Rate: "1/5s",
			Clocks: []record.Clock{{Key: "a", Due: record.Micros(10 * second),
				Tat: record.Micros(10 * second)}}},
	}, b.now)
	if due := b.p.buckets["a"].clock.Due.Since(b.now); due != 6*second {
		t.Errorf("its next start is due in %v, want 6s", due)
	}
}
