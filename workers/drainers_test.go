package workers

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func TestLeasesListPartitionsAndWorkers(t *testing.T) {
	b := newBench(t, policy.Policy{Name: "api",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 10,
			Outflow: algorithms.Rate{Count: 100, Per: time.Second}},
		Partitions: 3, Workers: 5})
	block := make(chan struct{})
	stop := b.drain(Options{},
		map[string]Handler{"api": func(context.Context, Job) error { <-block; return nil }})
	stopOther := b.drain(Options{OwnAll: true}, nil)
	b.publish("api", "a", 0, 2)
	policies := []policy.Policy{{Name: "api", Rule: policy.Rule{Algorithm: policy.LeakingBucket}}}
	var told []api.Drainer
	see := func(what string, condition func() bool) {
		t.Helper()
		b.until(what, func() bool {
			var err error
			if told, err = Drainers(t.Context(), b.broker, policies); err != nil {
				t.Log(err)
				return false
			}
			return condition()
		})
	}
	see("two drainers share the partitions, and one has two jobs in hand", func() bool {
		var owned, busy, free []int
		for _, d := range told {
			p, known := d.Policies["api"]
			if !known || !d.Alive || d.Draining || d.Host == "" || d.PID == 0 || d.Version == "" ||
				d.StartedAt.IsZero() ||
				d.LeaseMS != 1000 || d.AgeMS > 1000 {
				return false
			}
			owned, busy, free = append(owned, p.Owned...), append(busy, p.Busy), append(free,
				p.Free)
		}
		slices.Sort(owned)
		slices.Sort(busy)
		slices.Sort(free)
		return slices.Equal(owned, []int{0, 1, 2}) && slices.Equal(busy, []int{0, 2}) &&
			slices.Equal(free, []int{0, 3})
	})
	close(block)
	stopOther()
	see("one drainer is left", func() bool {
		return len(told) == 1 && len(told[0].Policies["api"].Owned) == 3
	})
	stop()
	see("none is left", func() bool { return len(told) == 0 })

	// An expired lease is not alive; a lease declared dead is omitted.
	for id, value := range map[string][]byte{
		"late": record.Encode(record.Lease{V: record.Version, Lease: 1, Host: "h",
			Policies: []string{"api"}}),
		"dead":   record.Encode(record.Lease{V: record.Version, Tombstone: true}),
		"newest": []byte(`{"v":99}`),
	} {
		if err := b.broker.Tables().Drainers.Set(t.Context(), id, value, 0); err != nil {
			t.Fatal(err)
		}
	}
	see("one is late, one of another version", func() bool {
		return len(told) == 2 && told[0].ID == "newest" && told[0].Unreadable && !told[0].Alive &&
			told[1].ID == "late" && !told[1].Alive && !told[1].Unreadable && told[1].AgeMS > 1
	})
}
