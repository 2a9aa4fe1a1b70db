// Package memstore keeps the states of a rate-limiting rule in memory, one per key, for any number
// of keys and goroutines.
//
//	perSecond := algorithms.Rate{Count: 5, Per: time.Second}
//	store := memstore.New(algorithms.TokenBucket{Capacity: 10, Refill: perSecond})
//	decision, err := store.Take(ctx, "tenant-1", 1)
//
// A store starts no goroutine and needs no closing. It forgets a key when its state has been as
// good as new for a minute: now and then a call looks at a few other keys on its way, more often
// when keys are new, so memory follows the keys in use, while calls come in. States are lost with
// the process, and are not shared with other processes.
//
// Time is the machine's wall clock, because windows are aligned to it, read under the key's lock.
// When it is set, the store follows within a millisecond. If it steps back, what a key has used
// stays used, and the key waits at most as long as if it had used everything just now (with
// windows: one window more). A step of more than a minute may also find keys forgotten that it
// would have needed; these are new again.
package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// What a store holds unless [MaxKeys] and [MaxBytes] say otherwise. Ten million token buckets take
// about 0.9 GB, with keys of up to 39 bytes; longer ones take more, and so do sliding logs.
const (
	DefaultMaxKeys  = 10_000_000
	DefaultMaxBytes = 1 << 30
)

// grace is how long a key must have been as good as new before it is forgotten.
const grace = time.Minute

// How many places a call examines for keys that are as good as new: every sweepEvery-th call of a
// shard, a call before it adds a key. A store that is full forgets the coldest of a few keys, at
// most so many times for a new one.
const (
	sweepEvery   = 64
	looks        = 32
	looksWhenNew = 4 // more than one key, so that what is due to be forgotten cannot pile up
	sample       = 16
	mostEvicted  = 8
)

// Option changes a setting of [New].
type Option func(*options)

type options struct {
	maxKeys, maxBytes int64
	now               func() time.Time
}

// MaxKeys sets the most keys that a store holds; n below 1 means [DefaultMaxKeys]. For one more,
// the store forgets the coldest of a few others: the one that would be as good as new first. So
// those that have used up their limit go last, and however many keys somebody makes up, nobody is
// locked out.
func MaxKeys(n int) Option {
	return func(o *options) { o.maxKeys = int64(n) }
}

// MaxBytes sets how much memory the keys and their states may take, in bytes, as MaxKeys sets their
// number; n below 1 means [DefaultMaxBytes]. While a part of a store's table grows it takes up to
// twice its own memory, which is not counted.
func MaxBytes(n int64) Option {
	return func(o *options) { o.maxBytes = n }
}

// Clock sets what tells the time, in place of the machine's wall clock.
func Clock(now func() time.Time) Option {
	return func(o *options) { o.now = now }
}

// Store holds one state per key. All methods are safe for concurrent use. They never block for
// long, so contexts are not looked at.
type Store[S any] struct {
	shards  [1 << shardBits]shard[S] // first, so that each begins with a line of the cache
	rule    atomic.Pointer[algorithms.Rule[S]]
	now     func() time.Time // that of a clock, unless an option says otherwise
	seed    maphash.Seed
	options options
	keys    atomic.Int64
	bytes   atomic.Int64
	logs    bool   // states have memory of their own
	number  uint64 // of the store, in the order in which they were made
}

var stores atomic.Uint64

// New returns an empty store. S follows from the rule. A rule that is not valid is a mistake of the
// caller and panics.
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

// SetRule changes the rule's parameters from the next call on; states stay and are read under the
// new ones. A rule that is not valid is returned as an error and changes nothing.
func (s *Store[S]) SetRule(rule algorithms.Rule[S]) error {
	if err := rule.Validate(); err != nil {
		return fmt.Errorf("rule %+v: %w", rule, err)
	}
	s.rule.Store(&rule)
	return nil
}

// Rule returns the rule as it is now.
func (s *Store[S]) Rule() algorithms.Rule[S] { return *s.rule.Load() }

// Len is how many keys are held, some of which may be due to be forgotten.
func (s *Store[S]) Len() int { return int(s.keys.Load()) }

// Take asks for n units of key: all of them or none. The error is a [*algorithms.CostError] if n
// can never pass.
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

// TakeUpTo takes as many of n units of key as pass. Errors are those of Take; n may be larger than
// what can ever pass.
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

// Peek says what Take would say, and takes nothing. The error is a [*algorithms.CostError] if n can
// never pass.
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

// Refund gives n units of key back that were taken and not used. The error is a
// [*algorithms.CostError] if n is below 1.
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

// shard returns the shard of a key, and the key's hash.
func (s *Store[S]) shard(key string) (*shard[S], uint64) {
	hash := maphash.String(s.seed, key)
	return &s.shards[hash>>(64-shardBits)], hash
}

// state finds or makes the state of a key, and forgets a few keys on the way. The shard must be
// locked.
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

// size is the memory of a state's own. Nearly all have none.
func (s *Store[S]) size(state *S) int64 {
	if !s.logs {
		return 0
	}
	return stateSize(state)
}

// resized accounts for a state whose size has changed. It is not valid afterwards.
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

// account adds to the store's bytes what a shard's have changed by.
func (s *Store[S]) account(shard *shard[S]) {
	if change := shard.bytes - shard.told; change != 0 {
		s.bytes.Add(change)
		shard.told = shard.bytes
	}
}

// evict forgets the coldest of a few keys of a locked shard, or of another one when it has none,
// and reports whether there was one.
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

// sweepNext sweeps the shards in turn, so that those which nobody calls are swept too. The one that
// it is given is locked, so it waits for no other.
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
