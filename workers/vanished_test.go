package workers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// After their tables are deleted, drainers lose no job, repeat no job, and keep the rate.
func TestDrainersOutliveTheirTables(t *testing.T) {
	t.Parallel()
	for name, buckets := range map[string][]string{
		"ownership": {"KV_PENSTOCK_PARTITIONS"},
		"leases":    {"KV_PENSTOCK_DRAINERS"},
		"both":      {"KV_PENSTOCK_PARTITIONS", "KV_PENSTOCK_DRAINERS"},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy.Policy{Name: "api",
				Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 2000,
					Outflow: algorithms.Rate{Count: 50, Per: time.Second}},
				Partitions: 4}
			b := newBench(t, p)
			var ran seen
			held, finish := make(chan struct{}, 1000), make(chan struct{})
			end := sync.OnceFunc(func() { close(finish) })
			defer end()
			// By the owners' clocks: drainers lend workers, whose Job.Started is later by the way
			// of a message.
			var mu sync.Mutex
			starts := map[queue.Key][]time.Duration{}
			note := queue.SinkFunc(func(e queue.Event) {
				if e.Type == queue.EventStarted {
					mu.Lock()
					defer mu.Unlock()
					starts[e.Key] = append(starts[e.Key], e.At.Sub(time.Unix(0, 0)))
				}
			})
			drain := func() {
				b.drain(Options{Lease: 15 * time.Second, Sink: note}, map[string]Handler{
					"api": func(ctx context.Context, job Job) error {
						if string(job.Body) == "0" {
							held <- struct{}{}
							<-finish
						}
						return ran.handle(ctx, job)
					}})
			}
			const keys, each = 8, 100
			for range 2 {
				drain()
			}
			for k := range keys {
				b.publish("api", fmt.Sprint("k", k), 0, each)
			}
			for range keys {
				<-held
			}
			js, err := b.nc.JetStream(nats.MaxWait(deadline))
			if err != nil {
				t.Fatal(err)
			}
			for _, bucket := range buckets {
				if err := js.DeleteStream(bucket); err != nil {
					t.Fatal(err)
				}
			}
			drain()
			b.until("the tables are there", func() bool {
				_, owners := b.broker.Tables().Partitions.Created(t.Context())
				_, leases := b.broker.Tables().Drainers.Created(t.Context())
				return owners == nil && leases == nil
			})
			b.until("all partitions have owners again, with leases", func() bool {
				for n := range p.Partitions {
					r := b.owner(record.ShareKey("api", n))
					if _, err := b.broker.Tables().Drainers.Read(t.Context(),
						cmp.Or(r.Owner, "nobody")); err != nil || r.Released {
						return false
					}
				}
				return true
			})
			end()
			b.empty("api")
			times := map[string]int{}
			for _, job := range ran.all() {
				times[fmt.Sprint(job.Key, " ", string(job.Body))]++
			}
			mu.Lock()
			defer mu.Unlock()
			if len(starts) != keys {
				t.Errorf("starts of %d of %d keys", len(starts), keys)
			}
			for key, starts := range starts {
				slices.Sort(starts)
				if why := pacetest.Exceeds(starts, 50, 1); why != "" {
					t.Errorf("key %s: %s; starts %v", key, why, starts)
				}
			}
			if len(times) != keys*each {
				t.Errorf("%d of %d jobs ran", len(times), keys*each)
			}
			for job, n := range times {
				if n > 1 {
					t.Errorf("job %s ran %d times", job, n)
				}
			}
		})
	}
}
