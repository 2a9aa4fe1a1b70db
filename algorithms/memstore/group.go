package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// Member is a [Store] of any rule, as part of a [Group].
type Member interface {
	most() int64
	clock() time.Time
	serial() uint64
	// hold locks and returns a key's state, and creates it; look does not.
	hold(key string, now time.Time) held
	look(key string) held
}

type held interface {
	most() int64
	take(now time.Time, n int64) algorithms.Decision
	peek(now time.Time, n int64) algorithms.Decision
	clamp(now time.Time)
	refund(now time.Time, n int64)
	release()
}

// Group asks several stores about one request, which passes only if all allow it; a refused request
// takes no units. Requests are atomic.
type Group struct {
	members []Member
	order   []int
}

// NewGroup groups distinct stores, which may be in several groups.
func NewGroup(members ...Member) *Group {
	g := &Group{members: members}
	for i := range members {
		g.order = append(g.order, i)
	}
	slices.SortFunc(g.order, func(a, b int) int {
		return cmp.Compare(members[a].serial(), members[b].serial())
	})
	return g
}

// Take takes n units from all stores, or no units; keys[i] is the key in the i-th store. See
// [algorithms.Combine] and [Store.Take].
func (g *Group) Take(_ context.Context, keys []string,
	n int64) (combined algorithms.Decision, ruling int, err error) {
	if err := algorithms.CheckCost(n, g.most()); err != nil {
		return algorithms.Decision{}, 0, err
	}
	states := make([]held, len(g.members))
	defer release(states)
	now := g.members[0].clock()
	for _, i := range g.order {
		states[i] = g.members[i].hold(keys[i], now)
	}
	if err := check(states, n); err != nil {
		return algorithms.Decision{}, 0, err
	}
	now = g.members[0].clock()
	decisions, allowed := peek(states, now, n)
	if allowed {
		for i, state := range states {
			decisions[i] = state.take(now, n)
		}
	} else {
		for _, state := range states {
			state.clamp(now)
		}
	}
	combined, ruling = algorithms.Combine(decisions)
	return combined, ruling, nil
}

// Peek decides as Take does, without taking units.
func (g *Group) Peek(_ context.Context, keys []string,
	n int64) (combined algorithms.Decision, ruling int, err error) {
	states := g.look(keys)
	defer release(states)
	if err := check(states, n); err != nil {
		return algorithms.Decision{}, 0, err
	}
	decisions, _ := peek(states, g.members[0].clock(), n)
	combined, ruling = algorithms.Combine(decisions)
	return combined, ruling, nil
}

// Refund returns n units to each member.
func (g *Group) Refund(_ context.Context, keys []string, n int64) error {
	if n < 1 {
		return algorithms.CheckCost(n, g.most())
	}
	states := g.look(keys)
	defer release(states)
	now := g.members[0].clock()
	for _, state := range states {
		state.refund(now, n)
	}
	return nil
}

func (g *Group) most() int64 {
	most := g.members[0].most()
	for _, m := range g.members[1:] {
		most = min(most, m.most())
	}
	return most
}

func (g *Group) look(keys []string) []held {
	states := make([]held, len(g.members))
	for _, i := range g.order {
		states[i] = g.members[i].look(keys[i])
	}
	return states
}

func check(states []held, n int64) error {
	most := states[0].most()
	for _, state := range states[1:] {
		most = min(most, state.most())
	}
	return algorithms.CheckCost(n, most)
}

func peek(states []held, now time.Time, n int64) (decisions []algorithms.Decision, allowed bool) {
	decisions, allowed = make([]algorithms.Decision, len(states)), true
	for i, state := range states {
		decisions[i] = state.peek(now, n)
		allowed = allowed && decisions[i].Allowed
	}
	return decisions, allowed
}

func release(states []held) {
	for _, state := range states {
		if state != nil {
			state.release()
		}
	}
}

// state is nil for an unknown key.
type heldState[S any] struct {
	store *Store[S]
	rule  algorithms.Rule[S]
	shard *shard[S]
	state *S
}

func (s *Store[S]) most() int64      { return s.Rule().Most() }
func (s *Store[S]) clock() time.Time { return s.now() }
func (s *Store[S]) serial() uint64   { return s.number }

func (s *Store[S]) hold(key string, now time.Time) held {
	shard, hash := s.shard(key)
	shard.mu.Lock()
	rule := s.Rule()
	return &heldState[S]{s, rule, shard, s.state(shard, rule, hash, key, now)}
}

func (s *Store[S]) look(key string) held {
	shard, hash := s.shard(key)
	shard.mu.Lock()
	return &heldState[S]{s, s.Rule(), shard, shard.find(hash, key)}
}

func (h *heldState[S]) most() int64 { return h.rule.Most() }

func (h *heldState[S]) take(now time.Time, n int64) (d algorithms.Decision) {
	before := h.store.size(h.state)
	*h.state, d = h.rule.Take(*h.state, now, n)
	h.store.resized(h.shard, h.rule, h.state, before, now)
	return d
}

func (h *heldState[S]) clamp(now time.Time) {
	before := h.store.size(h.state)
	*h.state = h.rule.Clamp(*h.state, now)
	h.store.resized(h.shard, h.rule, h.state, before, now)
}

func (h *heldState[S]) peek(now time.Time, n int64) algorithms.Decision {
	if h.state == nil {
		var fresh S
		return h.rule.Peek(fresh, now, n)
	}
	return h.rule.Peek(*h.state, now, n)
}

func (h *heldState[S]) refund(now time.Time, n int64) {
	if h.state != nil {
		before := h.store.size(h.state)
		*h.state = h.rule.Refund(*h.state, now, n)
		h.store.resized(h.shard, h.rule, h.state, before, now)
	}
}

func (h *heldState[S]) release() { h.shard.mu.Unlock() }
