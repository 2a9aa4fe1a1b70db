package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// What is still under way for a partition that was given up says nothing of the same one once it is
// taken again, even in the same epoch.
func TestAFormerTenureIsNotHeard(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	part, now := takeOver(c, Opened{})
	former, s := part.Partition, c.shares["api.0"]
	c.dropShare(s)
	c.takeUp(s, now)
	again := s.part
	if again == nil || again.Epoch != part.Epoch || c.part(former) != nil {
		t.Fatalf("it was not taken again: %+v", again)
	}
	jobs := []job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall, Body: []byte{}}}
	c.Handle(Arrived{former, part.Epoch, jobs}, now)
	if len(again.jobs) > 0 {
		t.Error("a job of the former backlog was taken in")
	}
	c.Handle(Arrived{again.Partition, again.Epoch, jobs}, now)
	j := again.jobs[1]
	c.valves["api"].detach(j)
	c.valves["api"].ack(j)
	c.Handle(Confirmed{former, []uint64{1}}, now)
	if again.jobs[1] == nil {
		t.Error("a confirmation by the former backlog was heard")
	}
	c.Handle(Confirmed{again.Partition, []uint64{1}}, now)
	if again.jobs[1] != nil {
		t.Error("the confirmation was not heard")
	}
}

// A stream was restored from a backup, and another job has the sequence of one whose dead letter is
// being stored: the letter is not its own, and it must not end in that one's place.
func TestAnAnswerAboutAnotherJobOfItsSequenceIsNotHeard(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	part, now := takeOver(c, Opened{})
	bury := func(stored time.Time) Burial {
		a := job.Arrived{Seq: 1, Key: "a", Cost: 1, Stored: stored, Malformed: job.ErrInvalidKey}
		c.Handle(Arrived{part.Partition, part.Epoch, []job.Arrived{a}}, now)
		return c.out.burials[len(c.out.burials)-1]
	}
	former := bury(originWall)
	later := bury(originWall.Add(time.Second))
	if c.Handle(Buried{former.Ref}, now); len(c.out.acks) > 0 {
		t.Error("the letter of the former job was taken for that of the later one")
	}
	c.Handle(Buried{later.Ref}, now)
	if len(c.out.acks) != 1 || c.out.acks[0] != later.Ref {
		t.Errorf("acknowledges %v, want %v", c.out.acks, later.Ref)
	}
}

// A run is known until its outcome was told, also when its job left the stream meanwhile; then its
// number is nobody's.
func TestAnOutcomeIsHeardOnce(t *testing.T) {
	p := leaky("api", "10/s")
	p.Workers = 2
	b := newValveBench(t, p)
	b.arrive("a")
	b.arrive("b")
	runs := b.start()
	b.v.restart(b.p, b.now)
	for range 2 {
		b.end(runs[0], Outcome{Kind: OutcomeDone})
	}
	if b.v.busy != 1 || b.p.buckets["a"] != nil && b.p.buckets["a"].running != 0 {
		t.Errorf("%d workers are busy, want the one of the other run", b.v.busy)
	}
	if b.end(runs[1], Outcome{Kind: OutcomeDone}); b.v.busy != 0 || len(b.v.runs) > 0 {
		t.Errorf("%d workers are busy, and %d runs are remembered", b.v.busy, len(b.v.runs))
	}
}
