package workers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Drainers lists the drainers with a lease, by host and process, with what they own of policies.
func Drainers(ctx context.Context, b *Broker,
	policies []policy.Policy) (drainers []api.Drainer, err error) {
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
		for _, p := range policies {
			if p.HasQueue() && r.Runs(p.Name) {
				d.Policies[p.Name] = api.DrainerPolicy{Owned: []int{}}
				if p.Target != nil {
					d.Policies[p.Name] = api.DrainerPolicy{Owned: []int{}, Workers: p.Workers,
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

type questions struct {
	*calls
	broker *jet.Broker
	served sync.Map // by handle.Partition without tenure
}

func (q *questions) serve(p handle.Partition) (stop func()) {
	var stops []func()
	serves := func(stop func(), err error) {
		if err != nil {
			q.log.Warn("the valve will not hear all", "policy", p.Policy, "error", err)
			return
		}
		stops = append(stops, stop)
	}
	serves(q.broker.ServeValve(p.Policy, p.Number,
		func(asked job.Question, reply func(job.Answer)) {
			q.send(core.Asked{Part: p, Question: asked, Reply: reply})
		}))
	serves(q.broker.ServeClaims(p.Policy, p.Number, func(c job.Claim, reply func(job.Turn)) {
		q.send(core.Heard{Part: p, Claim: c, Reply: reply})
	}))
	at := handle.Partition{Policy: p.Policy, Number: p.Number}
	q.served.Store(at, p)
	return func() {
		q.served.CompareAndDelete(at, p)
		for _, one := range stops {
			one()
		}
	}
}

// valve asks a partition's valve, over NATS unless it is local.
func (q *questions) valve(ctx context.Context, policy string, partition int,
	question job.Question) (job.Answer, error) {
	p, mine := q.served.Load(handle.Partition{Policy: policy, Number: partition})
	if !mine {
		return q.broker.AskValve(ctx, policy, partition, question)
	}
	answers := make(chan job.Answer, 1)
	q.send(core.Asked{Part: p.(handle.Partition), Question: question,
		Reply: func(a job.Answer) { answers <- a }})
	select {
	case a := <-answers:
		if a.Error != "" {
			return a, errors.New(a.Error)
		}
		return a, nil
	case <-ctx.Done():
		return job.Answer{}, fmt.Errorf("%w: %w", jet.ErrUnavailable, ctx.Err())
	case <-q.stopped:
		return job.Answer{}, jet.ErrUnavailable
	}
}

// Report sends an outcome to a new owner until it is received or no longer needed.
func (q *questions) Report(r record.Report) {
	outcome := encodeOutcome(r.Outcome)
	matters := func() bool {
		known, _ := ask(q.loop, func() bool { return q.core.Matters(r) })
		return known
	}
	q.spawn(func() {
		if q.retry(q.life, "report an outcome", func() error {
			_, err := q.broker.AskValve(q.life, r.Policy, r.Partition, outcome)
			if err != nil && !matters() {
				return nil
			}
			return err
		}) {
			q.send(core.Delivered{Report: r})
		}
	})
}

func encodeOutcome(o record.Outcome) job.Question {
	data, _ := json.Marshal(o)
	return job.Question{Op: job.OpOutcome, Outcome: data}
}
