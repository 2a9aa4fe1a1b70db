package workers

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
)

// The new stream counts from 1 again; state of old sequences must not affect new jobs.
func TestAPolicyThatComesBackAtOnceRunsAllItsJobs(t *testing.T) {
	t.Parallel()
	p := policy.Policy{Name: "api",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 100,
			Outflow: algorithms.Rate{Count: 1000, Per: time.Second}},
		Partitions: 2}
	b := newBench(t, p)
	var ran seen
	for range 2 {
		b.drain(Options{}, map[string]Handler{"api": ran.handle})
	}
	const each = 20
	for round := range 8 {
		if round > 0 {
			b.put(p)
		}
		b.publish("api", "a", round*each, each)
		b.empty("api")
		b.answered(func() error {
			_, _, err := store.New(b.broker, nil).Change(t.Context(), "api",
				store.Change{Act: store.Delete})
			return err
		})
		b.forget("api")
	}
	ran.mu.Lock()
	defer ran.mu.Unlock()
	bodies := map[string]bool{}
	for _, job := range ran.jobs {
		bodies[string(job.Body)] = true
	}
	for n := range 8 * each {
		if !bodies[fmt.Sprint(n)] {
			t.Errorf("job %d never ran", n)
		}
	}
}

func TestADrainerEndsAlsoWhenAPolicysStreamIsGone(t *testing.T) {
	p := policy.Policy{Name: "api",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 100,
			Outflow: algorithms.Rate{Count: 1000, Per: time.Second}},
		Partitions: 2}
	b := newBench(t, p)
	var ran seen
	stop := b.drain(Options{Grace: 2 * deadline}, map[string]Handler{"api": ran.handle})
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
	stop()
}
