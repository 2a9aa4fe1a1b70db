package jet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// TestLoweringDeletes pins why a capacity is not simply updated.
func TestLoweringDeletes(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	publish(t, b, "stripe", "a", 10)
	info, err := b.js.StreamInfo(natstest.Context(t), "PENSTOCK_stripe", "")
	if err != nil {
		t.Fatal(err)
	}
	info.Config.MaxMsgsPerSubject = 4
	if err := b.js.UpdateStream(natstest.Context(t), info.Config); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Depth(natstest.Context(t), "stripe"); err != nil || n != 4 {
		t.Errorf("depth %d, %v: the server no longer deletes, and lowering can become simpler", n,
			err)
	}
}

func TestLoweringIsRefusedWhileABucketIsDeeper(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 4))
	publish(t, b, "stripe", "a", 3)
	publish(t, b, "stripe", "b", 7)
	err := b.Apply(natstest.Context(t), paced("stripe", 5, 4))
	if inUse, ok := errors.AsType[*CapacityInUseError](err); !ok ||
		*inUse != (CapacityInUseError{"stripe", "b", 7, 5}) {
		t.Fatalf("got %v", err)
	}
	publish(t, b, "stripe", "b", 3) // the door is open again, with the old capacity
	if _, err := request(t, b.nc, "penstock.jobs.stripe.b", "",
		nil); !errors.Is(jsapi.Translate(err), ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	if depths, err := b.Depths(natstest.Context(t), "stripe"); err != nil || depths["a"] != 3 ||
		depths["b"] != 10 || len(depths) != 2 {
		t.Errorf("depths %v, %v", depths, err)
	}
}

func TestAClosedDoorIsReopened(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	b.replicas = 3
	if err := b.Apply(natstest.Context(t), paced("stripe", 5, 1)); err == nil {
		t.Fatal("the server has changed the stream")
	}
	publish(t, b, "stripe", "a", 10)
}

func TestFewerJobsThanThereAreDeletesNone(t *testing.T) {
	b := newBroker(t)
	p := paced("stripe", 2, 2)
	p.MaxJobs = 9
	apply(t, b, p)
	for _, key := range []queue.Key{"a", "b", "c", "d"} {
		publish(t, b, "stripe", key, 2)
	}
	for _, c := range []struct {
		jobs, stream int64
		full         bool
	}{{3, 3, true}, {9, 9, false}, {8, 8, true}, {0, policy.DefaultJobs, false}} {
		p.MaxJobs = c.jobs
		apply(t, b, p)
		info, err := b.js.StreamInfo(natstest.Context(t), "PENSTOCK_stripe", "")
		if err != nil || info.Config.MaxMsgs != c.stream || info.State.Msgs != 8 {
			t.Fatalf("max_jobs %d: the stream takes %d and holds %d, %v", c.jobs,
				info.Config.MaxMsgs, info.State.Msgs, err)
		}
		ack, err := request(t, b.nc, "penstock.jobs.stripe.e", "", nil)
		if full := errors.Is(jsapi.Translate(err), ErrMostJobs); full != c.full {
			t.Fatalf("max_jobs %d: one more job is %v", c.jobs, err)
		}
		if err == nil {
			var answer struct{}
			if err := b.js.Call(natstest.Context(t), "$JS.API.STREAM.MSG.DELETE.PENSTOCK_stripe",
				map[string]uint64{"seq": ack.Seq}, &answer); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestLoweringUnderFlowLosesNothing lowers and raises a capacity while publishers and a drainer are
// busy; every acknowledged job must be done or stored.
func TestLoweringUnderFlowLosesNothing(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, embedded.Options{})
	b := brokerOver(t, natstest.Connect(t, s))
	const keys, most, least = 4, 40, 15
	apply(t, b, paced("stripe", most, 2))

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		accepted = map[uint64]bool{}
		done     = map[uint64]bool{}
		refused  atomic.Int64
	)
	for i := range keys {
		nc := natstest.Connect(t, s)
		wg.Go(func() {
			subject := b.names.Jobs("stripe", queue.Key(fmt.Sprint("k", i%keys)))
			for ctx.Err() == nil {
				ack, err := request(t, nc, subject, "x", nil)
				switch {
				case err == nil:
					mu.Lock()
					accepted[ack.Seq] = true
					mu.Unlock()
				case errors.Is(jsapi.Translate(err), ErrFull), errors.Is(err, nats.ErrNoResponders),
					errors.Is(err, nats.ErrTimeout):
					refused.Add(1)
				default:
					t.Errorf("publish: %v", err)
					return
				}
			}
		})
	}
	for partition := range 2 {
		wg.Go(func() {
			// Jobs finish late, so buckets alternate between full and half empty.
			var held []uint64
			for ctx.Err() == nil {
				l := open(t, b,
					BacklogOptions{Policy: "stripe", Partition: partition, Partitions: 2, Epoch: 1})
				held = held[:0]
				for {
					u, err := l.Next(ctx)
					if err != nil {
						break
					}
					for _, a := range u.Arrived {
						held = append(held, a.Seq)
					}
					for len(held) > 25 {
						mu.Lock()
						done[held[0]] = true
						mu.Unlock()
						l.Done(held[0])
						held = held[1:]
					}
				}
			}
		})
	}
	lowered, inUse := 0, 0
	for i := 0; (lowered < 10 || inUse < 3) && i < 400; i++ {
		capacity := int64(least)
		if i%3 == 2 {
			capacity = 5
		}
		err := b.Apply(natstest.Context(t), paced("stripe", capacity, 2))
		switch _, refused := errors.AsType[*CapacityInUseError](err); {
		case err == nil:
			lowered++
		case refused:
			inUse++
		case !errors.Is(err, ErrUnavailable):
			t.Fatal(err)
		}
		for err = ErrUnavailable; errors.Is(err, ErrUnavailable); {
			err = b.Apply(natstest.Context(t), paced("stripe", most, 2))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	stop()
	wg.Wait()
	t.Logf("lowered %d times, refused %d times; %d jobs accepted, %d publishes refused", lowered,
		inUse, len(accepted),
		refused.Load())
	if lowered == 0 || inUse == 0 {
		t.Errorf("lowered %d times, refused %d times: the test has lost its grip", lowered, inUse)
	}
	for seq := range accepted {
		if !done[seq] {
			if _, err := b.js.Message(natstest.Context(t), "PENSTOCK_stripe",
				map[string]uint64{"seq": seq}); err != nil {
				t.Errorf("job %d was accepted and is lost: %v", seq, err)
			}
		}
	}
}
