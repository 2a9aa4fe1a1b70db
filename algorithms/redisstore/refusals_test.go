package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/redistest"
)

// TestAFloodIsAnsweredFromMemory refuses ten thousand requests at the cost of a few commands.
func TestAFloodIsAnsweredFromMemory(t *testing.T) {
	s := redistest.Start(t)
	c := newClient(t, s, Options{})
	t.Run("token bucket",
		flood(s, New(c, "token", algorithms.TokenBucket{Capacity: 9, Refill: perHour(1)})))
	t.Run("leaking bucket",
		flood(s, New(c, "leak", algorithms.LeakingBucket{Capacity: 9, Outflow: perHour(1)})))
	t.Run("fixed window",
		flood(s, New(c, "window", algorithms.FixedWindow{Limit: 9, Window: year})))
	t.Run("sliding counter",
		flood(s, New(c, "counter", algorithms.SlidingCounter{Limit: 9, Window: year})))
	t.Run("sliding log",
		flood(s,
			New(c, "log", algorithms.SlidingLog{Limit: 9, Window: time.Hour, CountAccepted: true})))
}

func flood[S any](s *redistest.Server, store *Store[S]) func(t *testing.T) {
	return func(t *testing.T) {
		mustTake(t, store, "key", 9)
		before := decisions(t, s)
		for i := range 10_000 {
			var d algorithms.Decision
			if i%2 == 0 {
				d = mustTake(t, store, "key", 1)
			} else {
				var err error
				if d, err = store.TakeUpTo(t.Context(), "key", 1+int64(i)); err != nil {
					t.Fatal(err)
				}
			}
			if d.Allowed || d.Granted != 0 || d.Remaining != 0 || d.Limit != 9 ||
				d.RetryAfter <= 0 || d.ResetAfter <= 0 {
				t.Fatalf("%+v, want a refusal", d)
			}
		}
		if n := decisions(t, s) - before; n > 3 {
			t.Errorf("%d commands", n)
		}
	}
}

// Each refusal extends the log, so Redis must decide it.
func TestRecordedRefusalsAreAsked(t *testing.T) {
	s := redistest.Start(t)
	store := New(newClient(t, s, Options{}), "policy",
		algorithms.SlidingLog{Limit: 5, Window: time.Hour})
	for range 20 {
		mustTake(t, store, "key", 1)
	}
	if n := decisions(t, s); n != 20 {
		t.Errorf("%d commands, want 20", n)
	}
}

func TestRememberedRefusalsCountDown(t *testing.T) {
	c := newClient(t, server, Options{})
	s := New(c, "policy", algorithms.TokenBucket{Capacity: 10, Refill: perHour(7)})
	mustTake(t, s, "key", 8)
	mustTake(t, s, "key", 5)
	for _, n := range []int64{5, 3, 10, 5} {
		asked, err := s.Peek(t.Context(), "key", n)
		if err != nil {
			t.Fatal(err)
		}
		remembered, ok := s.recall(s.mirror.Load(), "key", n)
		later, err := s.Peek(t.Context(), "key", n)
		if err != nil {
			t.Fatal(err)
		}
		const slewing = time.Millisecond // of the wall clock against the monotonic one
		if !ok || remembered.RetryAfter > asked.RetryAfter+slewing ||
			remembered.ResetAfter > asked.ResetAfter+slewing {
			t.Errorf("cost %d: %+v is remembered, %t, after %+v", n, remembered, ok, asked)
		}
		if remembered.Remaining != later.Remaining || remembered.Limit != later.Limit ||
			remembered.Allowed {
			t.Errorf("cost %d: %+v is remembered before %+v", n, remembered, later)
		}
	}
	if _, ok := s.recall(s.mirror.Load(), "key", 2); ok {
		t.Error("2 could pass, and are refused from memory")
	}
	if d := mustTake(t, s, "key", 2); !d.Allowed {
		t.Errorf("%+v, want the last 2", d)
	}
}

func TestRememberedRefusalsEnd(t *testing.T) {
	c := newClient(t, server, Options{})
	bucket := New(c, "bucket", algorithms.TokenBucket{Capacity: 1, Refill: perSecond(20)})
	log := New(c, "log",
		algorithms.SlidingLog{Limit: 1, Window: 50 * time.Millisecond, CountAccepted: true})
	for range 3 {
		for name, ask := range map[string]func(*testing.T) algorithms.Decision{
			"bucket": func(t *testing.T) algorithms.Decision {
				return mustTake(t, bucket, "key", 1)
			},
			"log": func(t *testing.T) algorithms.Decision { return mustTake(t, log, "key", 1) },
		} {
			waitFor(t, name+" lets one pass", func() bool { return ask(t).Allowed })
			refused := ask(t)
			if refused.Allowed {
				continue
			}
			<-time.After(refused.RetryAfter)
			if d := ask(t); !d.Allowed {
				t.Errorf("%s: %+v after a wait of %s", name, d, refused.RetryAfter)
			}
		}
	}
}

func TestRememberedRefusalsAreForgotten(t *testing.T) {
	c := newClient(t, server, Options{})
	t.Run("token bucket", forgets(c, algorithms.TokenBucket{Capacity: 4, Refill: perHour(1)},
		algorithms.TokenBucket{Capacity: 5, Refill: perHour(1)}))
	t.Run("sliding log",
		forgets(c, algorithms.SlidingLog{Limit: 4, Window: time.Hour, CountAccepted: true},
			algorithms.SlidingLog{Limit: 5, Window: time.Hour, CountAccepted: true}))
}

func forgets[S any](c *Client, rule, wider algorithms.Rule[S]) func(t *testing.T) {
	return func(t *testing.T) {
		s := New(c, fmt.Sprintf("%T", rule), rule)
		mustTake(t, s, "key", 4)
		for range 2 {
			if d := mustTake(t, s, "key", 1); d.Allowed {
				t.Fatalf("%+v, want a refusal", d)
			}
		}
		if err := s.Refund(t.Context(), "key", 1); err != nil {
			t.Fatal(err)
		}
		if d := mustTake(t, s, "key", 1); !d.Allowed {
			t.Errorf("%+v after a refund", d)
		}
		if d := mustTake(t, s, "key", 1); d.Allowed {
			t.Errorf("%+v, want a refusal", d)
		}
		if err := s.SetRule(wider); err != nil {
			t.Fatal(err)
		}
		if d := mustTake(t, s, "key", 1); !d.Allowed {
			t.Errorf("%+v under the new rule", d)
		}

		mustTake(t, s, "key", 1)
		m := s.mirror.Load()
		if _, ok := s.recall(m, "key", 1); !ok {
			t.Error("a refusal is not remembered")
		}
		c.born = c.born.Add(-memory)
		if _, ok := s.recall(m, "key", 1); ok {
			t.Errorf("a refusal is remembered for more than %s", memory)
		}
	}
}

func TestRefusalsHaveALimit(t *testing.T) {
	c := newClient(t, server, Options{})
	s := New(c, "policy", algorithms.TokenBucket{Capacity: 1, Refill: perHour(1)})
	held := func() (n int) {
		for i := range s.refusals.shards {
			n += len(s.refusals.shards[i].byKey)
		}
		return n
	}
	m := s.mirror.Load()
	for i := range maxRefusals * 5 / 4 {
		s.refusals.remember(fmt.Sprint(i), refusal[algorithms.TokenBucketState]{mirror: m})
	}
	if n := held(); n > maxRefusals || n < maxRefusals*3/4 {
		t.Errorf("%d refusals are remembered, want about %d", n, maxRefusals)
	}
	for i := range maxRefusals {
		key := fmt.Sprint("later ", i)
		s.refusals.remember(key, refusal[algorithms.TokenBucketState]{mirror: m, sent: 2 * memory})
		s.refusals.forget(key)
	}
	if n := held(); n > 1000 {
		t.Errorf("%d refusals are remembered long after", n)
	}
}
