package jet

import (
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/queue"
)

func TestASweepEndsAfterAllThatWasStored(t *testing.T) {
	for name, jobs := range map[string]int{"nothing": 0, "one": 1, "many": 1500} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t)
			apply(t, b, paced("stripe", 10_000, 2))
			publish(t, b, "stripe", "elsewhere", 3)
			mine := 1 - job.Partition(b.names.Jobs("stripe", "elsewhere"), 2)
			key := keyIn(b, mine)
			publish(t, b, "stripe", key, jobs)
			l := open(t, b,
				BacklogOptions{Policy: "stripe", Partition: mine, Partitions: 2, Epoch: 1})
			if want := uint64(3 + jobs); l.Last() != want {
				t.Errorf("the last sequence is %d, want %d", l.Last(), want)
			}
			if got := sweepOf(t, l); len(got) != jobs {
				t.Errorf("%d came before the end of the sweep, want %d", len(got), jobs)
			}
		})
	}
}

// Jobs that a new consumer counts may be gone before their delivery.
func TestASweepEndsWhenCountedJobsAreRemoved(t *testing.T) {
	b := newBroker(t)
	const jobs = 3 * jsapi.PullOpen
	apply(t, b, paced("stripe", jobs, 1))
	flood(t, b, jobs)
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	l.until(t, "waiting for some", func() bool {
		return len(l.arrived) > 0 || l.broken != nil
	})
	if purged, err := b.js.Purge(natstest.Context(t), "PENSTOCK_stripe", "", 0); err != nil ||
		purged == 0 {
		t.Fatalf("purged %d, %v", purged, err)
	}
	if got := sweepOf(t, l); len(got) >= jobs {
		t.Errorf("all %d came", jobs)
	}
}

func TestASweepEndsAfterTheStrays(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 4))
	if _, err := request(t, b.nc, "penstock.jobs.stripe.a.*", "stray", nil); err != nil {
		t.Fatal(err)
	}
	l := open(t, b, BacklogOptions{Policy: "stripe", Partitions: 4, Epoch: 1})
	if got := sweepOf(t, l); len(got) != 1 || got[0].Malformed == nil {
		t.Errorf("before the end of the sweep came %+v", got)
	}
}

// A server that catches up delivers removed jobs: after the sweep, the leader is asked about them.
func TestRemovedJobsDoNotComeAfterTheSweep(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 1))
	publish(t, b, "stripe", "a", 3)
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	if got := sweepOf(t, l); len(got) != 3 {
		t.Fatalf("%d came", len(got))
	}
	if err := b.DropJob(natstest.Context(t), "stripe", 2); err != nil {
		t.Fatal(err)
	}
	left, err := l.withoutGone(natstest.Context(t), []job.Arrived{{Seq: 2}, {Seq: 4}})
	if err != nil || len(left) != 1 || left[0].Seq != 4 {
		t.Errorf("left %v, %v", seqs(left), err)
	}
	if _, err := l.withoutGone(natstest.Context(t), []job.Arrived{{Seq: 3}}); err == nil {
		t.Error("a job that is stored came after all had come, and nothing is in doubt")
	}
}

func keyIn(b *Broker, partition int) queue.Key {
	for _, key := range []queue.Key{"a", "b", "c", "d", "e", "f", "g", "h"} {
		if job.Partition(b.names.Jobs("stripe", key), 2) == partition {
			return key
		}
	}
	panic("no key")
}

// The first jobs arrive during the opening, and cannot be taken before it has checked its progress.
func TestUntakenJobsBlockNoLookUp(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 1))
	publish(t, b, "stripe", "a", 1)
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1, Wake: func() {}})
	waittest.Until(t, "the job waits to be taken", func() bool {
		free := l.sweep.mu.TryLock()
		if free {
			l.sweep.mu.Unlock()
		}
		return !free
	})
	if _, err := b.js.Purge(natstest.Context(t), l.stream, "", 0); err != nil {
		t.Fatal(err)
	}
	info, err := b.js.StreamInfo(natstest.Context(t), l.stream, "")
	if err != nil {
		t.Fatal(err)
	}
	idle := make(chan bool)
	go func() { idle <- l.idles(info) }()
	select {
	case is := <-idle:
		if is {
			t.Error("it may rest")
		}
	case <-natstest.Context(t).Done():
		t.Error("the look waits for somebody to take the job")
		l.until(t, "the job does not come", func() bool { return len(l.arrived) == 1 })
		<-idle
	}
}
