package algorithmstest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// Group is a group of stores: it asks several rules about one request, each with its own key,
// atomically. A refused request takes no units.
type Group interface {
	Take(ctx context.Context, keys []string,
		n int64) (combined algorithms.Decision, ruling int, err error)
	Peek(ctx context.Context, keys []string,
		n int64) (combined algorithms.Decision, ruling int, err error)
	Refund(ctx context.Context, keys []string, n int64) error
}

// GroupRules holds the rules of the group in [RunGroup], in this order.
type GroupRules struct {
	Token   algorithms.TokenBucket
	Leaking algorithms.LeakingBucket
	Fixed   algorithms.FixedWindow
	Log     algorithms.SlidingLog
	Counter algorithms.SlidingCounter
}

var groupRules = GroupRules{
	Token: algorithms.TokenBucket{Capacity: 8,
		Refill: algorithms.Rate{Count: 3, Per: time.Second}},
	Leaking: algorithms.LeakingBucket{Capacity: 9,
		Outflow: algorithms.Rate{Count: 7, Per: 2 * time.Second}, Burst: 2},
	Fixed:   algorithms.FixedWindow{Limit: 11, Window: 3 * time.Second},
	Log:     algorithms.SlidingLog{Limit: 12, Window: 4 * time.Second},
	Counter: algorithms.SlidingCounter{Limit: 30, Window: 5 * time.Second},
}

// RunGroup checks a group of stores against the bare rules. open returns a group of new, empty
// stores that read the time from now, which is safe for concurrent use.
func RunGroup(t *testing.T, open func(t *testing.T, now func() time.Time, rules GroupRules) Group) {
	for seed := range *histories {
		t.Run(fmt.Sprintf("history %d", seed), func(t *testing.T) { groupHistory(t, open, seed) })
	}
	t.Run("clock set back", func(t *testing.T) { groupClockSetBack(t, open) })
	t.Run("callers at once", func(t *testing.T) { groupCallersAtOnce(t, open) })
	t.Run("impossible costs", func(t *testing.T) { groupImpossibleCosts(t, open) })
}

type model interface {
	decide(key string, now time.Time, n int64, take bool) algorithms.Decision
	refund(key string, now time.Time, n int64)
	clamp(key string, now time.Time)
}

type modelOf[S any] struct {
	rule   algorithms.Rule[S]
	states map[string]S
}

func newModel[S any](rule algorithms.Rule[S]) model { return &modelOf[S]{rule, map[string]S{}} }

func (m *modelOf[S]) decide(key string, now time.Time, n int64, take bool) (d algorithms.Decision) {
	if !take {
		return m.rule.Peek(m.states[key], now, n)
	}
	m.states[key], d = m.rule.Take(m.states[key], now, n)
	return d
}

func (m *modelOf[S]) refund(key string, now time.Time, n int64) {
	m.states[key] = m.rule.Refund(m.states[key], now, n)
}

func (m *modelOf[S]) clamp(key string, now time.Time) {
	m.states[key] = m.rule.Clamp(m.states[key], now)
}

func newModels(r GroupRules) []model {
	return []model{newModel(r.Token), newModel(r.Leaking), newModel(r.Fixed), newModel(r.Log),
		newModel(r.Counter)}
}

func decideAll(models []model, keys []string, now time.Time, n int64,
	take bool) (algorithms.Decision, int) {
	decisions := make([]algorithms.Decision, len(models))
	ask := func(take bool) (allowed bool) {
		allowed = true
		for i, m := range models {
			decisions[i] = m.decide(keys[i], now, n, take)
			allowed = allowed && decisions[i].Allowed
		}
		return allowed
	}
	switch allowed := ask(false); {
	case allowed && take:
		ask(true)
	case take: // a refused request takes no units, but clamps states
		for i, m := range models {
			m.clamp(keys[i], now)
		}
	}
	return algorithms.Combine(decisions)
}

// groupHistory sends random requests of a few users with some common keys.
func groupHistory(t *testing.T, open func(*testing.T, func() time.Time, GroupRules) Group,
	seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	c := newClock()
	group, models := open(t, c.read, groupRules), newModels(groupRules)
	highest := c.read()
	var last algorithms.Decision
	for step := range 300 {
		switch random.IntN(6) {
		case 0:
			c.move(last.RetryAfter)
		case 1:
			c.move(last.RetryAfter - time.Microsecond)
		case 2:
			c.move(upTo(random, 3*time.Second))
		case 3:
			if back := upTo(random, 2*time.Second); highest.Sub(c.read().Add(-back)) < Grace/2 {
				c.move(-back)
			}
		}
		if now := c.read(); now.After(highest) {
			highest = now
		}
		user := fmt.Sprint("user-", random.IntN(3))
		keys := []string{user, user + "/a", "everyone", user, "everyone"}
		n := 1 + random.Int64N(3)
		var got, want algorithms.Decision
		var gotRuling, wantRuling int
		var err error
		what := "take"
		switch random.IntN(8) {
		case 0:
			what = "refund"
			err = group.Refund(t.Context(), keys, n)
			for i, m := range models {
				m.refund(keys[i], c.read(), n)
			}
		case 1:
			what = "peek"
			got, gotRuling, err = group.Peek(t.Context(), keys, n)
			want, wantRuling = decideAll(models, keys, c.read(), n, false)
		default:
			got, gotRuling, err = group.Take(t.Context(), keys, n)
			want, wantRuling = decideAll(models, keys, c.read(), n, true)
			last = want
		}
		if err != nil || got != want || gotRuling != wantRuling {
			t.Fatalf("step %d, %s %d of %s: %+v, ruling %d, %v; want %+v, ruling %d",
				step, what, n, user, got, gotRuling, err, want, wantRuling)
		}
	}
}

// groupClockSetBack checks that after the clock is set back by days, a refused caller waits at most
// one window longer than if everything had been used at that moment.
func groupClockSetBack(t *testing.T, open func(*testing.T, func() time.Time, GroupRules) Group) {
	c := newClock()
	group, keys := open(t, c.read, groupRules), slices.Repeat([]string{"key"}, 5)
	take := func() bool {
		d, _, err := group.Take(t.Context(), keys, 1)
		if err != nil {
			t.Fatal(err)
		}
		return d.Allowed
	}
	for take() {
	}
	c.move(-30 * 24 * time.Hour)
	for waited := time.Duration(0); !take(); waited += time.Second {
		if waited > 10*time.Second {
			t.Fatal("it is still refused")
		}
		c.move(time.Second)
	}
}

// groupCallersAtOnce checks that a refusal by one rule takes no units of the others under
// concurrent calls.
func groupCallersAtOnce(t *testing.T, open func(*testing.T, func() time.Time, GroupRules) Group) {
	c := newClock()
	group := open(t, c.read, groupRules)
	users := []string{"a", "b", "c"}
	keysOf := func(user string) []string {
		return []string{user, user, "everyone", user, "everyone"}
	}
	var (
		wait    sync.WaitGroup
		mu      sync.Mutex
		granted = map[string]int64{}
	)
	for caller := range 8 {
		wait.Go(func() {
			for call := range 20 {
				user := users[(caller+call)%len(users)]
				d, _, err := group.Take(t.Context(), keysOf(user), 1)
				if err != nil {
					t.Errorf("take: %v", err)
					return
				}
				mu.Lock()
				granted[user] += d.Granted
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	models := newModels(groupRules)
	var all int64
	for _, user := range users {
		all += granted[user]
		for range granted[user] {
			if d, _ := decideAll(models, keysOf(user), c.read(), 1, true); !d.Allowed {
				t.Fatalf("%v were granted, which is too much", granted)
			}
		}
	}
	if all != groupRules.Fixed.Limit {
		t.Errorf("%v were granted, want %d in all", granted, groupRules.Fixed.Limit)
	}
	for _, user := range users {
		got, ruling, err := group.Peek(t.Context(), keysOf(user), 1)
		want, wantRuling := decideAll(models, keysOf(user), c.read(), 1, false)
		if err != nil || got != want || ruling != wantRuling {
			t.Errorf("%s stands at %+v, ruling %d, %v; want %+v, ruling %d", user, got, ruling, err,
				want, wantRuling)
		}
	}
}

func groupImpossibleCosts(t *testing.T, open func(*testing.T, func() time.Time, GroupRules) Group) {
	c := newClock()
	group := open(t, c.read, groupRules)
	keys := slices.Repeat([]string{"key"}, 5)
	for _, n := range []int64{0, -1, groupRules.Token.Capacity + 1} {
		_, _, take := group.Take(t.Context(), keys, n)
		_, _, peek := group.Peek(t.Context(), keys, n)
		errs := map[string]error{"take": take, "peek": peek}
		if n < 1 {
			errs["refund"] = group.Refund(t.Context(), keys, n)
		}
		areCostErrors(t, errs, n, groupRules.Token.Capacity)
	}
	if d, _, err := group.Peek(t.Context(), keys, 1); err != nil ||
		d.Remaining != groupRules.Token.Capacity {
		t.Errorf("afterwards: %+v, %v", d, err)
	}
}
