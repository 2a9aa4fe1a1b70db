package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

func TestAFormerTenureIsNotHeard(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	part, now := takeOver(c, Opened{})
	former, s := part.Partition, c.shares.all["api.0"]
	c.dropShare(s)
	c.takeUp(s, now)
	again := s.part
	if again == nil || again.Epoch != part.Epoch || c.part(former) != nil {
		t.Fatalf("it was not taken again: %+v", again)
	}
	jobs := []job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall, Body: []byte{}}}
	c.Handle(Arrived{Part: former, Epoch: part.Epoch, Jobs: jobs}, now)
	if stands(c, again, 1, now) != nil {
		t.Error("a job of the former backlog was taken in")
	}
	c.Handle(Arrived{Part: again.Partition, Epoch: again.Epoch, Jobs: jobs}, now)
	c.Handle(Opened{Opening: Opening{again.Partition, again.Epoch, true}}, now)
	c.advance(now)
	r := c.out.Starts[0]
	r.Decide(atOnce(r), nil)
	c.Handle(Finish(r, record.Outcome{Seq: 1, Kind: record.OutcomeDone}), now)
	c.Handle(Confirmed{former, []uint64{1}}, now)
	if stands(c, again, 1, now) == nil {
		t.Error("a confirmation by the former backlog was heard")
	}
	c.Handle(Confirmed{again.Partition, []uint64{1}}, now)
	if stands(c, again, 1, now) != nil {
		t.Error("the confirmation was not heard")
	}
}

// After a restored backup, another job has the sequence of a job whose dead letter is being stored,
// and must not end instead.
func TestAnAnswerAboutAnotherJobOfItsSequenceIsNotHeard(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	part, now := takeOver(c, Opened{})
	bury := func(stored time.Time) valve.Burial {
		a := job.Arrived{Seq: 1, Key: "a", Cost: 1, Stored: stored, Malformed: queue.ErrInvalidKey}
		c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch, Jobs: []job.Arrived{a}}, now)
		return c.out.Burials[len(c.out.Burials)-1]
	}
	former := bury(originWall)
	later := bury(originWall.Add(time.Second))
	if c.Handle(Buried{former.Ref}, now); len(c.out.Acks) > 0 {
		t.Error("the letter of the former job was taken for that of the later one")
	}
	c.Handle(Buried{later.Ref}, now)
	if len(c.out.Acks) != 1 || c.out.Acks[0] != later.Ref {
		t.Errorf("acknowledges %v, want %v", c.out.Acks, later.Ref)
	}
}

func TestOverridesOfDeletedPoliciesTakeNoMemory(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	faster := leaky("", "20/s").Outflow
	for _, o := range []inforce.Override{{Outflow: &faster}, {}} {
		for _, key := range []queue.Key{"a", "b"} {
			c.Handle(Overridden{"gone", key, o}, 0)
		}
	}
	if len(c.overrides) != 0 {
		t.Errorf("kept are %v", c.overrides)
	}
}
