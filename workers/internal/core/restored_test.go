package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// A backup of a stream that is restored lacks what was stored since, and what clients publish then
// gets the sequences of jobs that it lacks, in a stream that was made when the former one was. What
// is known of those is no word on them.

// restored is when a job was stored that has such a sequence.
func restored(a *job.Arrived) { a.Stored = originWall.Add(time.Minute) }

// beforeARestore is a valve with jobs of every kind under sequences 1 to 6; its job 7 is for an
// owner that hears of none.
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
			b.end(r, Outcome{Kind: OutcomeDone})
		case "failed":
			b.end(r, Outcome{Kind: OutcomeFailed})
		case "burying":
			b.end(r, Outcome{Kind: OutcomePermanent})
		case "waiting":
			b.end(r, Outcome{Kind: OutcomeUncounted})
			b.v.throttle(b.p.buckets[r.Key], time.Hour, b.now)
		}
	})
	return b
}

// expectAll checks that the six jobs of a restored stream run, each for the first time.
func (b *valveBench) expectAll() {
	b.t.Helper()
	b.out.acks, b.out.burials = nil, nil
	ran := map[uint64]bool{}
	for seq := range uint64(6) {
		b.deliver(seq+1, "a", restored)
	}
	b.until(2*time.Minute, func(r Run) {
		ran[r.Seq] = r.Attempt == 1 && b.p.jobs[r.Seq].crashes == 0
		b.end(r, Outcome{Kind: OutcomeDone})
	})
	for seq := range uint64(6) {
		if !ran[seq+1] {
			b.t.Errorf("job %d did not run, or not as the first attempt", seq+1)
		}
	}
	if len(b.out.acks) != 6 || len(b.out.burials) != 0 {
		b.t.Errorf("%d acknowledged, %d buried; want 6 and none", len(b.out.acks),
			len(b.out.burials))
	}
}

func TestJobsOfARestoredStreamAreNotThoseThatItsOwnerHolds(t *testing.T) {
	b := beforeARestore(t)
	b.v.reopen(b.p, 2)
	b.at(time.Minute).expectAll()
}

func TestJobsOfARestoredStreamAreNotThoseThatAFormerOwnerTold(t *testing.T) {
	for name, crashed := range map[string]bool{"by a planned handover": false, "by a crash": true} {
		t.Run(name, func(t *testing.T) {
			old := beforeARestore(t)
			in := inheritance{crashed: crashed, owner: "self",
				attempts: map[uint64]inheritedAttempt{}}
			for _, s := range old.out.saves {
				s.Record.Crashes = MostCrashes
				in.attempts[s.Seq] = inheritedAttempt{s.Record, time.Hour, 7}
			}
			in.handover = old.v.handover(old.p, old.now, 0)
			if n, m := len(in.handover.Running), len(in.handover.Done); n < 2 || m != 2 ||
				len(in.attempts) != 1 {
				t.Fatalf("tells of %d that run, of %d that are done and of attempts of %d", n, m,
					len(in.attempts))
			}
			b := unownedValve(t, old.v.Policy).at(time.Minute).inheritFrom(in)
			// of the former job 3
			b.v.reported(b.p, Outcome{Seq: 3, Kind: OutcomeDone, Holder: "self"}, b.now)
			b.expectAll()
			if b.p.unseen != 0 {
				t.Errorf("%d runs are waited for", b.p.unseen)
			}
		})
	}
}

// What is told on of jobs that have not come is told with when those were stored, not those that
// have.
func TestWhatIsToldOnIsOfJobsThatTheFirstHadSeen(t *testing.T) {
	old := beforeARestore(t)
	h := old.v.handover(old.p, old.now, 0)
	second := unownedValve(t,
		old.v.Policy).at(time.Minute).inheritFrom(inheritance{owner: "self", handover: h})
	again := second.v.handover(second.p, second.now, 0)
	third := unownedValve(t,
		old.v.Policy).at(time.Minute).inheritFrom(inheritance{owner: "self", handover: again})
	third.expectAll()

	third = unownedValve(t,
		old.v.Policy).at(time.Minute).inheritFrom(inheritance{owner: "self", handover: again})
	for seq := range uint64(3) {
		third.stored[seq+1] = originWall
		third.deliver(seq+1, "a")
	}
	if starts := third.until(time.Minute+100*ms, third.done); len(starts) > 0 {
		t.Errorf("jobs that are done or run start at %v", starts)
	}
}
