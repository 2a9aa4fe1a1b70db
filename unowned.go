package penstock

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	// ownersEvery is the interval of asking policies for their owner. Only two misses in a row
	// count, because partitions change hands.
	ownersEvery = 2 * time.Second
	// ownerPatience is how long an owner may take to answer. A timeout still counts as an owner.
	ownerPatience = 500 * time.Millisecond
)

// owners reports jobs that wait while no drainer owns their policy. Without it, they would wait
// unnoticed.
type owners struct {
	broker  *queue.Broker
	known   *known
	observe func(policy string, unowned bool)
	log     *slog.Logger

	asked map[string]*asked // used by run only
}

// asked is the state of asking for a policy's owners.
type asked struct {
	partition int // to ask next; stays the same while it has no owner
	missing   int // consecutive misses
}

func (o *owners) run(ctx context.Context) error {
	ticker := time.NewTicker(ownersEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			o.look(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

func (o *owners) look(ctx context.Context) {
	set, waiting := o.known.policies(), o.broker.Waiting()
	maps.DeleteFunc(o.asked, func(name string, _ *asked) bool {
		_, found := set[name]
		return !found
	})
	for _, name := range slices.Sorted(maps.Keys(set)) {
		p := set[name].Policy
		if !p.HasQueue() {
			continue
		}
		a := o.asked[name]
		if a == nil {
			a = &asked{}
			o.asked[name] = a
		}
		a.partition %= p.Partitions
		waits, known := false, true
		if waiting[name] {
			waits, known = o.waits(ctx, name, a.partition)
		}
		switch {
		case !known:
		case waits:
			if a.missing++; a.missing == 2 {
				o.observe(name, true)
				o.log.Warn("jobs wait, and no drainer owns their policy",
					"policy", name, "partition", a.partition)
			}
		default:
			if a.missing >= 2 {
				o.observe(name, false)
				o.log.Info("a drainer owns the policy, or no job of it waits any more", "policy",
					name)
			}
			a.missing = 0
			a.partition++
		}
	}
}

// waits reports whether jobs of a policy wait while one of its partitions has no owner. known is
// false if that cannot be determined now.
func (o *owners) waits(ctx context.Context, policy string, partition int) (waits, known bool) {
	asking, cancel := context.WithTimeout(ctx, ownerPatience)
	defer cancel()
	_, err := o.broker.AskValve(asking, policy, partition, job.Question{Op: job.OpWorker})
	if !errors.Is(err, nats.ErrNoResponders) {
		return false, !errors.Is(err, queue.ErrUnavailable)
	}
	depth, err := o.broker.Depth(ctx, policy)
	return depth > 0, err == nil || errors.Is(err, queue.ErrNoStream)
}
