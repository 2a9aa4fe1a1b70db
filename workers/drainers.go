package workers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/kv"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// DrainerState describes a drainer as of its lease's last renewal.
type DrainerState struct {
	ID        string    `json:"id"`
	Host      string    `json:"host,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Version   string    `json:"version,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
	// Alive reports whether the lease is current.
	Alive    bool  `json:"alive"`
	LeaseMS  int64 `json:"lease_ms"`
	AgeMS    int64 `json:"lease_age_ms"` // since renewal, by JetStream's clock
	Draining bool  `json:"draining"`     // hands its partitions over
	// Policies are those that it may own or has workers for.
	Policies map[string]DrainerPolicy `json:"policies"`
	// SharedLimits are the shared limits that it keeps.
	SharedLimits []string `json:"shared_limits,omitempty"`
	// Unreadable reports a lease of another format.
	Unreadable bool `json:"unreadable,omitempty"`
}

// DrainerPolicy is a drainer's part in a policy.
type DrainerPolicy struct {
	Owned   []int `json:"owned"`   // partitions, ascending
	Workers int   `json:"workers"` // its own; 0: only remote ones
	Busy    int   `json:"busy"`    // also with jobs of other drainers' valves
	Free    int   `json:"free"`
}

// Drainers lists the drainers with a lease, by host and process.
func Drainers(ctx context.Context, b *queue.Broker,
	set policy.Entries) (drainers []DrainerState, err error) {
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
	drainers = []DrainerState{}
	for _, found := range leases {
		var r record.Lease
		err := record.Decode(found.Value, &r)
		if r.Tombstone {
			continue
		}
		age := max(0, now.Sub(found.Stored).Milliseconds())
		d := DrainerState{ID: found.Key, Host: r.Host, PID: r.PID, Version: r.Version,
			StartedAt: r.Started, Alive: err == nil && age <= r.Lease, LeaseMS: r.Lease, AgeMS: age,
			Draining: r.Leaving, Policies: map[string]DrainerPolicy{}, Unreadable: err != nil}
		for name, entry := range set {
			if p := entry.Policy; p.HasQueue() && r.Runs(name) {
				d.Policies[name] = DrainerPolicy{Owned: []int{}}
				if p.Target != nil {
					d.Policies[name] = DrainerPolicy{[]int{}, p.Workers, 0, p.Workers}
				}
			}
		}
		for name, c := range r.Workers {
			d.Policies[name] = DrainerPolicy{[]int{}, c.All, c.Busy, max(0, c.All-c.Busy)}
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
	slices.SortFunc(drainers, func(a, b DrainerState) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID),
			cmp.Compare(a.ID, b.ID))
	})
	return drainers, nil
}
