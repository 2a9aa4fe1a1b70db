package redisstore

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

const (
	// bounds the delay until other processes' refunds take effect
	memory = 10 * time.Second
	// of a store's cache, and its locks
	maxRefusals   = 64 * 1024
	refusalShards = 16
)

type refusal[S any] struct {
	mirror  *mirror[S]
	outcome outcome[S]
	// before the decision, on the client's clock: waits end early rather than late
	sent time.Duration
}

// refusals answer early retries.
type refusals[S any] struct {
	seed   maphash.Seed
	shards [refusalShards]struct {
		mu    sync.Mutex
		byKey map[string]refusal[S]
		_     [48]byte // avoids false sharing of cache lines
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
		// Check two random entries per new key.
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
	shard.byKey[strings.Clone(key)] = r // key may be part of a larger string
}

func (f *refusals[S]) forget(key string) {
	shard := &f.shards[maphash.String(f.seed, key)%refusalShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	delete(shard.byKey, key)
}

// recall answers if n units certainly do not pass yet.
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
