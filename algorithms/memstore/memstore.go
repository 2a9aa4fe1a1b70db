// Package memstore keeps a rate-limiting rule's states in memory, one per key.
//
//	perSecond := algorithms.Rate{Count: 5, Per: time.Second}
//	store := memstore.New(algorithms.TokenBucket{Capacity: 10, Refill: perSecond})
//	decision, err := store.Take(ctx, "tenant-1", 1)
//
// A store has no goroutine and needs no closing. Keys expire a minute after they are back in their
// initial state: calls check a few other keys. States are lost with the process.
//
// Stores use the wall clock, and notice within a millisecond when it is set. If it steps back, used
// units stay used, but no key waits longer than if it had used everything just now (with windows,
// one window more). After a step of more than a minute, some keys may start fresh.
package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// Ten million token buckets with keys of up to 39 bytes take about 0.9 GB.
const (
	DefaultMaxKeys  = 10_000_000
	DefaultMaxBytes = 1 << 30
)

// grace is the time that an unused key is kept.
const grace = time.Minute

// Places checked for expired keys, on every sweepEvery-th call of a shard and before a new key. A
// full store evicts the coldest of a sample, up to mostEvicted times per new key.
const (
	sweepEvery   = 64
	looks        = 32
	looksWhenNew = 4
	sample       = 16
	mostEvicted  = 8
)

// Option configures a [Store].
type Option func(*options)

type options struct {
	maxKeys, maxBytes int64
	now               func() time.Time
}

// MaxKeys bounds the keys, default [DefaultMaxKeys]. A full store evicts the coldest of a sample:
// the key that is back in its initial state first, because invented keys must not reset exhausted
// ones.
func MaxKeys(n int) Option {
	return func(o *options) { o.maxKeys = int64(n) }
}

// MaxBytes bounds the memory of keys and states, default [DefaultMaxBytes]. A growing part of the
// table takes up to twice its memory, which does not count.
func MaxBytes(n int64) Option {
	return func(o *options) { o.maxBytes = n }
}

// Clock replaces [time.Now].
func Clock(now func() time.Time) Option {
	return func(o *options) { o.now = now }
}

// Store has a state per key. It is safe for concurrent use, and ignores contexts.
type Store[S any] struct {
	shards  [1 << shardBits]shard[S] // aligned to cache lines
	rule    atomic.Pointer[algorithms.Rule[S]]
	now     func() time.Time
	seed    maphash.Seed
	options options
	keys    atomic.Int64
	bytes   atomic.Int64
	logs    bool
	number  uint64
}

var stores atomic.Uint64

// New returns an empty store, and panics if the rule is invalid.
func New[S any](rule algorithms.Rule[S], opts ...Option) *Store[S] {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if o.maxKeys < 1 {
		o.maxKeys = DefaultMaxKeys
	}
	if o.maxBytes < 1 {
		o.maxBytes = DefaultMaxBytes
	}
	if o.now == nil {
		o.now = new(clock).now
	}
	s := &Store[S]{now: o.now, seed: maphash.MakeSeed(), options: o, number: stores.Add(1)}
	_, s.logs = any(new(S)).(*algorithms.SlidingLogState)
	if err := s.SetRule(rule); err != nil {
		panic(err)
	}
	return s
}

// SetRule changes the parameters for later calls. An invalid rule is an error and has no effect.
func (s *Store[S]) SetRule(rule algorithms.Rule[S]) error {
	if err := rule.Validate(); err != nil {
		return fmt.Errorf("rule %+v: %w", rule, err)
	}
	s.rule.Store(&rule)
	return nil
}

// Rule returns the rule in force.
func (s *Store[S]) Rule() algorithms.Rule[S] { return *s.rule.Load() }

// Len counts keys, including expired ones that were not removed yet.
func (s *Store[S]) Len() int { return int(s.keys.Load()) }

// Take takes all n units of key, or no units. The error is a [*algorithms.CostError] if n can never
// pass.
func (s *Store[S]) Take(_ context.Context, key string, n int64) (d algorithms.Decision, err error) {
	rule := s.Rule()
	if err := algorithms.CheckCost(n, rule.Most()); err != nil {
		return d, err
	}
	shard, hash := s.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.fetch(hash)
	now := s.now()
	state := s.state(shard, rule, hash, key, now)
	before := s.size(state)
	*state, d = rule.Take(*state, now, n)
	s.resized(shard, rule, state, before, now)
	return d, nil
}

// TakeUpTo takes as many of n units as pass; n may be larger than the largest cost.
func (s *Store[S]) TakeUpTo(_ context.Context, key string,
	n int64) (d algorithms.Decision, err error) {
	rule := s.Rule()
	if n < 1 {
		return d, algorithms.CheckCost(n, rule.Most())
	}
	shard, hash := s.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.fetch(hash)
	now := s.now()
	state := s.state(shard, rule, hash, key, now)
	before := s.size(state)
	*state, d = rule.TakeUpTo(*state, now, n)
	s.resized(shard, rule, state, before, now)
	return d, nil
}

// Peek decides on n units of a key without taking them.
func (s *Store[S]) Peek(_ context.Context, key string, n int64) (algorithms.Decision, error) {
	rule := s.Rule()
	if err := algorithms.CheckCost(n, rule.Most()); err != nil {
		return algorithms.Decision{}, err
	}
	shard, hash := s.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	var state S
	if known := shard.find(hash, key); known != nil {
		state = *known
	}
	return rule.Peek(state, s.now(), n), nil
}

// Refund returns n units to a key.
func (s *Store[S]) Refund(_ context.Context, key string, n int64) error {
	rule := s.Rule()
	if n < 1 {
		return algorithms.CheckCost(n, rule.Most())
	}
	shard, hash := s.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if state := shard.find(hash, key); state != nil {
		before, now := s.size(state), s.now()
		*state = rule.Refund(*state, now, n)
		s.resized(shard, rule, state, before, now)
	}
	return nil
}

func (s *Store[S]) shard(key string) (*shard[S], uint64) {
	hash := maphash.String(s.seed, key)
	return &s.shards[hash>>(64-shardBits)], hash
}

func (s *Store[S]) state(shard *shard[S], rule algorithms.Rule[S], hash uint64, key string,
	now time.Time) *S {
	if shard.calls++; shard.calls%sweepEvery == 0 {
		s.sweepNext(shard, rule, now)
	}
	if state := shard.find(hash, key); state != nil {
		return state
	}
	s.sweep(shard, rule, now, looksWhenNew)
	name := newName(key, hash)
	for range mostEvicted {
		over := s.bytes.Load() + shard.growth() + name.memory() - s.options.maxBytes
		if s.keys.Load() < s.options.maxKeys && over <= 0 || !s.evict(shard, rule, now) {
			break
		}
	}
	state := shard.add(s.seed, hash, name)
	s.keys.Add(1)
	s.account(shard)
	return state
}

func (s *Store[S]) size(state *S) int64 {
	if !s.logs {
		return 0
	}
	return stateSize(state)
}

// resized accounts for a changed size. It may evict, which invalidates state.
func (s *Store[S]) resized(shard *shard[S], rule algorithms.Rule[S], state *S, before int64,
	now time.Time) {
	if !s.logs {
		return
	}
	shard.bytes += stateSize(state) - before
	s.account(shard)
	for range mostEvicted {
		if s.bytes.Load() <= s.options.maxBytes || !s.evict(shard, rule, now) {
			return
		}
	}
}

func (s *Store[S]) account(shard *shard[S]) {
	if change := shard.bytes - shard.told; change != 0 {
		s.bytes.Add(change)
		shard.told = shard.bytes
	}
}

// evict removes the coldest of a few keys, from the locked shard or another.
func (s *Store[S]) evict(locked *shard[S], rule algorithms.Rule[S], now time.Time) bool {
	if s.evictFrom(locked, rule, now) {
		return true
	}
	for i := range s.shards {
		other := &s.shards[i]
		if other == locked || !other.mu.TryLock() {
			continue
		}
		done := s.evictFrom(other, rule, now)
		other.mu.Unlock()
		if done {
			return true
		}
	}
	return false
}

func (s *Store[S]) evictFrom(shard *shard[S], rule algorithms.Rule[S], now time.Time) bool {
	if !shard.evict(rule, s.seed, now, sample) {
		return false
	}
	s.keys.Add(-1)
	s.account(shard)
	return true
}

// sweepNext sweeps the shards in turn, except busy ones, because it already holds a lock.
func (s *Store[S]) sweepNext(locked *shard[S], rule algorithms.Rule[S], now time.Time) {
	next := &s.shards[locked.calls/sweepEvery%uint(len(s.shards))]
	if next != locked {
		if !next.mu.TryLock() {
			return
		}
		defer next.mu.Unlock()
	}
	s.sweep(next, rule, now, looks)
}

func (s *Store[S]) sweep(shard *shard[S], rule algorithms.Rule[S], now time.Time, looks int) {
	if removed := shard.sweep(rule, s.seed, now.Add(-grace), looks); removed > 0 {
		s.keys.Add(-removed)
		s.account(shard)
	}
}
