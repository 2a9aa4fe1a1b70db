package valve

import (
	"slices"
	"testing"

	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// lateAndCostly is a valve whose bucket a started a job of cost 6 at the last moment: the envelope
// allows the next in 6 s.
func lateAndCostly(t *testing.T) (*valveBench, record.Handover) {
	old := newValveBench(t, leaky("api", "1/s"))
	old.arrive("a", cost(10))
	old.arrive("a", cost(6))
	old.done(old.start()[0])
	old.at(18 * second)
	if runs := old.start(); len(runs) != 1 || old.p.jobs[runs[0].Seq].Cost != 6 {
		t.Fatalf("started %s", old.seqs(runs))
	}
	return old, checkpointed(old.at(18100*ms).p, old.now, aLease)
}

// The schedule allows a late job's next slots at once, the envelope does not.
func TestCheckpointKeepsTheSlotsOfALateJob(t *testing.T) {
	_, h := lateAndCostly(t)
	b := unownedValve(t, leaky("api", "1/s")).at(21 * second).inheritFrom(inheritance.State{
		Crashed: true, Owner: "old", Elapsed: 2900 * ms, Handover: h,
	})
	b.arrive("a")
	starts := b.until(30*second, b.done)
	if len(starts) != 1 || starts[0] < 23900*ms || starts[0] > 24*second {
		t.Errorf("the next job started at %v, want 24 s", starts)
	}
}

func TestCheckpointKeepsTheSlotsOfALateJobOfTheTotal(t *testing.T) {
	old := newValveBench(t, total("1/s"))
	old.arrive("a", cost(10))
	old.arrive("a", cost(6))
	old.done(old.start()[0])
	old.at(18 * second).start()
	h := checkpointed(old.at(18100*ms).p, old.now, aLease)

	b := unownedValve(t, total("1/s")).at(21 * second).inheritFrom(inheritance.State{
		Crashed: true, Owner: "old", Elapsed: 2900 * ms, Handover: h,
	})
	b.arrive("b")
	starts := b.until(30*second, b.done)
	if len(starts) != 1 || starts[0] < 23900*ms || starts[0] > 24*second {
		t.Errorf("the next job started at %v, want 24 s", starts)
	}
}

// The predecessor's finished jobs must not start because the backlog is opened twice.
func TestFinishedJobsAreKnownToASecondBacklog(t *testing.T) {
	b := unownedValve(t,
		leaky("api", "10/s")).
		inheritFrom(inheritance.State{Owner: "old", Handover: record.Handover{Done: []uint64{1}}})
	b.p.Reopen(2)
	b.deliver(1, "a")
	if runs := b.start(); len(runs) > 0 || len(b.out.Acks) != 1 {
		t.Errorf("started %s, acknowledged %v", b.seqs(runs), b.out.Acks)
	}
}

// They must not start either because the partition is handed over before the acknowledgement.
func TestFinishedJobsAreKnownToTheOwnerAfterTheNext(t *testing.T) {
	for name, comes := range map[string]bool{"it came": true, "it did not come": false} {
		t.Run(name, func(t *testing.T) {
			b := unownedValve(t,
				leaky("api", "10/s")).
				inheritFrom(inheritance.State{Owner: "old",
					Handover: record.Handover{Done: []uint64{1}}})
			if comes {
				b.deliver(1, "a")
				b.p.Swept(b.now)
			}
			if h := b.p.Surrender(b.now); !slices.Equal(h.Done, []uint64{1}) {
				t.Errorf("hands over %v as finished, want job 1", h.Done)
			}
		})
	}
}

// An outcome reported before its job arrived goes to the next owner, even if its reporter has
// stopped regularly.
func TestADeliveredOutcomeIsForgotten(t *testing.T) {
	p := leaky("api", "10/s")
	b := unownedValve(t,
		p).inheritFrom(inheritance.State{Owner: "old",
		Handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "old"}}}})
	b.p.Reported(record.Outcome{Seq: 1, Kind: record.OutcomeDone, Holder: "old"}, b.now)
	h := b.p.Surrender(b.now)
	if !slices.Equal(h.Running, []record.Run{{Seq: 1, Holder: "self"}}) {
		t.Fatalf("hands over %+v as running", h.Running)
	}
	next := unownedValve(t,
		p).inheritFrom(inheritance.State{Owner: "self", Handover: h,
		Gone: map[string]bool{"old": true}})
	next.deliver(1, "a")
	for _, r := range b.out.Reports {
		next.p.Reported(r.Outcome, next.now)
	}
	if j := next.p.jobs[1]; j.stage != stageAcking || j.crashes != 0 {
		t.Errorf("stage %d, crashes %d; want it to be done", j.stage, j.crashes)
	}
}

func TestAnOutcomeOfAnEarlierRunIsIgnored(t *testing.T) {
	p := leaky("api", "10/s")
	old := newValveBench(t, p)
	old.v.Self = "dead"
	old.arrive("a")
	run := old.start()[0]
	old.p.Surrender(old.now)
	old.end(run, record.Outcome{Kind: record.OutcomeFailed, Error: "500"})

	for name, arrived := range map[string]bool{"the job came": true,
		"the job did not come": false} {
		t.Run(name, func(t *testing.T) {
			b := unownedValve(t,
				p).inheritFrom(inheritance.State{Owner: "second",
				Handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "second"}}}})
			if arrived {
				b.deliver(1, "a")
			}
			b.p.Reported(old.out.Reports[0].Outcome, b.now)
			if !arrived {
				b.deliver(1, "a")
			}
			if j := b.p.jobs[1]; j.stage != stageRunning || j.holder != "second" {
				t.Errorf("stage %d, holder %q; want it to run where it runs", j.stage, j.holder)
			}
		})
	}
}
