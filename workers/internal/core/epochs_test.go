package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
)

func TestABacklogOfAnEarlierEpochIsNotHeard(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	part, now := takeOver(c, Opened{})
	former := part.Epoch
	c.Handle(Arrived{Part: part.Partition, Epoch: former,
		Jobs: []job.Arrived{{Seq: 9, Key: "a", Cost: 1,
			Stored: originWall, NotBefore: originWall.Add(time.Hour)}}}, now)
	c.Handle(Broken{part.Partition, former}, now)
	now = c.run(now, second, nil)
	if part.Epoch == former || part.broken {
		t.Fatalf("the partition is still at epoch %d", former)
	}
	jobs := []job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall, Body: []byte{}}}
	c.Handle(Arrived{Part: part.Partition, Epoch: former, Jobs: jobs}, now)
	c.Handle(Arrived{Part: part.Partition, Epoch: former, Jobs: jobs, Stray: true}, now)
	if stands(c, part, 1, now) != nil {
		t.Error("a job of the former backlog was taken in")
	}
	c.Handle(Broken{part.Partition, former}, now)
	if part.broken {
		t.Error("the former backlog broke the present one")
	}
	c.Handle(Opened{Opening: Opening{part.Partition, part.Epoch, false}, Last: 10}, now)
	c.Handle(Arrived{Part: part.Partition, Epoch: former, Swept: true}, now)
	if stands(c, part, 9, now) == nil {
		t.Error("the sweep of the former backlog ended the present one")
	}
	c.Handle(Opened{Opening: Opening{part.Partition, former, false}, Created: originWall}, now)
	if part.Stream() != 0 {
		t.Error("the opening of the former backlog was heard")
	}
	c.Handle(Unopened{Opening{part.Partition, former, false}, false}, now)
	if part.unopened {
		t.Error("the failed opening of the former backlog was heard")
	}
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch, Jobs: jobs}, now)
	if stands(c, part, 1, now) == nil {
		t.Error("the job of the present backlog was not taken in")
	}
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch, Swept: true}, now)
	if stands(c, part, 9, now) != nil {
		t.Error("the sweep of the present backlog was not heard")
	}
}
