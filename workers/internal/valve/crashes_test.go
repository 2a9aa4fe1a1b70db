package valve

import (
	"testing"

	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A new owner has the crashed owner's runs before the jobs arrive. If it crashes or releases the
// partition before that, the next owner must get them.
func TestACrashIsNotForgottenBeforeTheJobArrives(t *testing.T) {
	for name, next := range map[string]inheritance.State{
		"the new owner crashes": {Crashed: true, Owner: "second",
			Gone: map[string]bool{"first": true}},
		"the new owner releases": {Owner: "second", Gone: map[string]bool{"first": true}},
	} {
		t.Run(name, func(t *testing.T) {
			second := unownedValve(t, leaky("api", "10/s")).inheritFrom(inheritance.State{
				Crashed: true, Owner: "first",
				Handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "first"}}},
			})
			second.v.Self = "second"
			next.Handover = checkpointed(second.p, second.now, aLease)
			third := unownedValve(t, leaky("api", "10/s")).inheritFrom(next)
			third.v.Self = "third"
			if j := third.arrive("a"); j.crashes != 1 {
				t.Errorf("it counts %d crashes, want 1; it inherited %+v", j.crashes,
					next.Handover.Running)
			}
		})
	}
}

func TestACrashCountsOnce(t *testing.T) {
	first := inheritance.State{Crashed: true, Owner: "first",
		Handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "first"}}}}
	second := unownedValve(t, leaky("api", "10/s")).inheritFrom(first)
	second.v.Self = "second"
	second.arrive("a")
	if n := len(second.out.Saves); n != 1 {
		t.Fatalf("%d records of the crash", n)
	}
	noted := second.out.Saves[0].Record
	next := inheritance.State{
		Crashed: true, Owner: "second",
		Handover: checkpointed(second.p, second.now, aLease),
		Gone:     map[string]bool{"first": true},
	}
	for stored, attempts := range map[string]map[uint64]inheritance.Attempt{
		"was stored": {1: {Attempt: noted}}, "was lost": {},
	} {
		next.Attempts = attempts
		third := unownedValve(t, leaky("api", "10/s")).inheritFrom(next)
		if j := third.arrive("a"); j.crashes != 1 {
			t.Errorf("when the record %s: it counts %d crashes, want 1", stored, j.crashes)
		}
	}
}

// An owner buried a job that crashed three owners, and crashes before the confirmation: the next
// one buries it again, regardless of the checkpoint.
func TestAJobThatCrashedThreeOwnersNeverStartsAgain(t *testing.T) {
	for name, running := range map[string][]record.Run{
		"while its letter was stored":  {{Seq: 1, Holder: "third"}},
		"while its crash was recorded": {{Seq: 1, Holder: "second"}},
		"after its letter was stored":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			noted := record.Attempt{Crashes: 2, CrashedBy: "first"}
			inherit := func(owner string, running []record.Run) *valveBench {
				return unownedValve(t, leaky("api", "10/s")).inheritFrom(inheritance.State{
					Crashed: true, Owner: owner, Handover: record.Handover{Running: running},
					Attempts: map[uint64]inheritance.Attempt{1: {Attempt: noted}},
					Gone:     map[string]bool{"second": true},
				})
			}
			third := inherit("second", []record.Run{{Seq: 1, Holder: "second"}})
			third.arrive("a")
			for _, s := range third.out.Saves {
				noted = s.Record
			}
			fourth := inherit("third", running)
			fourth.arrive("a")
			fourth.arrive("a")
			if runs := fourth.at(second).start(); fourth.reasons() != "[crashed]" ||
				fourth.seqs(runs) != "[2]" {
				t.Errorf("buried for %s, started %s; want only the job behind it", fourth.reasons(),
					fourth.seqs(runs))
			}
		})
	}
}

func TestACrashThatIsRecordedIsNotWaitedForAgain(t *testing.T) {
	b := unownedValve(t, leaky("api", "10/s")).inheritFrom(inheritance.State{
		Handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "first"}}},
		Attempts: map[uint64]inheritance.Attempt{
			1: {Attempt: record.Attempt{Crashes: 1, CrashedBy: "first"}}},
	})
	j := b.arrive("a")
	b.v.HolderGone("first", b.now)
	if runs := b.at(second).start(); j.crashes != 1 || b.seqs(runs) != "[1]" {
		t.Errorf("it counts %d crashes, started %s; want the crash of one, and a start", j.crashes,
			b.seqs(runs))
	}
}
