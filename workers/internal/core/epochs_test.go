package core

import (
	"slices"
	"testing"

	"github.com/penstock-mq/penstock/queue/job"
)

// What a backlog of an earlier epoch delivers, or its opening found, is no word on the present one:
// it may be told late.
func TestABacklogOfAnEarlierEpochIsNotHeard(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	part, now := takeOver(c, Opened{})
	former := part.Epoch
	c.Handle(Broken{part.Partition, former}, now)
	now = c.run(now, second, nil)
	if part.Epoch == former || part.broken {
		t.Fatalf("the partition is still at epoch %d", former)
	}
	jobs := []job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall, Body: []byte{}}}
	c.Handle(Arrived{part.Partition, former, jobs}, now)
	c.Handle(Strayed{part.Partition, former, jobs}, now)
	if len(part.jobs) > 0 {
		t.Error("a job of the former backlog was taken in")
	}
	c.Handle(Broken{part.Partition, former}, now)
	if part.broken {
		t.Error("the former backlog broke the present one")
	}
	part.sweeping = true
	if c.Handle(Swept{part.Partition, former}, now); !part.sweeping {
		t.Error("the sweep of the former backlog ended the present one")
	}
	created := part.created
	c.Handle(Opened{Opening: Opening{part.Partition, former, false},
		Created: created.Add(second)}, now)
	if !part.created.Equal(created) {
		t.Error("the opening of the former backlog was heard")
	}
	c.Handle(Unopened{Opening{part.Partition, former, false}, false}, now)
	if part.unopened {
		t.Error("the failed opening of the former backlog was heard")
	}
	c.Handle(Arrived{part.Partition, part.Epoch, jobs}, now)
	if len(part.jobs) != 1 {
		t.Error("the job of the present backlog was not taken in")
	}
}

// What was stored when a backlog was opened and did not come is gone: it is not kept waiting for
// ever, and an acknowledgement of it is confirmed. What came is not, nor what may have been stored
// since.
func TestASweepRemovesWhatIsGoneAndNothingElse(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	for range 5 {
		// 1 starts; of the others 2 and 3 are gone, and 5 was stored after the opening
		b.arrive("a")
	}
	b.end(b.start()[0], Outcome{Kind: OutcomeDone})
	b.v.reopen(b.p, 2)
	b.p.finished[9] = 0
	b.deliver(4, "a")
	b.p.last = 4
	b.v.swept(b.p, b.now)
	if b.p.jobs[1] != nil {
		t.Error("the acknowledgement of job 1 is still waited for")
	}
	if _, known := b.p.finished[9]; !known {
		t.Error("that job 9 is finished is forgotten before it can have come")
	}
	var seqs []uint64
	b.until(second, func(r Run) { seqs = append(seqs, r.Seq); b.done(r) })
	if !slices.Equal(seqs, []uint64{4, 5}) || b.out.vanished != 2 {
		t.Errorf("started %v, want 4 and 5; %d are told as gone, want 2", seqs, b.out.vanished)
	}
}
