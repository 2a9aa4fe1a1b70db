package valve

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func (b *valveBench) edit(seq uint64, want job.Edit) {
	b.t.Helper()
	if done, full := b.p.edit(seq, want, b.now); !done || full {
		b.t.Fatalf("job %d is not changed; full: %t", seq, full)
	}
}

func (b *valveBench) order(within time.Duration) string {
	b.t.Helper()
	var seqs []uint64
	for end := b.now.Add(within); b.now < end; b.now = b.now.Add(20 * ms) {
		for _, r := range b.start() {
			seqs = append(seqs, r.Seq)
			b.done(r)
		}
		b.text()
		b.counts()
	}
	return fmt.Sprint(seqs)
}

func notBefore(d time.Duration) func(*job.Arrived) {
	return func(a *job.Arrived) { a.NotBefore = originWall.Add(d) }
}

// edited is a bucket of ten jobs: 9 and then 8 were moved to the front, 7 has a higher priority, 2
// a lower, 10 was delayed by an hour, and 5 expires soon. With little memory some are deep.
func edited(t *testing.T, memory int64) *valveBench {
	b := unownedValve(t, leaky("api", "1/s"))
	b.v.Share(NewMemory(memory), b.v.Crew.Workers)
	b.own()
	b.p.GoLive(b.now)
	fillEdited(b)
	up, down, soon := 5, -1, originWall.Add(500*ms)
	b.edit(9, job.Edit{Front: true})
	b.edit(8, job.Edit{Front: true})
	b.edit(7, job.Edit{Priority: &up})
	b.edit(2, job.Edit{Priority: &down})
	b.edit(10, job.Edit{Run: true})
	b.edit(5, job.Edit{Deadline: &soon})
	return b
}

func fillEdited(b *valveBench) {
	for seq := range uint64(9) {
		b.deliver(seq+1, "a")
	}
	b.deliver(10, "a", notBefore(time.Hour))
	b.seq = 10
}

const editedOrder = "[8 9 7 1 3 4 6 10 2]"

func TestWaitingJobsAreEdited(t *testing.T) {
	for _, memory := range []int64{0, 1} {
		b := edited(t, memory)
		if got := b.order(30 * second); got != editedOrder || b.reasons() != "[deadline]" {
			t.Errorf("memory %d: they started as %s, and %s", memory, got, b.reasons())
		}
		if len(b.p.edits.Records()) != 1 {
			t.Errorf("what was changed of jobs that ended is known: %v", b.p.edits.Records())
		}
	}
}

func TestAnEditedJobObeysTheRate(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/s"))
	for range 3 {
		b.arrive("a", notBefore(time.Hour))
	}
	for seq := range uint64(3) {
		b.edit(seq+1, job.Edit{Run: true})
	}
	if starts := b.until(10*second, b.done); len(starts) != 3 || starts[2] < 2*second-20*ms {
		t.Errorf("they started at %v", starts)
	}
}

func TestEditsSurviveTheirOwner(t *testing.T) {
	for _, crashed := range []bool{false, true} {
		from := edited(t, 0)
		h := from.p.HandoverBut(from.now)
		h.Rate = "1/s"
		h.Fit(record.MostBytes)
		var read record.Checkpoint
		if err := record.Decode(record.Encode(record.Checkpoint{V: record.Version, Handover: h}),
			&read); err != nil {
			t.Fatal(err)
		}
		b := unownedValve(t, leaky("api", "1/s")).inheritFrom(inheritance.State{Owner: "old",
			Crashed: crashed, Handover: read.Handover})
		for seq, at := range from.stored {
			b.stored[seq] = at
		}
		b.stored[4] = originWall.Add(-time.Hour)
		fillEdited(b)
		if got := b.order(40 * second); got != editedOrder || b.reasons() != "[deadline]" {
			t.Errorf("crashed %t: they started as %s, and %s", crashed, got, b.reasons())
		}
	}
}

// Its stream was restored from a backup.
func TestAnEditOfAnotherJobOfItsSequenceDoesNothing(t *testing.T) {
	from := edited(t, 0)
	b := unownedValve(t, leaky("api", "1/s")).inheritFrom(inheritance.State{Owner: "old",
		Handover: record.Handover{Edits: from.p.edits.Records()}})
	b.at(time.Second)
	fillEdited(b)
	if got := b.order(30 * second); got != "[1 2 3 4 5 6 7 8 9]" {
		t.Errorf("they started as %s", got)
	}
}

func TestABackoffIsCutShortOnce(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	b.arrive("a")
	b.end(b.start()[0], record.Outcome{Kind: record.OutcomeFailed, Error: "no"})
	s := b.out.Saves[0]
	b.p.Written(&s, b.now)
	b.edit(1, job.Edit{Run: true})
	for attempts, want := range map[int]int{1: 1, 2: 0} {
		next := unownedValve(t, leaky("api", "10/s")).inheritFrom(inheritance.State{Owner: "old",
			Handover: record.Handover{Edits: b.p.edits.Records()},
			Attempts: map[uint64]inheritance.Attempt{1: {Attempt: record.Attempt{V: record.Version,
				Attempts: attempts, DueIn: record.Micros(time.Hour)}}}})
		next.stored[1] = b.stored[1]
		next.deliver(1, "a")
		if got := len(next.until(2*second, next.done)); got != want {
			t.Errorf("after %d attempts %d start, want %d", attempts, got, want)
		}
	}
	if got := len(b.until(2*second, b.done)); got != 1 {
		t.Errorf("%d start, want the one that backed off", got)
	}
}

func TestAJobThatWasRunMaySnooze(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	late := notBefore(3 * time.Hour)
	b.arrive("a", late)
	for range 2 {
		b.edit(1, job.Edit{Run: true})
		b.end(b.start()[0], record.Outcome{Kind: record.OutcomeUncounted, Again: time.Hour})
		s := b.out.Saves[0]
		b.p.Written(&s, b.now)
		heir := func() *valveBench {
			next := unownedValve(t, leaky("api", "10/s")).inheritFrom(inheritance.State{
				Owner:    "old",
				Handover: record.Handover{Edits: b.p.edits.Records()},
				Attempts: map[uint64]inheritance.Attempt{1: {Attempt: s.Record}}})
			next.stored[1] = b.stored[1]
			next.deliver(1, "a", late)
			return next
		}
		next := heir()
		if starts := next.until(2*time.Hour, next.done); len(starts) != 1 || starts[0] < time.Hour {
			t.Errorf("it starts at %v, want once, in an hour", starts)
		}
		b.edit(1, job.Edit{Run: true})
		if next = heir(); len(next.start()) != 1 {
			t.Error("the wait is not cut short")
		}
		b = heir()
	}
}

func TestEditsAreBoundedAndConfirmed(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/s"))
	for range inheritance.MostEdits + 1 {
		b.arrive("a", notBefore(time.Hour))
	}
	for seq := range uint64(inheritance.MostEdits) {
		b.edit(seq+1, job.Edit{Front: true})
	}
	b.edit(1, job.Edit{Run: true})
	done, full := b.p.edit(inheritance.MostEdits+1, job.Edit{Front: true}, b.now)
	if done || !full {
		t.Errorf("one too many: %t, %t", done, full)
	}
	if !b.p.Checkpoints.Waits() {
		t.Error("nobody waits for a checkpoint")
	}
	b.p.Checkpoints.Store()
	if !b.p.Checkpoints.Waits() {
		t.Error("a checkpoint tells of what came after it")
	}
	begin(b.p)
	if !b.p.Checkpoints.Waits() {
		t.Error("a checkpoint that was not stored tells of it")
	}
	begin(b.p)
	b.p.Checkpoints.Store()
	if b.p.Checkpoints.Waits() {
		t.Error("a stored checkpoint does not tell of it")
	}
	h := b.p.Handover(b.now)
	h.Fit(record.MostBytes)
	const most = inheritance.MostEdits
	if n := len(record.Encode(h)); len(h.Edits) != most || n > most*130 {
		t.Errorf("%d edits take %d bytes", len(h.Edits), n)
	}
}
