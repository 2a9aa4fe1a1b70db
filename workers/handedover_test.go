package workers

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
)

// The outcome of a job that outlasts its policy is not needed, and the process that ran it can end.
func TestOutcomesOfADeletedPolicyAreGivenUp(t *testing.T) {
	t.Parallel()
	p := policy.Policy{Name: "api",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 100,
			Outflow: algorithms.Rate{Count: 1000, Per: time.Second}},
		Partitions: 1}
	b := newBench(t, p)
	started, finish := make(chan struct{}), make(chan struct{})
	stop := b.drain(Options{Lease: 10 * time.Second,
		Grace: 4 * deadline}, map[string]Handler{"api": func(context.Context, Job) error {
		close(started)
		<-finish
		return nil
	}})
	b.publish("api", "a", 0, 1)
	<-started
	var idle seen
	b.drain(Options{Lease: 10 * time.Second}, map[string]Handler{"api": idle.handle})
	former := b.owner("api.0")
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	b.until("the other drainer owns it", func() bool {
		now := b.owner("api.0")
		return !now.Released && now.Owner != former.Owner
	})
	b.answered(func() error {
		_, _, err := store.New(b.broker, nil).Change(t.Context(), "api",
			store.Change{Act: store.Delete})
		return err
	})
	js, err := b.nc.JetStream(nats.MaxWait(deadline))
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream("PENSTOCK_api"); err != nil {
		t.Fatal(err)
	}
	b.forget("api")
	close(finish)
	<-stopped
}
