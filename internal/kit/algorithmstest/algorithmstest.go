// Package algorithmstest is a conformance suite for stores of rate-limiting states. It replays
// histories on the store and on the bare rule, and compares every decision.
//
//	func TestConformance(t *testing.T) {
//		perSecond := algorithms.Rate{Count: 5, Per: time.Second}
//		rule := algorithms.TokenBucket{Capacity: 10, Refill: perSecond}
//		open := func(t *testing.T, now func() time.Time) algorithmstest.Limiter {
//			return newStore(t, rule, now) // a new, empty store whose clock is now
//		}
//		algorithmstest.Run(t, rule, open)
//	}
package algorithmstest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// Limiter is a store: each method reads the key's state, applies the rule at the store's own time,
// and saves the new state, atomically. A cost that can never pass is an [*algorithms.CostError].
type Limiter interface {
	Take(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	TakeUpTo(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	Peek(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	Refund(ctx context.Context, key string, n int64) error
}

// Grace is the least time that a store must keep a key in its initial state. If the clock steps
// back by less, decisions are the same as for a kept key.
const Grace = time.Minute

// histories is the number of histories per rule, half of each kind.
var histories = flag.Uint64("algorithmstest.histories", 4,
	"how many random histories the suite of stores plays of each rule")

// Run checks a store against its rule. open returns a new, empty store that reads the time from
// now, which is safe for concurrent use. Failures print the seed of their history.
func Run[S any](t *testing.T, rule algorithms.Rule[S],
	open func(t *testing.T, now func() time.Time) Limiter) {
	if err := rule.Validate(); err != nil {
		t.Fatalf("the suite was given a rule that is not valid: %v", err)
	}
	for seed := range *histories {
		t.Run(fmt.Sprintf("history %d", seed), func(t *testing.T) { history(t, rule, open, seed) })
	}
	for name, check := range map[string]func(*pair[S]){"costs": costs[S],
		"partial grants": partialGrants[S], "refunds": refunds[S], "waits": waits[S],
		"clock steps back": clockStepsBack[S], "keys apart": keysApart[S],
		"many keys": manyKeys[S], "callers at once": callersAtOnce[S],
		"impossible costs": impossibleCosts[S]} {
		t.Run(name, func(t *testing.T) { check(newPair(t, rule, open)) })
	}
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock {
	return &clock{now: time.Date(2026, 3, 2, 1, 59, 58, 999_999_500, time.UTC)}
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.now
}

type pair[S any] struct {
	t      *testing.T
	rule   algorithms.Rule[S]
	store  Limiter
	clock  *clock
	states map[string]S
	steps  []step // the latest, printed on failure
	fail   func(format string, args ...any)
}

func newPair[S any](t *testing.T, rule algorithms.Rule[S],
	open func(t *testing.T, now func() time.Time) Limiter) *pair[S] {
	c := newClock()
	return &pair[S]{t: t, rule: rule, store: open(t, c.read), clock: c, states: make(map[string]S),
		fail: t.Fatalf}
}

type step struct {
	at   time.Time
	what string
	n    int64
	key  string
	want algorithms.Decision
}

func (s step) String() string {
	return fmt.Sprintf("%s %s %d of %q: %+v", s.at.Format(time.RFC3339Nano), s.what, s.n, s.key,
		s.want)
}

func (p *pair[S]) compare(what, key string, n int64, got, want algorithms.Decision, err error) {
	p.t.Helper()
	if len(p.steps) == 20 {
		p.steps = slices.Delete(p.steps, 0, 1)
	}
	p.steps = append(p.steps, step{p.clock.read(), what, n, key, want})
	if err != nil || got != want {
		var story strings.Builder
		for _, s := range p.steps {
			fmt.Fprintln(&story, s)
		}
		p.fail("the store answers %+v, %v; the rule's answers up to this one:\n%s", got, err,
			story.String())
	}
}

func (p *pair[S]) take(key string, n int64) (want algorithms.Decision) {
	p.t.Helper()
	p.states[key], want = p.rule.Take(p.states[key], p.clock.read(), n)
	got, err := p.store.Take(p.t.Context(), key, n)
	p.compare("take", key, n, got, want, err)
	return want
}

func (p *pair[S]) takeUpTo(key string, n int64) (want algorithms.Decision) {
	p.t.Helper()
	p.states[key], want = p.rule.TakeUpTo(p.states[key], p.clock.read(), n)
	got, err := p.store.TakeUpTo(p.t.Context(), key, n)
	p.compare("take up to", key, n, got, want, err)
	return want
}

func (p *pair[S]) peek(key string, n int64) {
	p.t.Helper()
	want := p.rule.Peek(p.states[key], p.clock.read(), n)
	got, err := p.store.Peek(p.t.Context(), key, n)
	p.compare("peek", key, n, got, want, err)
}

func (p *pair[S]) refund(key string, n int64) {
	p.t.Helper()
	p.states[key] = p.rule.Refund(p.states[key], p.clock.read(), n)
	err := p.store.Refund(p.t.Context(), key, n)
	p.compare("refund", key, n, algorithms.Decision{}, algorithms.Decision{}, err)
}

// history sends random requests for a few keys. Even seeds move the clock far ahead and a little
// back, where a store may expire keys; odd seeds a little ahead and far back, where it must not.
func history[S any](t *testing.T, rule algorithms.Rule[S],
	open func(t *testing.T, now func() time.Time) Limiter, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	p := newPair(t, rule, open)
	keys := []string{
		"tenant-1", "tenant-2", "", "_", "tenant.1", "a b", "{x}:*>?[y]", "Zürich\n\x00",
		"\xff\xfe",
		strings.Repeat("long", 64),
	}
	highest := p.clock.read()
	ahead := Grace - 10*time.Second
	var last algorithms.Decision
	for range 400 {
		var move time.Duration
		switch random.IntN(16) {
		case 0:
			move = last.RetryAfter
		case 1:
			move = last.RetryAfter - time.Microsecond
		case 2:
			move = last.ResetAfter
		case 3:
			move = upTo(random, 2*min(last.ResetAfter, math.MaxInt64/4))
		case 4, 5, 6:
			move = upTo(random, time.Second)
		case 7:
			move = upTo(random, 10*time.Minute)
		case 8:
			move = -upTo(random, Grace/2)
		case 9:
			move = -upTo(random, 1000*time.Hour)
		}
		if seed%2 == 0 {
			move = max(move, highest.Add(-Grace/2).Sub(p.clock.read()))
		} else if move > 0 {
			if move > ahead {
				move = 0
			}
			ahead -= move
		}
		if now := p.clock.move(move); now.After(highest) {
			highest = now
		}

		key, n := keys[random.IntN(len(keys))], cost(random, rule.Most())
		if random.IntN(3) > 0 {
			key = keys[0]
		}
		switch random.IntN(10) {
		case 0, 1:
			p.peek(key, n)
		case 2:
			p.refund(key, n)
		case 3:
			last = p.takeUpTo(key, cost(random, math.MaxInt64))
		case 4:
			last = p.takeUpTo(key, n)
		default:
			last = p.take(key, n)
		}
	}
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d) + 1))
}

func cost(random *rand.Rand, most int64) int64 {
	if random.IntN(2) == 0 {
		return 1
	}
	return 1 + random.Int64N(most)>>random.IntN(40)
}

// manyKeys checks that keys have separate states, and that expired keys are as new. Callers use
// distinct keys, and the clock does not advance.
func manyKeys[S any](all *pair[S]) {
	const callers, keys = 15, 6
	t, rule := all.t, all.rule
	var pairs []*pair[S]
	for range callers {
		p := *all
		p.states, p.fail = make(map[string]S), t.Errorf
		pairs = append(pairs, &p)
	}
	each := func(ask func(p *pair[S], key string, i int)) {
		t.Helper()
		var wait sync.WaitGroup
		for caller, p := range pairs {
			wait.Go(func() {
				for i := caller; i < callers*keys && !t.Failed(); i += callers {
					ask(p, fmt.Sprintf("key.%d", i), i)
				}
			})
		}
		wait.Wait()
		all.clock.move(time.Microsecond)
	}
	for range 2 {
		var (
			mu    sync.Mutex
			reset time.Duration
		)
		each(func(p *pair[S], key string, i int) {
			for range 4 {
				p.take(key, 1+int64(i)%rule.Most())
			}
			d := p.take(key, rule.Most())
			mu.Lock()
			defer mu.Unlock()
			reset = max(reset, d.ResetAfter)
		})
		each(func(p *pair[S], key string, _ int) { p.peek(key, 1) })
		all.clock.move(reset / 2)
		each(func(p *pair[S], key string, i int) {
			if i%7 == 0 {
				p.take(key, 1)
			}
		})
		all.clock.move(reset + 2*Grace)
	}
}

// callersAtOnce checks that no unit is taken twice. The clock does not advance, so the order of
// calls does not matter.
func callersAtOnce[S any](p *pair[S]) {
	const callers, calls = 8, 25
	t, rule := p.t, p.rule
	p.takeUpTo("shared", max(1, rule.Most()-callers*calls/2))
	var (
		wait    sync.WaitGroup
		mu      sync.Mutex
		granted int64
	)
	for range callers {
		wait.Go(func() {
			for range calls {
				d, err := p.store.Take(t.Context(), "shared", 1)
				if err != nil {
					t.Errorf("take: %v", err)
					return
				}
				mu.Lock()
				granted += d.Granted
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	var want int64
	s := p.states["shared"]
	for range callers * calls {
		var d algorithms.Decision
		s, d = rule.Take(s, p.clock.read(), 1)
		want += d.Granted
	}
	p.states["shared"] = s
	if granted != want {
		t.Errorf("%d units were granted to callers at once, want %d", granted, want)
	}
	p.peek("shared", 1)
}

func impossibleCosts[S any](p *pair[S]) {
	t, rule := p.t, p.rule
	for _, n := range []int64{0, -1, math.MinInt64, rule.Most() + 1, math.MaxInt64} {
		errs := map[string]error{}
		_, errs["take"] = p.store.Take(t.Context(), "key", n)
		_, errs["peek"] = p.store.Peek(t.Context(), "key", n)
		if n < 1 {
			_, errs["take up to"] = p.store.TakeUpTo(t.Context(), "key", n)
			errs["refund"] = p.store.Refund(t.Context(), "key", n)
		}
		areCostErrors(t, errs, n, rule.Most())
	}
	p.peek("key", 1)
}

func areCostErrors(t *testing.T, errs map[string]error, n, most int64) {
	t.Helper()
	for what, err := range errs {
		if cost := (*algorithms.CostError)(nil); !errors.As(err, &cost) || cost.Cost != n ||
			cost.Most != most {
			t.Errorf("%s of %d: got %v, want a CostError", what, n, err)
		}
	}
}
