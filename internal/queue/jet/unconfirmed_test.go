package jet

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// A broken backlog does not wait for confirmations, but sends all acknowledgements when closed,
// including those beyond the window.
func TestABrokenBacklogSendsAllAcknowledgementsAtItsEnd(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	publish(t, b, "stripe", "a", 1)
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	receive(t, l, 1)
	l.acks.mu.Lock()
	l.acks.enter(slices.Repeat([]uint64{1000}, ackWindow), time.Now())
	l.acks.mu.Unlock()
	l.Done(1)
	l.fail(errors.New("deliveries may be missing"))
	if err := l.Close(natstest.Context(t)); err == nil {
		t.Error("unconfirmed acknowledgements are not told")
	}
	waittest.Until(t, "the job is acknowledged", func() bool {
		n, err := b.Depth(natstest.Context(t), "stripe")
		return err == nil && n == 0
	})
}

func TestASweepEndsWithTheLastJobInAnotherPartition(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 2))
	publish(t, b, "stripe", keyIn(b, 1), 3)
	publish(t, b, "stripe", keyIn(b, 0), 3)
	l := open(t, b, BacklogOptions{Policy: "stripe", Partition: 1, Partitions: 2, Epoch: 1})
	if got := sweepOf(t, l); len(got) != 3 {
		t.Errorf("%d came before the end of the sweep, want 3", len(got))
	}
}

// Acknowledging an undelivered message would make the consumer skip all earlier ones.
func TestAFinishedStrayIsDeletedAndNotAcknowledged(t *testing.T) {
	l := &Backlog{acks: &acks{wake: make(chan struct{}, 1)},
		strays: strays{known: map[uint64]bool{7: true}, wake: make(chan struct{}, 1)}}
	l.Done(7)
	l.Done(8)
	if !slices.Equal(l.strays.doomed, []uint64{7}) || !slices.Equal(l.acks.waiting, []uint64{8}) {
		t.Errorf("%v is to be deleted and %v to be acknowledged, want 7 and 8", l.strays.doomed,
			l.acks.waiting)
	}
}

func TestPartitionsAreOpenedSideBySide(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 2))
	first := open(t, b, BacklogOptions{Policy: "stripe", Partitions: 2, Epoch: 1})
	open(t, b, BacklogOptions{Policy: "stripe", Partition: 1, Partitions: 2, Epoch: 1})
	if _, err := b.js.Consumer(natstest.Context(t), "PENSTOCK_stripe", "valve-0-1"); err != nil {
		t.Errorf("the consumer of partition 0: %v", err)
	}
	publish(t, b, "stripe", keyIn(b, 0), 1)
	receive(t, first, 1)
}

// Foreign streams reduce the shared store.
func TestStreamsOfOthersLeaveLessToShare(t *testing.T) {
	b := limited(t, 64<<20)
	apply(t, b, paced("ours", 100_000, 1))
	before, err := b.Ration(natstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.js.CreateStream(natstest.Context(t),
		jetstream.StreamConfig{Name: "THEIRS", MaxBytes: 16 << 20}); err != nil {
		t.Fatal(err)
	}
	after, err := b.Ration(natstest.Context(t))
	if err != nil || after.Jobs["ours"].Max >= before.Jobs["ours"].Max {
		t.Errorf("%d bytes before there was another stream, %d with it; %v",
			before.Jobs["ours"].Max, after.Jobs["ours"].Max, err)
	}
}
