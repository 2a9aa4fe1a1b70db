package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/queue"
)

const (
	// Partitions change hands: two misses in a row count.
	ownersEvery = 2 * time.Second
	// A timeout still counts as an owner.
	ownerPatience = 500 * time.Millisecond
)

var unowned = notice.Kind{Level: slog.LevelWarn, Of: "policy",
	Begin: "jobs are waiting, but no drainer owns their policy",
	End:   "a drainer owns the policy, or its jobs no longer wait"}

type owners struct {
	*Node
	asked map[string]*asked
}

type asked struct {
	partition int // the same while it has no owner
	missing   int
}

// look asks only about policies that had jobs: idle ones must be free.
func (o *owners) look(ctx context.Context) (time.Duration, error) {
	set, waiting := o.known.policies(), o.Broker.Waiting()
	for name, a := range o.asked {
		if _, found := set[name]; found && !waiting[name] {
			o.found(name, a, false)
		}
	}
	maps.DeleteFunc(o.asked, func(name string, _ *asked) bool { return !waiting[name] })
	o.notices.Forget(&unowned, has(set))
	for name := range waiting {
		entry := set[name]
		if !entry.HasQueue() {
			continue
		}
		a := o.asked[name]
		if a == nil { // a drainer gets time after a start
			o.asked[name] = &asked{}
			continue
		}
		a.partition %= entry.Policy.Partitions
		if waits, known := o.waits(ctx, name, a.partition); known {
			o.found(name, a, waits)
		}
	}
	return ownersEvery, nil
}

func (o *owners) found(name string, a *asked, waits bool) {
	if a.missing++; !waits {
		a.missing = 0
		a.partition++
	}
	if o.notices.Tell(&unowned, name, notice.If(a.missing > 1), "partition", a.partition) {
		o.Sink.Take(queue.Event{Type: queue.EventWithoutDrainer, Policy: name,
			Value: queue.Whether(a.missing > 1)})
	}
}

// known: it could be determined.
func (o *owners) waits(ctx context.Context, policy string, partition int) (waits, known bool) {
	asking, cancel := context.WithTimeout(ctx, ownerPatience)
	defer cancel()
	owned, err := o.Broker.Owned(asking, policy, partition)
	if owned || err != nil {
		return false, err == nil
	}
	depth, err := o.Broker.Depth(ctx, policy)
	return depth > 0, err == nil || errors.Is(err, queue.ErrNoStream)
}
