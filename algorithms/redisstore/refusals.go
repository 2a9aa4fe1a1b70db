package redisstore

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

const (
	// memory is for how long a refusal is remembered at most, so that what others give back is seen
	// in the end.
	memory = 10 * time.Second
	// A store remembers refusals of so many keys, in shards with a lock each.
	maxRefusals   = 64 * 1024
	refusalShards = 16
)

// refusal is a key's state when it refused a request, by the terms of the time.
type refusal[S any] struct {
	mirror  *mirror[S]
	outcome outcome[S]
	// not after the decision, on the client's clock: so waits end too early rather than too late
	sent time.Duration
}

// refusals is what a store remembers, to answer callers who come too early without asking Redis.
type refusals[S any] struct {
	seed   maphash.Seed
	shards [refusalShards]struct {
		mu    sync.Mutex
		byKey map[string]refusal[S]
		_     [48]byte // keeps neighbours from sharing a cache line
	}
}

func (f *refusals[S]) init() { f.seed = maphash.MakeSeed() }

func (f *refusals[S]) remember(key string, r refusal[S]) {
	shard := &f.shards[maphash.String(f.seed, key)%refusalShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.byKey == nil {
		shard.byKey = make(map[string]refusal[S])
	}
	if _, ok := shard.byKey[key]; !ok {
		// Two looks for each key added, wherever the map begins, so that what is due to be
		// forgotten cannot pile up.
		looks := 2
		for old, known := range shard.byKey {
			if looks--; looks < 0 {
				break
			}
			if r.sent-known.sent > memory || len(shard.byKey) >= maxRefusals/refusalShards {
				delete(shard.byKey, old)
			}
		}
	}
	shard.byKey[strings.Clone(key)] = r // the caller's key may be a piece of something large
}

func (f *refusals[S]) forget(key string) {
	shard := &f.shards[maphash.String(f.seed, key)%refusalShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	delete(shard.byKey, key)
}

// recall answers a request of n units of key from memory, if it is known that they cannot pass yet.
func (s *Store[S]) recall(m *mirror[S], key string, n int64) (algorithms.Decision, bool) {
	shard := &s.refusals.shards[maphash.String(s.refusals.seed, key)%refusalShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	r, ok := shard.byKey[key]
	if !ok {
		return algorithms.Decision{}, false
	}
	age := s.client.elapsed() - r.sent
	if r.mirror == m && age < memory {
		age = (age + time.Microsecond - 1).Truncate(time.Microsecond)
		if d, ok := m.history.recall(r.outcome, age, n); ok {
			return d, true
		}
	}
	if r.mirror != m || age >= memory {
		delete(shard.byKey, key)
	}
	return algorithms.Decision{}, false
}
