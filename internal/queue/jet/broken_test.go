package jet

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestBacklogBreaks(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, b *Broker, nc *nats.Conn){
		"the connection is lost": func(t *testing.T, _ *Broker, nc *nats.Conn) {
			if err := nc.ForceReconnect(); err != nil {
				t.Fatal(err)
			}
		},
		"the connection is closed": func(_ *testing.T, _ *Broker, nc *nats.Conn) { nc.Close() },
		"the consumer is deleted": func(t *testing.T, b *Broker, _ *nats.Conn) {
			if err := b.js.DeleteConsumer(natstest.Context(t), "PENSTOCK_stripe",
				"valve-0-1"); err != nil {
				t.Fatal(err)
			}
		},
		"the stream is deleted": func(t *testing.T, b *Broker, _ *nats.Conn) {
			if err := b.js.DeleteStream(natstest.Context(t), "PENSTOCK_stripe"); err != nil {
				t.Fatal(err)
			}
		},
		"somebody else takes a delivery": func(t *testing.T, b *Broker, _ *nats.Conn) {
			thief, err := b.nc.SubscribeSync(b.nc.NewInbox())
			if err != nil {
				t.Fatal(err)
			}
			stolen := false
			for i := 0; i < 50 && !stolen; i++ {
				pull := []byte(`{"batch":1,"expires":5000000000}`)
				if err := b.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.PENSTOCK_stripe.valve-0-1",
					thief.Subject, pull); err != nil {
					t.Fatal(err)
				}
				publish(t, b, "stripe", queue.Key(fmt.Sprint("k", i)), 3)
				if n, _, err := thief.Pending(); err != nil {
					t.Fatal(err)
				} else {
					stolen = n > 0
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.Start(t, embedded.Options{})
			nc := natstest.Connect(t, s)
			b := brokerOver(t, natstest.Connect(t, s))
			apply(t, b, paced("stripe", 10, 1))
			l := open(t, brokerOver(t, nc), BacklogOptions{Policy: "stripe", Epoch: 1})
			publish(t, b, "stripe", "a", 1)
			receive(t, l, 1)
			harm(t, b, nc)
			if err := broken(t, l); err == nil {
				t.Error("broken without an error")
			}
		})
	}
}

// The last deliveries are lost, and no later one shows a gap.
func TestLostTailIsNoticed(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	publish(t, b, "stripe", "a", 3)
	receive(t, l, 3)
	thief, err := b.nc.SubscribeSync(b.nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a delivery went astray", func() bool {
		pull := []byte(`{"batch":1,"expires":60000000000}`)
		if err := b.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.PENSTOCK_stripe.valve-0-1",
			thief.Subject, pull); err != nil {
			t.Fatal(err)
		}
		if _, err := request(t, b.nc, "penstock.jobs.stripe.b", "", nil); err != nil &&
			!errors.Is(jsapi.Translate(err), ErrFull) {
			t.Fatal(err)
		}
		n, _, err := thief.Pending()
		return n > 0 && err == nil
	})
	if err := broken(t, l); err == nil {
		t.Error("broken without an error")
	}
}

func TestAnOutgrownBacklogTurnsBodiesOff(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	apply(t, b, paced("stripe", 1000, 1))
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	body, lean := string(make([]byte, 1<<20)), false
	waittest.Until(t, "jobs come without bodies", func() bool {
		if _, err := request(t, b.nc, b.names.Jobs("stripe", "a"), body, nil); err != nil {
			t.Fatal(err)
		}
		a := receive(t, l, 1)[0]
		if lean = a.Lean; a.Size != len(body) || lean == (len(a.Body) > 0) {
			t.Fatalf("job %d: %d bytes, lean %t, with %d", a.Seq, a.Size, a.Lean, len(a.Body))
		}
		return lean
	})
}

func TestMemoryConsumerIsGoneAfterARestart(t *testing.T) {
	dir, address := t.TempDir(), proctest.FreeAddress(t)
	s := natstest.Start(t, embedded.Options{Dir: dir, Listen: address})
	nc := natstest.Reconnecting(t, s.URL())
	b := brokerOver(t, nc)
	apply(t, b, paced("stripe", 100, 1))
	publish(t, b, "stripe", "a", 10)
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	for _, a := range receive(t, l, 10)[:4] {
		l.Done(a.Seq)
	}
	confirm(t, l, 4)
	s.Shutdown()
	if err := broken(t, l); err == nil {
		t.Fatal("broken without an error")
	}
	natstest.Start(t, embedded.Options{Dir: dir, Listen: address})
	waittest.Until(t, "the connection is back", nc.IsConnected)
	if _, err := b.js.Consumer(natstest.Context(t), "PENSTOCK_stripe", "valve-0-1"); !errors.Is(err,
		jetstream.ErrConsumerNotFound) {
		t.Errorf("the consumer: %v, want not found", err)
	}
	if err := l.Close(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	again := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	if got := seqs(receive(t, again, 6)); !slices.Equal(got, []uint64{5, 6, 7, 8, 9, 10}) {
		t.Errorf("got %v", got)
	}
}

// A job that the consumer passes without a delivery comes anyway, and can be finished.
func TestAJobThatTheConsumerPassesComes(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 2} {
		b := newBroker(t)
		apply(t, b, paced("stripe", 10, partitions))
		door := "penstock.jobs.stripe."
		mine := job.Partition(door+"a", partitions)
		l := open(t, b, BacklogOptions{Policy: "stripe", Partition: mine, Partitions: partitions})
		sweepOf(t, l)
		request(t, b.nc, fmt.Sprintf("$JS.API.CONSUMER.RESET.PENSTOCK_stripe.valve-%d-0", mine),
			`{"seq":2}`, nil)
		publish(t, b, "stripe", "a", 2)
		if first := receive(t, l, 1)[0]; first.Seq != 2 {
			t.Fatalf("job %d came first: the consumer did not pass the first", first.Seq)
		}
		if then := receive(t, l, 1)[0]; then.Seq != 1 || string(then.Body) == "" {
			t.Fatalf("then came %+v", then)
		}
		l.Done(1)
		l.Done(2)
		if got := confirm(t, l, 2); !got[1] || !got[2] {
			t.Errorf("confirmed are %v", got)
		}
		info, err := b.js.StreamInfo(natstest.Context(t), "PENSTOCK_stripe", "")
		if err != nil || info.State.Msgs != 0 {
			t.Errorf("%d jobs are left, %v", info.State.Msgs, err)
		}
	}
}
