package inheritance

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A job under limits waits for the owner's first checkpoint, and then for one that tells of a job
// of its cost.
func TestJobsWaitForCheckpointsThatTellOfThem(t *testing.T) {
	var c Checkpoints
	l, again := perDay(t), origin.Add(time.Second)
	cheap, dear := quota.Cost{Job: 1}, quota.Cost{Job: 7}
	if c.Holds(cheap, l, again) != pace.Never || !c.Changed {
		t.Error("a job does not wait for the first checkpoint, or asks for none")
	}
	c.Changed = false
	if c.Begin(l, nil); c.Holds(cheap, l, again) != pace.Never {
		t.Error("a job does not wait until the checkpoint is stored")
	}
	if first := c.Store(); !first || c.Holds(cheap, l, again) != 0 {
		t.Errorf("first %t; a job waits although a checkpoint is stored", first)
	}
	c.Changed = false
	if c.Holds(dear, l, again) != again || !c.Changed {
		t.Error("a job of an untold cost does not wait, or asks for no checkpoint")
	}
	c.Begin(l, nil)
	if told := c.ByCost(quota.Units{"": 5})[""]; told != (record.Bounds{Cost: 7, Budget: 100,
		Slots: 5}) {
		t.Errorf("tells %+v, want a cost of 7, the budget of 100 and 5 slots", told)
	}
	if first := c.Store(); first || c.Holds(dear, l, again) != 0 {
		t.Errorf("first %t; the job waits although a checkpoint tells of it", first)
	}
	c.Changed = false
	if c.Used(l, quota.Units{"": 9}); !c.Changed || c.Holds(quota.Cost{Job: 9}, l, again) != again {
		t.Error("a run's real cost is not told")
	}
}

// What an operator is answered is in a checkpoint that began afterwards.
func TestAskedCheckpointsBeginLater(t *testing.T) {
	var c Checkpoints
	c.Begin(nil, nil)
	if c.Ask(); !c.Changed || !c.Waits() || c.Asked() != 2 {
		t.Errorf("asked for checkpoint %d, want the second", c.Asked())
	}
	if c.Store(); !c.Waits() {
		t.Error("one that had begun is enough")
	}
	c.Begin(nil, nil)
	if c.Store(); c.Waits() {
		t.Error("it waits although a later one is stored")
	}
}

func TestEditsAddUpUntilTheirJobsEnd(t *testing.T) {
	var e Edits
	four := 4
	e.Add(1, 10, job.Edit{Priority: &four, Front: true}, 1)
	if got := e.Add(1, 10, job.Edit{Run: true}, 3); *got.Priority != 4 || got.Run != 3 ||
		got.Front != 1 || e.Of(1, 10) != got {
		t.Errorf("the edits add up to %+v", got)
	}
	if e.Of(1, 11).Seq != 0 {
		t.Error("a job of another stream has its edit")
	}
	var next Edits
	next.Inherit(e.Records())
	if got := next.Add(2, 20, job.Edit{Front: true}, 1); got.Front != 2 {
		t.Errorf("a job that is moved later has place %d, want 2", got.Front)
	}
	next.Swept(1, func(uint64) bool { return true })
	if len(next.Records()) != 2 {
		t.Error("a sweep forgets the edit of a job that is held")
	}
	next.Swept(1, func(uint64) bool { return false })
	if next.Forget(2); len(next.Records()) != 0 {
		t.Errorf("edits of jobs that ended are kept: %+v", next.Records())
	}
}

// One checkpoint is written at a time, the next at intervals that grow with its size, but not while
// starts wait for it.
func TestACheckpointIsDueWhenItHasNews(t *testing.T) {
	const now, soon = pace.Instant(time.Hour), pace.Instant(time.Hour + 250*time.Millisecond)
	var c Checkpoints
	due := func(want pace.Instant, when string) {
		t.Helper()
		if at := c.Due(100_000); at != want {
			t.Errorf("%s it is due %v later, want %v", when, at.Since(now), want.Since(now))
		}
	}
	due(pace.Never, "without news")
	c.Changed = true
	due(0, "for the first time")
	c.Gather(now)
	c.Begin(nil, nil)
	c.Changed = true
	due(pace.Never, "while one is written")
	if first := c.Store(); !first {
		t.Error("the first one is not the first")
	}
	due(soon.Add(2*time.Second), "after that")
	c.Ask()
	due(soon, "if starts wait for it")
	c.Gather(now)
	c.Replace(7)
	due(soon, "if it was not stored")
	if c.Revision != 7 {
		t.Errorf("it replaces revision %d, want 7", c.Revision)
	}
}
