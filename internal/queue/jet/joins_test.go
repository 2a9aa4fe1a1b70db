package jet

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
)

// A worker of another program may know nothing of the cluster's replicas and bounds.
func TestAProcessThatJoinsChangesNoStream(t *testing.T) {
	nc := natstest.New(t)
	ctx := natstest.Context(t)
	setUp := func(joins bool) (most int64) {
		t.Helper()
		b, err := NewBroker(nc, Options{Joins: joins})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Setup(ctx); err != nil {
			t.Fatal(err)
		}
		stream, err := b.js.Stream(ctx, "KV_"+b.tables.Attempts.Bucket())
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().Config.MaxMsgs
	}
	usual := setUp(true) // creates what is missing
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(ctx, "KV_PENSTOCK_ATTEMPTS")
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.MaxMsgs = 7
	if _, err := js.UpdateStream(ctx, config); err != nil {
		t.Fatal(err)
	}
	if most := setUp(true); most != 7 {
		t.Errorf("one that joins made it %d", most)
	}
	if most := setUp(false); most != usual {
		t.Errorf("another one made it %d, want %d", most, usual)
	}
}
