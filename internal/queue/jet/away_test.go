package jet

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// TestOneOfThreeServersIsAway checks the number of copies, and lists dead letters, while one of
// three servers is down and after it came back.
func TestOneOfThreeServersIsAway(t *testing.T) {
	c := newCluster(t, false)
	b := c.broker
	apply(t, b, paced("stripe", 100, 1))
	const letters = 3
	for seq := range uint64(letters) {
		bury(t, b, DeadLetter{Policy: "stripe", Key: "k", Seq: seq + 1})
	}
	lacking := func(what string, want Copies) {
		t.Helper()
		waittest.Until(t, what, func() bool {
			s, err := b.Ration(natstest.Context(t))
			if err != nil {
				t.Log(err)
				return false
			}
			records := s.Copies["records"]
			return s.Copies["jobs"] == want && s.Copies["dead_letters"] == want &&
				(records.Lacking > 0) == (want.Lacking > 0) && records.Current == want.Current
		})
	}
	lacking("three copies are three", Copies{})
	c.stop(c.follower(b.names.Stream("stripe")))
	for range 60 {
		waittest.Until(t, "the letters are listed", func() bool {
			found, err := b.Letters("stripe").List(natstest.Context(t), 0, 10)
			if errors.Is(err, nats.ErrNoResponders) {
				t.Error(err)
			}
			return err == nil && len(found) == letters
		})
	}
	lacking("a copy of every stream is missed", Copies{Lacking: 1, Current: 2, Wanted: 3})
	for i := range c.servers {
		if !c.servers[i].Running() {
			c.start(i)
		}
	}
	lacking("three copies are three again", Copies{})
}

func TestTicksEndWhileNATSIsAway(t *testing.T) {
	server := natstest.Start(t, embedded.Options{Listen: "127.0.0.1:0"})
	b, err := NewBroker(natstest.Reconnecting(t, server.URL()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := cmp.Or(b.Setup(natstest.Context(t)),
		b.Schedules().SetUp(natstest.Context(t))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- b.Schedules().Ticks(ctx, func(Tick) (time.Duration, bool) { return 0, true })
	}()
	waittest.Until(t, "they are heard", func() bool {
		_, err := b.js.Consumer(natstest.Context(t), b.names.schedules(), "due")
		return err == nil
	})
	server.Shutdown()
	waittest.Until(t, "NATS is away", func() bool { return !b.nc.IsConnected() })
	began := time.Now()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("they ended after %v", took)
	}
}
