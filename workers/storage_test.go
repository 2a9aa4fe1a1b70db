package workers

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers/internal/core"
)

func (b *bench) hog() (release func()) {
	b.t.Helper()
	js, err := jetstream.New(b.nc)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx := b.t.Context()
	if _, err := js.CreateStream(ctx,
		jetstream.StreamConfig{Name: "HOG", Subjects: []string{"hog"}}); err != nil {
		b.t.Fatal(err)
	}
	for size := 1 << 20; size > 16; {
		if _, err := js.Publish(ctx, "hog", make([]byte, size)); err != nil {
			size /= 2
		}
	}
	return func() {
		if err := js.DeleteStream(ctx, "HOG"); err != nil {
			b.t.Error(err)
		}
	}
}

// Without room for a lease, the drainer's log, observer and health report it, and the recovery.
func TestALostLeaseIsReported(t *testing.T) {
	t.Parallel()
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir(), MaxStore: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	b := &bench{t: t, server: s}
	b.setUp(leaky("api", "100/s"))
	log := &waittest.Log{}
	var held atomic.Bool
	d, err := New(b.connect(),
		Options{OwnAll: true, Logger: slog.New(slog.NewTextHandler(log, nil)),
			Lease: 1_000_000_000,
			Sink:  on(jet.EventLease, func(e queue.Event) { held.Store(e.Value > 0) })})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Health(); !errors.Is(err, errNoLease) {
		t.Errorf("before it runs: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	b.until("the lease is held", func() bool { return held.Load() && d.Health() == nil })
	release := b.hog()
	b.until("it is said that the lease is lost", func() bool {
		return !held.Load() && errors.Is(d.Health(), errLeaseLost) &&
			log.Count("level=WARN msg=\"lease renewal fails:") > 0 &&
			log.Count("resource limits exceeded") > 0
	})
	release()
	b.until("lease renewed again", func() bool {
		return held.Load() && d.Health() == nil && log.Count("lease renewed again") > 0
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestALeaseIsLostWithoutAnError(t *testing.T) {
	var log waittest.Log
	l := newLoop(slog.New(slog.NewTextHandler(&log, nil)), queue.Sinks{})
	c := core.New(core.Options{Name: "d", Lease: time.Second, Random: func() float64 { return 0 }})
	c.Lease.Held, c.Connected = true, true
	p := &proof{loop: l, patient: time.Second}
	p.look(c, l.now())
	if err := p.health.Load(); !errors.Is(*err, errNoAnswer) ||
		log.Count(errNoAnswer.Error()) != 1 {
		t.Errorf("%v\n%s", *err, log.String())
	}
}

// On three nodes too, a policy that fills its part of the account's storage leaves room for leases
// and for other jobs.
func TestThreeNodesKeepRoomForLeases(t *testing.T) {
	servers, urls := threeNodes(t)
	const most = 96 << 20
	for _, s := range servers {
		account, err := s.LookupAccount(server.DEFAULT_GLOBAL_ACCOUNT)
		if err != nil {
			t.Fatal(err)
		}
		if err := account.UpdateJetStreamLimits(
			map[string]server.JetStreamAccountLimits{"": {MaxMemory: -1, MaxStore: most,
				MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1, MemoryMaxStreamBytes: -1,
				StoreMaxStreamBytes: -1}}); err != nil {
			t.Fatal(err)
		}
	}
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	broker, err := jet.NewBroker(nc, jet.Options{Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, nc: nc, broker: broker}
	b.until("JetStream is set up", func() bool { return broker.Setup(t.Context()) == nil })
	for _, name := range []string{"greedy", "modest"} {
		p := leaky(name, "10/s")
		p.Capacity, p.Partitions = policy.MaxCapacity, 1
		p.Outflow.Count = 1000
		b.until("the stream of "+name+" is there", func() bool {
			return broker.Apply(t.Context(), p) == nil
		})
	}
	producer := broker.NewProducer(jet.ProducerOptions{})
	fill := func(name string) (taken int) {
		for {
			_, err := producer.Publish(t.Context(),
				jet.Submission{Policy: name, Key: "a", Body: make([]byte, 512<<10)})
			if errors.Is(err, jet.ErrStreamFull) {
				return taken
			}
			if err != nil {
				t.Fatalf("%s, after %d jobs: %v", name, taken, err)
			}
			taken++
		}
	}
	greedy, modest := fill("greedy"), fill("modest")
	if greedy < 10 || modest < 10 {
		t.Errorf("%d and %d jobs of half a MiB were taken", greedy, modest)
	}
	if err := broker.Tables().Drainers.Set(t.Context(), "d1", []byte("lease"), 0); err != nil {
		t.Errorf("no room for a lease: %v", err)
	}
	if err := broker.Tables().Partitions.Set(t.Context(), "greedy.0.clocks", make([]byte, 512<<10),
		0); err != nil {
		t.Errorf("no room for a checkpoint: %v", err)
	}
}
