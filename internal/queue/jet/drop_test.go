package jet

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// Jobs that were read are dropped even after the caller's deadline; otherwise repeated calls to a
// slow server would never drop a job.
func TestDropBucketInLittleTime(t *testing.T) {
	server := natstest.Start(t, embedded.Options{})
	b, watcher := brokerOver(t, natstest.Connect(t, server)), natstest.Connect(t, server)
	apply(t, b, paced("stripe", 100, 1))
	publish(t, b, "stripe", "a", 50)
	ctx, end := context.WithCancel(natstest.Context(t))
	looks := 0
	_, err := watcher.Subscribe("$JS.API.STREAM.MSG.GET.PENSTOCK_stripe", func(*nats.Msg) {
		if looks++; looks == 10 {
			end()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := watcher.Flush(); err != nil {
		t.Fatal(err)
	}
	removed, err := b.DropBucket(ctx, "stripe", 0, "a")
	depth, lookErr := b.Depth(natstest.Context(t), "stripe")
	if err != nil || lookErr != nil || removed == 0 || removed+int(depth) != 50 {
		t.Errorf("%d jobs were dropped, %v; %d are left, %v", removed, err, depth, lookErr)
	}
}
