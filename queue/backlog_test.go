package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/queue/embedded"
)

func seqs(arrived []Arrived) []uint64 {
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
		if err := b.nc.Publish(b.names.Jobs("stripe", Key(fmt.Sprint("k", i%7))), []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	for i, a := range receive(t, l, jobs) {
		if a.Seq != uint64(i+1) || string(a.Body) != fmt.Sprint(i) || a.Key != Key(fmt.Sprint("k", i%7)) || a.Size != len(a.Body) ||
			a.Lean || a.Malformed != nil || a.Cost != 1 || a.Header != nil || a.Partition != 0 || time.Since(a.Stored) > time.Minute {
			t.Fatalf("arrival %d is %+v", i, a)
		}
	}
	publish(t, b, "stripe", "later", 1)
	if a := receive(t, l, 1)[0]; a.Seq != jobs+1 {
		t.Errorf("got %d", a.Seq)
	}
	info, err := b.streamInfo(testContext(t), "PENSTOCK_stripe", "")
	if err != nil || !l.StreamCreated().Equal(info.Created) {
		t.Errorf("stream created %v, want %v; %v", l.StreamCreated(), info.Created, err)
	}
}

func TestBacklogOfOnePartition(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 4))
	want := map[int]int{}
	for i := range 40 {
		k := Key(fmt.Sprint("k", i))
		want[Partition(b.names.Jobs("stripe", k), 4)]++
		publish(t, b, "stripe", k, 1)
	}
	for partition := range 4 {
		l := open(t, b, BacklogOptions{Policy: "stripe", Partition: partition, Partitions: 4, Epoch: 1})
		for _, a := range receive(t, l, want[partition]) {
			if a.Partition != partition {
				t.Errorf("partition %d got %+v", partition, a)
			}
		}
	}
}

// TestConsumerOfTheContract pins the settings, and that nothing of the server's removes the consumer of an owner that does
// not pull for a while.
func TestConsumerOfTheContract(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 4))
	open(t, b, BacklogOptions{Policy: "stripe", Partition: 2, Partitions: 4, Epoch: 77})
	consumer, err := b.js.Consumer(testContext(t), "PENSTOCK_stripe", "valve-2-77")
	if err != nil {
		t.Fatal(err)
	}
	c := consumer.CachedInfo().Config
	if c.AckPolicy != jetstream.AckExplicitPolicy || c.AckWait != 365*24*time.Hour || c.MaxAckPending != -1 || c.MaxDeliver != -1 ||
		!c.MemoryStorage || c.InactiveThreshold != 0 || c.HeadersOnly || c.FilterSubject != "penstock.queue.stripe.2.>" {
		t.Errorf("consumer %+v", c)
	}
	apply(t, b, paced("single", 10, 1))
	open(t, b, BacklogOptions{Policy: "single", Epoch: 1})
	if consumer, err = b.js.Consumer(testContext(t), "PENSTOCK_single", "valve-0-1"); err != nil {
		t.Fatal(err)
	}
	if c := consumer.CachedInfo().Config; c.FilterSubject != "" || len(c.FilterSubjects) != 0 {
		t.Errorf("the consumer of a single partition has the filter %q", c.FilterSubject)
	}
}

// TestTakeoverHandsOverEverythingUnacknowledged: delete and create delivers all that is still stored, in order, to the new
// owner alone, and the old owner's late acknowledgements have no effect.
func TestTakeoverHandsOverEverythingUnacknowledged(t *testing.T) {
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			s := startServer(t, embedded.Options{})
			b, other := brokerOver(t, connect(t, s)), brokerOver(t, connect(t, s))
			apply(t, b, paced("stripe", 1000, partitions))
			const k = Key("tenant-7")
			partition := Partition(b.names.Jobs("stripe", k), partitions)
			publish(t, b, "stripe", k, 200)

			old := open(t, b, BacklogOptions{Policy: "stripe", Partition: partition, Partitions: partitions, Epoch: 5})
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

			next := open(t, other, BacklogOptions{Policy: "stripe", Partition: partition, Partitions: partitions, Epoch: 9})
			if got := seqs(receive(t, next, len(left))); !slices.Equal(got, left) {
				t.Fatalf("the new owner got %v, want %v", got, left)
			}
			if err := broken(t, old); err == nil {
				t.Error("the old owner was not told")
			}
			for _, seq := range left {
				old.Done(seq)
			}
			ctx := testContext(t)
			if err := b.nc.FlushWithContext(ctx); err != nil {
				t.Fatal(err)
			}
			if n, err := b.Depth(ctx, "stripe"); err != nil || n != uint64(len(left)) {
				t.Errorf("late acknowledgements left %d of %d jobs; %v", n, len(left), err)
			}
			// The new owner's count, and new jobs go to it alone.
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
			_, err := b.OpenBacklog(ctx, BacklogOptions{Policy: "stripe", Partition: partition, Partitions: partitions, Epoch: 5})
			if !errors.Is(err, ErrConflict) {
				t.Errorf("opening with an old epoch: %v, want ErrConflict", err)
			}
		})
	}
}

func TestOpeningTheSameEpochBeginsAnew(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	publish(t, b, "stripe", "a", 5)
	first := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	receive(t, first, 5)
	if err := first.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	receive(t, open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1}), 5)
}

func TestOpenBacklogRefusals(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 4))
	ctx := testContext(t)
	if _, err := b.OpenBacklog(ctx, BacklogOptions{Policy: "nowhere", Partitions: 1, Epoch: 1}); !errors.Is(err, ErrNoStream) {
		t.Errorf("no stream: %v", err)
	}
	_, err := b.OpenBacklog(ctx, BacklogOptions{Policy: "stripe", Partitions: 8, Epoch: 1})
	if immutable, ok := errors.AsType[*ImmutableError](err); !ok || immutable.Field != "partitions" {
		t.Errorf("other partitions: %v", err)
	}
	for _, o := range []BacklogOptions{{}, {Partition: 4, Partitions: 4}, {Partition: -1, Partitions: 4}} {
		o.Policy = "stripe"
		if _, err := b.OpenBacklog(ctx, o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// TestForeignConsumer: a consumer that is not ours takes the jobs; opening does not go on for ever.
func TestForeignConsumer(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	if _, err := b.js.CreateConsumer(testContext(t), "PENSTOCK_stripe", jetstream.ConsumerConfig{
		Durable: "monitor", AckPolicy: jetstream.AckExplicitPolicy,
	}); err != nil {
		t.Fatal(err)
	}
	_, err := b.OpenBacklog(context.Background(), BacklogOptions{Policy: "stripe", Partitions: 1, Epoch: 1})
	if err == nil || !strings.Contains(err.Error(), "somebody else's consumer") {
		t.Errorf("got %v", err)
	}
}

func TestBacklogBreaks(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, b *Broker, nc *nats.Conn){
		"the connection is lost": func(t *testing.T, _ *Broker, nc *nats.Conn) {
			if err := nc.ForceReconnect(); err != nil {
				t.Fatal(err)
			}
		},
		"the connection is closed": func(_ *testing.T, _ *Broker, nc *nats.Conn) { nc.Close() },
		"the consumer is deleted": func(t *testing.T, b *Broker, _ *nats.Conn) {
			if err := b.js.DeleteConsumer(testContext(t), "PENSTOCK_stripe", "valve-0-1"); err != nil {
				t.Fatal(err)
			}
		},
		"the stream is deleted": func(t *testing.T, b *Broker, _ *nats.Conn) {
			if err := b.js.DeleteStream(testContext(t), "PENSTOCK_stripe"); err != nil {
				t.Fatal(err)
			}
		},
		"somebody else takes a delivery": func(t *testing.T, b *Broker, _ *nats.Conn) {
			// As a lost one: the consumer has delivered it, and not to us.
			thief, err := b.nc.SubscribeSync(b.nc.NewInbox())
			if err != nil {
				t.Fatal(err)
			}
			stolen := false
			for i := 0; i < 50 && !stolen; i++ {
				pull := []byte(`{"batch":1,"expires":5000000000}`)
				if err := b.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.PENSTOCK_stripe.valve-0-1", thief.Subject, pull); err != nil {
					t.Fatal(err)
				}
				publish(t, b, "stripe", Key(fmt.Sprint("k", i)), 3)
				if n, _, err := thief.Pending(); err != nil {
					t.Fatal(err)
				} else {
					stolen = n > 0
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, embedded.Options{})
			nc := connect(t, s)
			b := brokerOver(t, connect(t, s))
			apply(t, b, paced("stripe", 10, 1))
			l := open(t, brokerOver(t, nc), BacklogOptions{Policy: "stripe", Epoch: 1})
			publish(t, b, "stripe", "a", 1)
			receive(t, l, 1)
			harm(t, b, nc)
			if err := broken(t, l); err == nil {
				t.Error("broken without an error")
			}
			eventually(t, "arrivals are closed", func() bool {
				select {
				case _, ok := <-l.Arrivals():
					return !ok
				default:
					return false
				}
			})
		})
	}
}

// TestLostTailIsNoticed: the last deliveries are lost and nothing follows that would show a gap.
func TestLostTailIsNoticed(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	publish(t, b, "stripe", "a", 3)
	receive(t, l, 3)
	// The server's view runs ahead of ours: a pull of somebody else's takes the next job.
	thief, err := b.nc.SubscribeSync(b.nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a delivery went astray", func() bool {
		pull := []byte(`{"batch":1,"expires":60000000000}`)
		if err := b.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.PENSTOCK_stripe.valve-0-1", thief.Subject, pull); err != nil {
			t.Fatal(err)
		}
		if _, err := request(t, b.nc, "penstock.jobs.stripe.b", "", nil); err != nil && !errors.Is(translate(err), ErrFull) {
			t.Fatal(err)
		}
		n, _, err := thief.Pending()
		return n > 0 && err == nil
	})
	if err := broken(t, l); err == nil {
		t.Error("broken without an error")
	}
}

// TestStrangeJobsArriveMalformed: what plain clients may publish and no EncodeKey produces comes as a malformed job of no
// bucket, and can be finished by its sequence without touching others.
func TestStrangeJobsArriveMalformed(t *testing.T) {
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			b := newBroker(t)
			apply(t, b, paced("stripe", 100, partitions))
			tails := []string{"*", ">", "a.*", "a.>", "%zz", "%2a", "%2A", "é", "a.%", "%41", "b*c"}
			good := map[string]bool{"%2A": true, "a.%": true}
			for _, tail := range tails {
				if _, err := request(t, b.nc, "penstock.jobs.stripe."+tail, tail, nil); err != nil {
					t.Fatalf("publish to %q: %v", tail, err)
				}
			}
			if _, err := request(t, b.nc, "penstock.jobs.stripe.ok", "ok", nats.Header{"penstock-cost": {"many"}}); err != nil {
				t.Fatal(err)
			}
			at := func(tail string) int {
				for token := range strings.SplitSeq(tail, ".") {
					if token == "*" || token == ">" {
						return 0 // not transformed
					}
				}
				return Partition("penstock.jobs.stripe."+tail, partitions)
			}
			keys := map[Key]string{}
			arrived := 0
			for partition := range partitions {
				l := open(t, b, BacklogOptions{Policy: "stripe", Partition: partition, Partitions: partitions, Epoch: 1})
				expected := 0
				for _, tail := range append(tails, "ok") {
					if at(tail) == partition {
						expected++
					}
				}
				for _, a := range receive(t, l, expected) {
					tail := string(a.Body)
					arrived++
					if (a.Malformed == nil) != good[tail] {
						t.Errorf("tail %q: malformed %v", tail, a.Malformed)
					}
					if other, taken := keys[a.Key]; taken {
						t.Errorf("%q and %q share the key %q", tail, other, a.Key)
					}
					keys[a.Key] = tail
					if a.Partition != partition {
						t.Errorf("tail %q came from partition %d, not %d", tail, a.Partition, partition)
					}
					d := DeadLetter{Policy: "stripe", Key: a.Key, Seq: a.Seq, Partition: a.Partition, Stored: a.Stored, Reason: "malformed",
						Header: a.Header, Body: a.Body}
					if _, err := b.Bury(testContext(t), d); err != nil {
						t.Errorf("bury %q: %v", tail, err)
					}
					l.Done(a.Seq)
				}
				confirm(t, l, expected)
			}
			if n, err := b.Depth(testContext(t), "stripe"); err != nil || n != 0 || arrived != len(tails)+1 {
				t.Errorf("%d arrived, %d stay, %v", arrived, n, err)
			}
		})
	}
}

// TestStraysAreBuriedOnTheirOwn: jobs outside all partitions are handed over and deleted while the backlog stays open, and
// before and after it is opened anew.
func TestStraysAreBuriedOnTheirOwn(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 4))
	key := Key("a")
	for i := 0; Partition("penstock.jobs.stripe."+string(key), 4) != 0; i++ {
		key = Key(fmt.Sprint("a", i))
	}
	stray := func(tail string) {
		t.Helper()
		if _, err := request(t, b.nc, "penstock.jobs.stripe."+tail, tail, nil); err != nil {
			t.Fatal(err)
		}
	}
	stray("before.*")
	publish(t, b, "stripe", key, 2)
	l := open(t, b, BacklogOptions{Policy: "stripe", Partitions: 4, Epoch: 1})
	got := receive(t, l, 3)
	stray("while.>")
	stray("while.*.it.is.open")
	got = append(got, receive(t, l, 2)...)
	publish(t, b, "stripe", key, 1)
	got = append(got, receive(t, l, 1)...)
	for _, a := range got {
		if a.Partition != 0 || a.Lean || (a.Malformed == nil) != (a.Key == key) || a.Malformed != nil && len(a.Body) == 0 {
			t.Errorf("got %+v", a)
		}
		if a.Seq != 5 { // it is finished only when the backlog has been opened again
			l.Done(a.Seq)
		}
	}
	confirm(t, l, 5)
	again := open(t, b, BacklogOptions{Policy: "stripe", Partitions: 4, Epoch: 1})
	again.Done(5) // as an owner does that finished it in between
	if a := receive(t, again, 1)[0]; a.Seq != 5 || a.Malformed == nil {
		t.Errorf("got %+v", a)
	}
	confirm(t, again, 1)
	publish(t, b, "stripe", key, 1)
	again.Done(receive(t, again, 1)[0].Seq)
	confirm(t, again, 1)
	if n, err := b.Depth(testContext(t), "stripe"); err != nil || n != 0 {
		t.Errorf("%d stay, %v", n, err)
	}
}

func TestLeanBacklog(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 1))
	body := bytes.Repeat([]byte("x"), 9000)
	header := nats.Header{"Penstock-Cost": {"2"}}
	for range 3 {
		if _, err := request(t, b.nc, "penstock.jobs.stripe.a", string(body), header); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, b, "stripe", "a", 1)
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	arrived := receive(t, l, 4)
	for i, a := range arrived[:3] {
		if !a.Lean || a.Body != nil || a.Size != len(body) || a.Cost != 2 || len(a.Header) != 1 {
			t.Fatalf("arrival %d is %+v", i, a)
		}
		full, err := l.Body(testContext(t), a.Seq)
		if err != nil || !bytes.Equal(full.Body, body) || full.Lean || full.Size != len(body) || full.Key != a.Key || full.Cost != 2 ||
			!full.Stored.Equal(a.Stored) || len(full.Header) != 1 {
			t.Fatalf("the whole of arrival %d is %+v, %v", i, full, err)
		}
	}
	if a := arrived[3]; a.Size != 1 || a.Header != nil || !a.Lean {
		t.Errorf("a small one is %+v", a)
	}
	if _, err := l.Body(testContext(t), 99); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

// TestOutgrownBacklogBreaks: the choice to deliver bodies has become the wrong one.
func TestOutgrownBacklogBreaks(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 1))
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	body := string(make([]byte, 1<<20))
	go func() {
		for range l.Arrivals() {
			continue
		}
	}()
	for i := range 20 {
		if _, err := request(t, b.nc, b.names.Jobs("stripe", Key(fmt.Sprint(i))), body, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := broken(t, l); !errors.Is(err, ErrShape) {
		t.Fatalf("got %v, want ErrShape", err)
	}
	if a := receive(t, open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1}), 20)[0]; !a.Lean {
		t.Errorf("opened again it still delivers bodies")
	}
}

// TestMemoryConsumerIsGoneAfterARestart pins why the owner opens its backlog again after a reconnect, and that nothing is
// lost by that.
func TestMemoryConsumerIsGoneAfterARestart(t *testing.T) {
	dir, address := t.TempDir(), freeAddress(t)
	s := startServer(t, embedded.Options{Dir: dir, Listen: address})
	nc, err := nats.Connect(s.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
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
	startServer(t, embedded.Options{Dir: dir, Listen: address})
	eventually(t, "the connection is back", nc.IsConnected)
	if _, err := b.js.Consumer(testContext(t), "PENSTOCK_stripe", "valve-0-1"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("the consumer: %v, want not found", err)
	}
	if err := l.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	again := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	if got := seqs(receive(t, again, 6)); !slices.Equal(got, []uint64{5, 6, 7, 8, 9, 10}) {
		t.Errorf("got %v", got)
	}
}
