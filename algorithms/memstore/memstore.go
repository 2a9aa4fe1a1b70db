// Package memstore keeps the states of a rate-limiting rule in memory, one per key, for any number of keys and
// goroutines.
//
//	store := memstore.New(algorithms.TokenBucket{Capacity: 10, Refill: algorithms.Rate{Count: 5, Per: time.Second}})
//	decision, err := store.Take(ctx, "tenant-1", 1)
//
// A store starts no goroutine and needs no closing. It forgets a key when its state has been as good as new for a
// minute: each call looks at one or a few other keys on its way, so memory follows the keys in use, while calls come
// in. States are lost with the process, and are not shared with other processes.
//
// Time is the machine's wall clock, because windows are aligned to it, read under the key's lock. If it steps back,
// what a key has used stays used, and the key waits at most as long as if it had used everything just now (with
// windows: one window more). A step of more than a minute may also find keys forgotten that it would have needed;
// these are new again.
package memstore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// DefaultMaxKeys is how many keys a store holds unless [MaxKeys] says otherwise. Ten million token buckets with keys
// of 20 bytes take about 1.2 GB.
const DefaultMaxKeys = 10_000_000

// ErrTooManyKeys says that a request came with a new key while the store held as many keys in use as it may.
var ErrTooManyKeys = errors.New("too many keys in use")

// grace is how long a key must have been as good as new before it is forgotten.
const grace = time.Minute

// Option changes a setting of [New].
type Option func(*options)

type options struct{ maxKeys int64 }

// MaxKeys sets the most keys that a store holds; n below 1 means [DefaultMaxKeys]. Beyond it new keys are answered
// with [ErrTooManyKeys], and those in use go on.
func MaxKeys(n int) Option {
	return func(o *options) { o.maxKeys = int64(n) }
}

// Store holds one state per key. All methods are safe for concurrent use. They never block for long, so contexts are
// not looked at.
type Store[S any] struct {
	rule    atomic.Pointer[algorithms.Rule[S]]
	now     func() time.Time // time.Now, but for the tests
	seed    maphash.Seed
	maxKeys int64
	keys    atomic.Int64
	shards  [shardCount]shard[S]
}

// New returns an empty store. S follows from the rule. A rule that is not valid is a mistake of the caller and panics.
func New[S any](rule algorithms.Rule[S], opts ...Option) *Store[S] {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if o.maxKeys < 1 {
		o.maxKeys = DefaultMaxKeys
	}
	s := &Store[S]{now: time.Now, seed: maphash.MakeSeed(), maxKeys: o.maxKeys}
	if err := s.SetRule(rule); err != nil {
		panic(err)
	}
	return s
}

// SetRule changes the rule's parameters from the next call on; states stay and are read under the new ones. A rule
// that is not valid is returned as an error and changes nothing.
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

// Take asks for n units of key: all of them or none. Errors: [*algorithms.CostError] if n can never pass,
// [ErrTooManyKeys] if key is new and there is no room for it.
func (s *Store[S]) Take(_ context.Context, key string, n int64) (algorithms.Decision, error) {
	rule := s.Rule()
	if err := algorithms.CheckCost(n, rule.Most()); err != nil {
		return algorithms.Decision{}, err
	}
	shard := s.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	now := s.now()
	state, err := s.state(shard, rule, key, now)
	if err != nil {
		return algorithms.Decision{}, err
	}
	var d algorithms.Decision
	*state, d = rule.Take(*state, now, n)
	return d, nil
}

// TakeUpTo takes as many of n units of key as pass. Errors are those of Take; n may be larger than what can ever pass.
func (s *Store[S]) TakeUpTo(_ context.Context, key string, n int64) (algorithms.Decision, error) {
	rule := s.Rule()
	if n < 1 {
		return algorithms.Decision{}, algorithms.CheckCost(n, rule.Most())
	}
	shard := s.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	now := s.now()
	state, err := s.state(shard, rule, key, now)
	if err != nil {
		return algorithms.Decision{}, err
	}
	var d algorithms.Decision
	*state, d = rule.TakeUpTo(*state, now, n)
	return d, nil
}

// Peek says what Take would say, and takes nothing. The error is a [*algorithms.CostError] if n can never pass.
func (s *Store[S]) Peek(_ context.Context, key string, n int64) (algorithms.Decision, error) {
	rule := s.Rule()
	if err := algorithms.CheckCost(n, rule.Most()); err != nil {
		return algorithms.Decision{}, err
	}
	shard := s.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	var state S
	if i, ok := shard.index[key]; ok {
		state = shard.entries[i].state
	}
	return rule.Peek(state, s.now(), n), nil
}

// Refund gives n units of key back that were taken and not used. The error is a [*algorithms.CostError] if n is below
// 1.
func (s *Store[S]) Refund(_ context.Context, key string, n int64) error {
	rule := s.Rule()
	if n < 1 {
		return algorithms.CheckCost(n, rule.Most())
	}
	shard := s.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if i, ok := shard.index[key]; ok {
		state := &shard.entries[i].state
		*state = rule.Refund(*state, s.now(), n)
	}
	return nil
}

func (s *Store[S]) shard(key string) *shard[S] {
	return &s.shards[maphash.String(s.seed, key)%shardCount]
}

// state finds or makes the state of a key, and forgets a few keys on the way. The shard must be locked.
func (s *Store[S]) state(shard *shard[S], rule algorithms.Rule[S], key string, now time.Time) (*S, error) {
	now = now.Add(-grace)
	s.keys.Add(-shard.sweep(rule, now, looks))
	if shard.calls++; shard.calls%helpEvery == 0 {
		// Shards in turn, so that those which nobody calls are swept too. TryLock, because this one is locked.
		other := &s.shards[shard.calls/helpEvery%shardCount]
		if other.mu.TryLock() {
			s.keys.Add(-other.sweep(rule, now, helpEvery))
			other.mu.Unlock()
		}
	}
	if i, ok := shard.index[key]; ok {
		return &shard.entries[i].state, nil
	}
	// More looks than new keys, so that what is due to be forgotten cannot pile up.
	s.keys.Add(-shard.sweep(rule, now, looksWhenNew))
	if s.keys.Add(1) > s.maxKeys {
		s.keys.Add(-1 - shard.sweep(rule, now, looksWhenFull))
		if s.keys.Add(1) > s.maxKeys {
			s.keys.Add(-1)
			return nil, ErrTooManyKeys
		}
	}
	return shard.add(strings.Clone(key)), nil // the caller's key may be a piece of something large
}
