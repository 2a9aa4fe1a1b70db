package workers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

// A drainer whose server limits messages to 68 KiB ends in order, even with running jobs to hand
// over and more buckets' clocks than fit in a message.
func TestADrainerOfAServerWithSmallMessagesHandsOver(t *testing.T) {
	s, err := server.NewServer(&server.Options{
		Host:       "127.0.0.1",
		Port:       -1,
		JetStream:  true,
		StoreDir:   t.TempDir(),
		NoSigs:     true,
		MaxPayload: 68 << 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(deadline) {
		t.Fatal("the server is not ready")
	}
	b := &bench{t: t, url: s.ClientURL()}
	b.setUp(policy.Policy{Name: "api",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 100,
			Outflow: algorithms.Rate{Count: 1, Per: time.Hour}},
		Partitions: 1, Workers: 2000, Timeout: policy.Duration(time.Hour)})
	b.publishTo("api", func(i int) string { return fmt.Sprintf("tenant.%04d", i) }, 0, 1500)
	running, finish := make(chan struct{}, 1500), make(chan struct{})
	stop := b.drain(Options{Lease: time.Minute,
		Grace: 4 * deadline}, map[string]Handler{"api": func(ctx context.Context, _ Job) error {
		running <- struct{}{}
		select {
		case <-finish:
			return nil
		case <-ctx.Done():
			return errors.New("interrupted")
		}
	}})
	for range 1500 {
		<-running
	}
	var idle seen
	b.drain(Options{Lease: time.Minute}, map[string]Handler{"api": idle.handle})
	former := b.owner("api.0").Owner
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	b.until("the other drainer owns it", func() bool {
		now := b.owner("api.0")
		return !now.Released && now.Owner != former && len(now.Running) == 1500
	})
	close(finish)
	<-stopped
	b.empty("api")
	if n := len(idle.all()); n > 0 {
		t.Errorf("%d jobs ran twice", n)
	}
}
