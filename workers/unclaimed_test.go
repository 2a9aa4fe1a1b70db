package workers

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
)

// No drainer keeps partitions of a retired policy, and when the policy returns its jobs run.
func TestPartitionsOfARetiredPolicyAreLetGoUntilItComesBack(t *testing.T) {
	p := policy.Policy{Name: "api",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 100,
			Outflow: algorithms.Rate{Count: 1000, Per: time.Second}},
		Partitions: 2}
	b := newBench(t, p)
	var ran seen
	for range 2 {
		b.drain(Options{}, map[string]Handler{"api": ran.handle})
	}
	b.publish("api", "a", 0, 20)
	b.empty("api")
	b.answered(func() error {
		_, _, err := store.New(b.broker, nil).Change(t.Context(), "api",
			store.Change{Act: store.Delete})
		return err
	})
	b.until("its stream is gone", func() bool {
		gone, err := b.broker.Retire(t.Context(), "api")
		return err == nil && gone
	})
	b.until("nobody owns its partitions", func() bool {
		return b.owner("api.0").Released && b.owner("api.1").Released
	})
	b.put(p)
	b.publish("api", "b", 20, 20)
	b.until("the jobs of its second life have run", func() bool { return len(ran.all()) == 40 })
}
