package workers

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
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
			var drainers int
			var by sync.Map
			drain := func() {
				drainers++
				drainer := drainers
				b.drain(Options{Lease: 15 * time.Second}, map[string]Handler{
					"api": func(ctx context.Context, job Job) error {
						by.Store(job.Started, drainer)
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
			for k := range keys {
				var starts []time.Duration
				var owners []any
				for _, job := range ran.all() {
					if string(job.Key) == fmt.Sprint("k", k) {
						times[fmt.Sprint(job.Key, " ", string(job.Body))]++
						starts = append(starts, job.Started.Sub(time.Unix(0, 0)))
						owner, _ := by.Load(job.Started)
						owners = append(owners, owner)
					}
				}
				if why := pacetest.Exceeds(starts, 50, 1); why != "" {
					t.Errorf("key %d: %s; starts %v by drainers %v", k, why, starts, owners)
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
