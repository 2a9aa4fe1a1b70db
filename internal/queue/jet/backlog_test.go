package jet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func seqs(arrived []job.Arrived) []uint64 {
	var all []uint64
	for _, a := range arrived {
		all = append(all, a.Seq)
	}
	return all
}

func TestBacklogDeliversInOrder(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10_000, 1))
	const jobs = 3000
	for i := range jobs {
		if err := b.nc.Publish(b.names.Jobs("stripe", queue.Key(fmt.Sprint("k", i%7))),
			[]byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	for i, a := range receive(t, l, jobs) {
		if a.Seq != uint64(i+1) || string(a.Body) != fmt.Sprint(i) ||
			a.Key != queue.Key(fmt.Sprint("k", i%7)) || a.Size != len(a.Body) ||
			a.Lean || a.Malformed != nil || a.Cost != 1 || a.Header != nil || a.Partition != 0 ||
			time.Since(a.Stored) > time.Minute {
			t.Fatalf("arrival %d is %+v", i, a)
		}
	}
	publish(t, b, "stripe", "later", 1)
	if a := receive(t, l, 1)[0]; a.Seq != jobs+1 {
		t.Errorf("got %d", a.Seq)
	}
	info, err := b.js.StreamInfo(natstest.Context(t), "PENSTOCK_stripe", "")
	if err != nil || !l.StreamCreated().Equal(info.Created) {
		t.Errorf("stream created %v, want %v; %v", l.StreamCreated(), info.Created, err)
	}
}

func TestBacklogOfOnePartition(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 4))
	want := map[int]int{}
	for i := range 40 {
		k := queue.Key(fmt.Sprint("k", i))
		want[job.Partition(b.names.Jobs("stripe", k), 4)]++
		publish(t, b, "stripe", k, 1)
	}
	for partition := range 4 {
		l := open(t, b,
			BacklogOptions{Policy: "stripe", Partition: partition, Partitions: 4, Epoch: 1})
		for _, a := range receive(t, l, want[partition]) {
			if a.Partition != partition {
				t.Errorf("partition %d got %+v", partition, a)
			}
		}
	}
}

// An owner that does not pull for some time must keep its consumer.
func TestConsumerOfTheContract(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 4))
	open(t, b, BacklogOptions{Policy: "stripe", Partition: 2, Partitions: 4, Epoch: 77})
	consumer, err := b.js.Consumer(natstest.Context(t), "PENSTOCK_stripe", "valve-2-77")
	if err != nil {
		t.Fatal(err)
	}
	c := consumer.CachedInfo().Config
	if c.AckPolicy != jetstream.AckExplicitPolicy || c.AckWait != 365*24*time.Hour ||
		c.MaxAckPending != -1 || c.MaxDeliver != -1 ||
		!c.MemoryStorage || c.InactiveThreshold != 0 || c.HeadersOnly ||
		c.FilterSubject != "penstock.queue.stripe.2.>" {
		t.Errorf("consumer %+v", c)
	}
	apply(t, b, paced("single", 10, 1))
	open(t, b, BacklogOptions{Policy: "single", Epoch: 1})
	if consumer, err = b.js.Consumer(natstest.Context(t), "PENSTOCK_single", "valve-0-1"); err !=
		nil {
		t.Fatal(err)
	}
	if c := consumer.CachedInfo().Config; c.FilterSubject != "" || len(c.FilterSubjects) != 0 {
		t.Errorf("the consumer of a single partition has the filter %q", c.FilterSubject)
	}
}

// TestTakeoverHandsOverEverythingUnacknowledged checks that the new owner alone gets all stored
// jobs, in order, and that late acknowledgements of the old one have no effect.
func TestTakeoverHandsOverEverythingUnacknowledged(t *testing.T) {
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			s := natstest.Start(t, embedded.Options{})
			b, other := brokerOver(t, natstest.Connect(t, s)), brokerOver(t, natstest.Connect(t, s))
			apply(t, b, paced("stripe", 1000, partitions))
			const k = queue.Key("tenant-7")
			partition := job.Partition(b.names.Jobs("stripe", k), partitions)
			publish(t, b, "stripe", k, 200)

			old := open(t, b,
				BacklogOptions{Policy: "stripe", Partition: partition, Partitions: partitions,
					Epoch: 5})
			all := seqs(receive(t, old, 200))
			var left []uint64
			for i, seq := range all {
				if i%3 == 0 {
					old.Done(seq)
				} else {
					left = append(left, seq)
				}
			}
			confirm(t, old, 200-len(left))

			next := open(t, other,
				BacklogOptions{Policy: "stripe", Partition: partition, Partitions: partitions,
					Epoch: 9})
			if got := seqs(receive(t, next, len(left))); !slices.Equal(got, left) {
				t.Fatalf("the new owner got %v, want %v", got, left)
			}
			if err := broken(t, old); err == nil {
				t.Error("the old owner was not told")
			}
			for _, seq := range left {
				old.Done(seq)
			}
			ctx := natstest.Context(t)
			if err := b.nc.FlushWithContext(ctx); err != nil {
				t.Fatal(err)
			}
			if n, err := b.Depth(ctx, "stripe"); err != nil || n != uint64(len(left)) {
				t.Errorf("late acknowledgements left %d of %d jobs; %v", n, len(left), err)
			}
			publish(t, b, "stripe", k, 1)
			receive(t, next, 1)
			for _, seq := range left {
				next.Done(seq)
			}
			confirm(t, next, len(left))
			if n, err := b.Depth(ctx, "stripe"); err != nil || n != 1 {
				t.Errorf("depth %d, %v", n, err)
			}
			// The frozen predecessor cannot take it back.
			_, err := b.OpenBacklog(ctx,
				BacklogOptions{Policy: "stripe", Partition: partition, Partitions: partitions,
					Epoch: 5})
			if !errors.Is(err, ErrConflict) {
				t.Errorf("opening with an old epoch: %v, want ErrConflict", err)
			}
		})
	}
}

func TestOpeningTheSameEpochStartsOver(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	publish(t, b, "stripe", "a", 5)
	first := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	receive(t, first, 5)
	if err := first.Close(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	receive(t, open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1}), 5)
}

func TestOpenBacklogRefusals(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 4))
	ctx := natstest.Context(t)
	if _, err := b.OpenBacklog(ctx,
		BacklogOptions{Policy: "nowhere", Partitions: 1, Epoch: 1}); !errors.Is(err, ErrNoStream) {
		t.Errorf("no stream: %v", err)
	}
	_, err := b.OpenBacklog(ctx, BacklogOptions{Policy: "stripe", Partitions: 8, Epoch: 1})
	if immutable, ok := errors.AsType[*ImmutableError](err); !ok ||
		immutable.Field != "partitions" {
		t.Errorf("other partitions: %v", err)
	}
	for _, o := range []BacklogOptions{{}, {Partition: 4, Partitions: 4},
		{Partition: -1, Partitions: 4}} {
		o.Policy = "stripe"
		if _, err := b.OpenBacklog(ctx, o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// A foreign consumer that takes the jobs must not make opening hang.
func TestForeignConsumer(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	if _, err := b.js.CreateConsumer(natstest.Context(t), "PENSTOCK_stripe",
		jetstream.ConsumerConfig{
			Durable: "monitor", AckPolicy: jetstream.AckExplicitPolicy,
		}); err != nil {
		t.Fatal(err)
	}
	_, err := b.OpenBacklog(context.Background(),
		BacklogOptions{Policy: "stripe", Partitions: 1, Epoch: 1})
	if err == nil || !strings.Contains(err.Error(), "a foreign consumer") {
		t.Errorf("got %v", err)
	}
}
