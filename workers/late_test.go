package workers

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// An observer sees how late starts are, and why: here the only worker is busy for a fifth of a
// second while twenty jobs are due.
func TestAnObserverGetsTheCausesOfLateStarts(t *testing.T) {
	const busy = 200 * time.Millisecond
	b := newBench(t, policy.Policy{Name: "api", Workers: 1,
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 100,
			Outflow: algorithms.Rate{Count: 100, Per: time.Second}}})
	var mu sync.Mutex
	heard := map[string]time.Duration{}
	began := make(chan time.Time, 10)
	free := make(chan struct{})
	b.drain(Options{Sink: on(jet.EventLate, func(e queue.Event) {
		mu.Lock()
		defer mu.Unlock()
		heard[e.Policy+": "+e.Name] += e.For
	})}, map[string]Handler{"api": func(context.Context, Job) error {
		began <- time.Now()
		<-free
		return nil
	}})
	b.publish("api", "a", 0, 3)
	first := <-began
	b.until("the worker has been busy for long", func() bool { return time.Since(first) > busy })
	close(free)
	b.until("the observer has heard of that", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return heard["api: "+job.BlockedByWorkersBusy] > busy/2
	})
}
