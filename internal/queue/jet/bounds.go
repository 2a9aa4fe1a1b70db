package jet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/internal/queue/kv"
)

// bounds gives the streams of an installation their bounds in bytes, and creates them with these.
type bounds struct {
	js       *jsapi.Conn
	names    Names
	replicas int
	log      *slog.Logger
	locks    *kv.Table

	turns    sync.Map               // of this process at the locks
	creating sync.Mutex             // of create
	surveyed atomic.Pointer[survey] // nil before the first ration
}

// create creates a policy's stream with the bound of the last [Broker.Ration]. Without one,
// or without room, it divides the store now. Streams that no Ration counted are created one at a
// time, on a single server by all processes: it checks a stream's bytes before it counts them, and
// streams that together exceed the store cannot even be given lower bounds.
func (bs *bounds) create(ctx context.Context, policy string,
	config jetstream.StreamConfig) error {
	if found := bs.surveyed.Load(); found != nil && found.said[policy] != nil &&
		config.Metadata[metaPartitions] != "" {
		return bs.createNow(ctx, policy, config)
	}
	before := bs.saw(policy, config)
	bs.creating.Lock()
	defer bs.creating.Unlock()
	if !before && bs.saw(policy, config) {
		return nil // created meanwhile, such as by a writer of the policy and the pass over all
	}
	if bs.replicas > 1 {
		return bs.createNow(ctx, policy, config)
	}
	return bs.locked(ctx, creationLock, func(ctx context.Context) error {
		return bs.createNow(ctx, policy, config)
	})
}

// creationLock is no name of a policy.
const creationLock = "CREATION"

func (bs *bounds) createNow(ctx context.Context, policy string,
	config jetstream.StreamConfig) error {
	for again := 3; ; again-- {
		found := bs.surveyed.Load()
		if found == nil || again < 3 || found.reserved {
			_, unbound := bs.ration(ctx, []jetstream.StreamConfig{config})
			if found = bs.surveyed.Load(); found == nil {
				return unbound
			}
			if unbound != nil && !errors.Is(unbound, ErrStorage) {
				bs.log.Warn("streams keep other bounds than their share of the store",
					"error", unbound)
			}
		}
		bounded := config
		bounded.MaxBytes = cmp.Or(found.bound(policy, config), -1)
		err := bs.js.CreateStream(ctx, bounded)
		if err == nil && config.Metadata[metaPartitions] != "" {
			bs.sees(policy, config)
		}
		if again == 0 || !errors.Is(err, ErrStorage) {
			return err
		}
	}
}

// sees caches the configuration of a policy's stream, empty while it changes.
func (bs *bounds) sees(policy string, config jetstream.StreamConfig) {
	if found := bs.surveyed.Load(); found != nil {
		found.streams.Store(policy, config)
	}
}

func (bs *bounds) saw(policy string, want jetstream.StreamConfig) bool {
	found := bs.surveyed.Load()
	if found == nil {
		return false
	}
	seen, _ := found.streams.Load(policy)
	have, _ := seen.(jetstream.StreamConfig)
	return have.Name == want.Name && checkStream(policy, have, want) == nil &&
		sameSettings(have, want)
}

// ensure creates a stream that is not a policy's jobs, unless it is there.
func (bs *bounds) ensure(ctx context.Context, policy string,
	config jetstream.StreamConfig) error {
	err := bs.create(ctx, policy, config)
	if jsapi.HasCode(err, jetstream.JSErrCodeStreamNameInUse) {
		return nil
	}
	return err
}

// locked runs change while no other process, and nobody else in this one, changes the policy's
// streams: an update replaces the whole configuration without compare-and-set.
func (bs *bounds) locked(ctx context.Context, policy string,
	change func(context.Context) error) error {
	at, _ := bs.turns.LoadOrStore(policy, make(chan struct{}, 1))
	turn := at.(chan struct{})
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return jsapi.Translate(ctx.Err())
	}
	return bs.locks.WithLock(ctx, policy, change)
}
