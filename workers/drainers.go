package workers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/kv"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Drainers lists the drainers with a lease, by host and process.
func Drainers(ctx context.Context, b *queue.Broker,
	set policy.Entries) (drainers []api.Drainer, err error) {
	t := b.Tables()
	var leases, owners []kv.Record
	var now time.Time
	if leases, err = t.Drainers.List(ctx, "*"); err == nil {
		now, err = t.Drainers.Now(ctx)
	}
	if err == nil {
		owners, err = t.Partitions.List(ctx, "*.*") // checkpoints have three tokens
	}
	if err != nil {
		return nil, fmt.Errorf("drainers: %w", err)
	}
	owned := map[string]map[string][]int{}
	for _, found := range owners {
		var r record.Owner
		name, digits, _ := strings.Cut(found.Key, ".")
		number, err := strconv.Atoi(digits)
		if err != nil || record.Decode(found.Value, &r) != nil || r.Released {
			continue
		}
		if owned[r.Owner] == nil {
			owned[r.Owner] = map[string][]int{}
		}
		owned[r.Owner][name] = append(owned[r.Owner][name], number)
	}
	drainers = []api.Drainer{}
	for _, found := range leases {
		var r record.Lease
		err := record.Decode(found.Value, &r)
		if r.Tombstone {
			continue
		}
		age := max(0, now.Sub(found.Stored).Milliseconds())
		d := api.Drainer{ID: found.Key, Host: r.Host, PID: r.PID, Version: r.Version,
			StartedAt: r.Started, Alive: err == nil && age <= r.Lease, LeaseMS: r.Lease, AgeMS: age,
			Draining: r.Leaving, Policies: map[string]api.DrainerPolicy{}, Unreadable: err != nil}
		for name, entry := range set {
			if p := entry.Policy; p.HasQueue() && r.Runs(name) {
				d.Policies[name] = api.DrainerPolicy{Owned: []int{}}
				if p.Target != nil {
					d.Policies[name] = api.DrainerPolicy{Owned: []int{}, Workers: p.Workers,
						Free: p.Workers}
				}
			}
		}
		for name, c := range r.Workers {
			d.Policies[name] = api.DrainerPolicy{Owned: []int{}, Workers: c.All, Busy: c.Busy,
				Free: max(0, c.All-c.Busy)}
		}
		for name, numbers := range owned[found.Key] {
			if limit, shared := record.Shared(name); shared {
				d.SharedLimits = append(d.SharedLimits, limit)
				continue
			}
			p := d.Policies[name]
			p.Owned = numbers
			slices.Sort(p.Owned)
			d.Policies[name] = p
		}
		slices.Sort(d.SharedLimits)
		drainers = append(drainers, d)
	}
	slices.SortFunc(drainers, func(a, b api.Drainer) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID),
			cmp.Compare(a.ID, b.ID))
	})
	return drainers, nil
}
