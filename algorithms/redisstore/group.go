package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// Member is a [Store] of any rule, as part of a [Group].
type Member interface {
	nameSuffix() string
	current() member
}

type member interface {
	most() int64
	// inGroup returns the name of the script, the number of parameters, and the parameters.
	inGroup() []any
	begin(said string, now time.Time) (replay, error)
}

type replay interface {
	// peek consumes a part of the reply: in a group, call it once for each take and peek.
	peek(n int64) algorithms.Decision
	// take follows a peek in a group, if all rules allow.
	take(n int64) algorithms.Decision
	takeUpTo(n int64) algorithms.Decision
	refund(n int64)
	complete() bool
}

// Group asks several stores about one request, which passes only if all allow it; a refused request
// takes no units. Requests are atomic. Refusals are not cached.
type Group struct {
	client  *Client
	lane    lane
	members []Member
}

// NewMember returns the store of one rule of a policy, for a [Group].
func NewMember[S any](c *Client, policy, name string, rule algorithms.Rule[S]) *Store[S] {
	return newStore(c, policy, ":"+name, rule)
}

// NewGroup makes a group of the policy's members, which have different names.
func NewGroup(c *Client, policy string, members ...Member) *Group {
	g := &Group{client: c, members: members}
	stem := c.stem(policy)
	g.lane = lane{buckets: map[string]*bucket{}, terms: g.terms, names: func(key string) []string {
		names := splitKeys(key)
		for i, m := range members {
			names[i] = redisKey(stem, names[i]) + m.nameSuffix()
		}
		return names
	}}
	return g
}

// Take takes n units from all stores, or no units; keys[i] is the key in the i-th store. See
// [algorithms.Combine] and [Store.Take]. On a cluster all keys must be equal.
func (g *Group) Take(ctx context.Context, keys []string,
	n int64) (combined algorithms.Decision, ruling int, err error) {
	return g.decide(ctx, take, keys, n)
}

func (g *Group) decide(ctx context.Context, kind kind, keys []string,
	n int64) (combined algorithms.Decision, ruling int, err error) {
	if err := algorithms.CheckCost(n, g.terms().most()); err != nil {
		return algorithms.Decision{}, 0, err
	}
	return g.client.ask(ctx, &g.lane, joinKeys(keys), kind, n)
}

// Peek decides as Take does, without taking units.
func (g *Group) Peek(ctx context.Context, keys []string,
	n int64) (combined algorithms.Decision, ruling int, err error) {
	return g.decide(ctx, peek, keys, n)
}

// Refund returns n units to each store, with the errors of Take.
func (g *Group) Refund(ctx context.Context, keys []string, n int64) error {
	if n < 1 {
		return algorithms.CheckCost(n, g.terms().most())
	}
	_, _, err := g.client.ask(ctx, &g.lane, joinKeys(keys), refund, n)
	return err
}

// joinKeys joins keys without ambiguity.
func joinKeys(keys []string) string {
	var joined strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&joined, "%d %s", len(key), key)
	}
	return joined.String()
}

func splitKeys(joined string) (keys []string) {
	for joined != "" {
		length, rest, _ := strings.Cut(joined, " ")
		n, err := strconv.Atoi(length)
		if err != nil {
			panic("redisstore: keys that joinKeys did not join")
		}
		keys, joined = append(keys, rest[:n]), rest[n:]
	}
	return keys
}

type groupTerms struct {
	members []member
	names   func(key string) []string
}

func (g *Group) terms() terms {
	t := groupTerms{make([]member, len(g.members)), g.lane.names}
	for i, m := range g.members {
		t.members[i] = m.current()
	}
	return t
}

func (t groupTerms) most() int64 {
	most := t.members[0].most()
	for _, m := range t.members[1:] {
		most = min(most, m.most())
	}
	return most
}

func (t groupTerms) program() *script { return groupScript }

func (t groupTerms) arguments() []any {
	arguments := []any{len(t.members)}
	for _, m := range t.members {
		arguments = append(arguments, m.inGroup()...)
	}
	return arguments
}

func (t groupTerms) pair(r *request) (n, times int64) { return r.pair() }

func (t groupTerms) settle(key, said string, now time.Time, _ time.Duration,
	requests []*request) error {
	replays := make([]replay, len(t.members))
	answers := strings.Split(said, ",")
	if len(answers) != len(replays) {
		return fmt.Errorf("%q does not answer for %d rules", said, len(replays))
	}
	for i, m := range t.members {
		var err error
		if replays[i], err = m.begin(answers[i], now); err != nil {
			return &algorithms.StateError{Name: t.names(key)[i], Err: err}
		}
	}
	decisions := make([]algorithms.Decision, len(replays))
	for _, r := range requests {
		if r.kind == refund {
			for _, one := range replays {
				one.refund(r.n)
			}
			continue
		}
		allowed := true
		for i, one := range replays {
			decisions[i] = one.peek(r.n)
			allowed = allowed && decisions[i].Allowed
		}
		if allowed && r.kind == take {
			for i, one := range replays {
				decisions[i] = one.take(r.n)
			}
		}
		r.decision, r.ruling = algorithms.Combine(decisions)
	}
	for i, one := range replays {
		if !one.complete() {
			return fmt.Errorf("%q does not answer %d requests", answers[i], len(requests))
		}
	}
	return nil
}

func (t groupTerms) doubt(string) {}

func (s *Store[S]) nameSuffix() string { return s.lane.suffix }
func (s *Store[S]) current() member    { return s.mirror.Load() }

func (m *mirror[S]) inGroup() []any {
	return append([]any{m.part, len(m.parameters)}, m.parameters...)
}

func (m *mirror[S]) begin(said string, now time.Time) (replay, error) {
	if said == "?" {
		return nil, fmt.Errorf("it is not a state of a %T", m.rule)
	}
	return m.history.begin(said, now)
}

type replayedState[S any] struct {
	rule  algorithms.Rule[S]
	state S
	now   time.Time
}

func (h *states[S]) begin(said string, now time.Time) (replay, error) {
	s, ok := h.parse(said)
	if !ok {
		return nil, fmt.Errorf("%q is not a state of a %T", said, h.rule)
	}
	return &replayedState[S]{h.rule, s, now}, nil
}

func (s *replayedState[S]) peek(n int64) algorithms.Decision {
	return s.rule.Peek(s.state, s.now, n)
}

func (s *replayedState[S]) take(n int64) (d algorithms.Decision) {
	s.state, d = s.rule.Take(s.state, s.now, n)
	return d
}

func (s *replayedState[S]) takeUpTo(n int64) (d algorithms.Decision) {
	s.state, d = s.rule.TakeUpTo(s.state, s.now, n)
	return d
}

func (s *replayedState[S]) refund(n int64) { s.state = s.rule.Refund(s.state, s.now, n) }
func (s *replayedState[S]) complete() bool { return true }
