package valve

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A restored stream lacks jobs stored since its backup, and new ones get their sequences; the
// stream's creation time stays. Records of the old jobs do not apply to the new.

// restored sets the time of storage of a job that got a former job's sequence.
func restored(a *job.Arrived) { a.Stored = originWall.Add(time.Minute) }

// beforeARestore is a valve with jobs of all kinds under sequences 1 to 6; job 7 is for an owner
// that does not get it.
func beforeARestore(t *testing.T) *valveBench {
	b := newValveBench(t, leaky("api", "1000/s"))
	b.p.created = originWall
	for _, key := range []string{"done", "acking", "running", "failed", "burying", "waiting"} {
		b.arrive(key)
	}
	b.until(10*ms, func(r Run) {
		switch r.Key {
		case "done":
			b.done(r)
		case "acking":
			b.end(r, record.Outcome{Kind: record.OutcomeDone})
		case "failed":
			b.end(r, record.Outcome{Kind: record.OutcomeFailed})
		case "burying":
			b.end(r, record.Outcome{Kind: record.OutcomePermanent})
		case "waiting":
			b.end(r, record.Outcome{Kind: record.OutcomeUncounted})
			b.v.coolDown(b.p.buckets[r.Key], time.Hour, b.now)
		}
	})
	return b
}

// expectAll checks that the six restored jobs run for the first time.
func (b *valveBench) expectAll() {
	b.t.Helper()
	b.out.Acks, b.out.Burials = nil, nil
	ran := map[uint64]bool{}
	for seq := range uint64(6) {
		b.deliver(seq+1, "a", restored)
	}
	b.until(2*time.Minute, func(r Run) {
		ran[r.Seq] = r.Attempt == 1 && b.p.jobs[r.Seq].crashes == 0
		b.end(r, record.Outcome{Kind: record.OutcomeDone})
	})
	for seq := range uint64(6) {
		if !ran[seq+1] {
			b.t.Errorf("job %d did not run, or not as the first attempt", seq+1)
		}
	}
	if len(b.out.Acks) != 6 || len(b.out.Burials) != 0 {
		b.t.Errorf("%d acknowledged, %d buried; want 6 and none", len(b.out.Acks),
			len(b.out.Burials))
	}
}

func TestJobsOfARestoredStreamDifferFromHeldJobs(t *testing.T) {
	b := beforeARestore(t)
	b.p.Reopen(2)
	b.at(time.Minute).expectAll()
}

func TestJobsOfARestoredStreamDifferFromInheritedJobs(t *testing.T) {
	for name, crashed := range map[string]bool{"by a planned handover": false, "by a crash": true} {
		t.Run(name, func(t *testing.T) {
			old := beforeARestore(t)
			in := inheritance.State{Crashed: crashed, Owner: "self",
				Attempts: map[uint64]inheritance.Attempt{}}
			for _, s := range old.out.Saves {
				s.Record.Crashes = MostCrashes
				s.Record.DueIn = record.Micros(time.Hour)
				in.Attempts[s.Seq] = inheritance.Attempt{Attempt: s.Record, Revision: 7}
			}
			in.Handover = old.p.Handover(old.now)
			if n, m := len(in.Handover.Running), len(in.Handover.Done); n < 2 || m != 2 ||
				len(in.Attempts) != 1 {
				t.Fatalf("tells of %d that run, of %d that are done and of attempts of %d", n, m,
					len(in.Attempts))
			}
			b := unownedValve(t, old.v.Policy).at(time.Minute).inheritFrom(in)
			b.p.Reported(record.Outcome{Seq: 3, Kind: record.OutcomeDone, Holder: "self"},
				b.now)
			b.expectAll()
			if b.p.legacy.Unseen() {
				t.Error("runs are waited for")
			}
		})
	}
}

// State of jobs that have not arrived is passed on with their time of storage.
func TestForwardedStateIsOfJobsThatTheFirstOwnerSaw(t *testing.T) {
	old := beforeARestore(t)
	h := old.p.Handover(old.now)
	second := unownedValve(t,
		old.v.Policy).at(time.Minute).inheritFrom(inheritance.State{Owner: "self", Handover: h})
	again := second.p.Handover(second.now)
	third := unownedValve(t,
		old.v.Policy).at(time.Minute).inheritFrom(inheritance.State{Owner: "self", Handover: again})
	third.expectAll()

	third = unownedValve(t,
		old.v.Policy).at(time.Minute).inheritFrom(inheritance.State{Owner: "self", Handover: again})
	for seq := range uint64(3) {
		third.stored[seq+1] = originWall
		third.deliver(seq+1, "a")
	}
	if starts := third.until(time.Minute+100*ms, third.done); len(starts) > 0 {
		t.Errorf("jobs that are done or run start at %v", starts)
	}
}
