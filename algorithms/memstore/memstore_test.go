package memstore

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/algorithmstest"
)

func perSecond(n int64) algorithms.Rate { return algorithms.Rate{Count: n, Per: time.Second} }

func conform[S any](rule algorithms.Rule[S]) func(t *testing.T) {
	return func(t *testing.T) {
		algorithmstest.Run(t, rule, func(_ *testing.T,
			now func() time.Time) algorithmstest.Limiter {
			s := New(rule)
			s.now = now
			return s
		})
	}
}

func TestConformance(t *testing.T) {
	week := algorithms.Rate{Count: 1, Per: 7 * 24 * time.Hour}
	t.Run("token bucket", conform(algorithms.TokenBucket{Capacity: 10, Refill: perSecond(3)}))
	t.Run("fast token bucket",
		conform(algorithms.TokenBucket{Capacity: 5000, Refill: perSecond(600_000)}))
	t.Run("slow token bucket", conform(algorithms.TokenBucket{Capacity: 3, Refill: week}))
	t.Run("leaking bucket", conform(algorithms.LeakingBucket{Capacity: 20, Outflow: perSecond(7)}))
	t.Run("leaking bucket with burst",
		conform(algorithms.LeakingBucket{Capacity: 20, Outflow: perSecond(7), Burst: 4}))
	t.Run("fixed window", conform(algorithms.FixedWindow{Limit: 10, Window: time.Minute}))
	t.Run("short fixed window", conform(algorithms.FixedWindow{Limit: 3, Window: time.Second}))
	t.Run("sliding counter", conform(algorithms.SlidingCounter{Limit: 9, Window: 10 * time.Second}))
	t.Run("sliding counter of a day",
		conform(algorithms.SlidingCounter{Limit: 1_000_000, Window: 24 * time.Hour}))
	t.Run("sliding log", conform(algorithms.SlidingLog{Limit: 6, Window: 10 * time.Second}))
	t.Run("sliding log of accepted",
		conform(algorithms.SlidingLog{Limit: 60, Window: time.Minute, CountAccepted: true}))
}

type handClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *handClock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func open[S any](rule algorithms.Rule[S], opts ...Option) (*Store[S], *handClock) {
	c := &handClock{now: time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)}
	s := New(rule, opts...)
	s.now = c.read
	return s, c
}

func mustTake[S any](t *testing.T, s *Store[S], key string, n int64) algorithms.Decision {
	t.Helper()
	d, err := s.Take(t.Context(), key, n)
	if err != nil {
		t.Fatalf("take %d of %q: %v", n, key, err)
	}
	return d
}

func TestIdleKeysAreForgotten(t *testing.T) {
	s, clock := open(algorithms.TokenBucket{Capacity: 10, Refill: perSecond(1)})
	const keys = 20_000
	for i := range keys {
		mustTake(t, s, fmt.Sprint("idle ", i), 5)
	}
	if s.Len() != keys {
		t.Fatalf("%d keys, want %d", s.Len(), keys)
	}
	// Used keys stay, idle ones expire. Full after 5 s, these keys stay for another minute.
	clock.move(5*time.Second + grace - time.Microsecond)
	for i := range 20_000 {
		mustTake(t, s, fmt.Sprint("busy ", i%100), 1)
	}
	if s.Len() != keys+100 {
		t.Errorf("%d keys before they may be forgotten, want %d", s.Len(), keys+100)
	}
	clock.move(time.Microsecond)
	for i := 0; i < 1_000_000 && (i < 1000 || s.Len() > 1000); i++ {
		mustTake(t, s, fmt.Sprint("busy ", i%1000), 1)
	}
	if s.Len() != 1000 {
		t.Errorf("%d keys, want the 1000 in use", s.Len())
	}
	room := 0
	for i := range s.shards {
		room += len(s.shards[i].entries)
	}
	if room > keys*2/3 {
		t.Errorf("room for %d entries is kept for 1000 keys", room)
	}
}

func TestKeysDoNotPileUpWhenEachIsNew(t *testing.T) {
	s, clock := open(algorithms.FixedWindow{Limit: 1, Window: time.Second})
	most := 0
	for i := range 15_000 {
		mustTake(t, s, fmt.Sprint(i), 1)
		clock.move(20 * time.Millisecond)
		most = max(most, s.Len())
	}
	if most < 3000 || most > 5000 {
		t.Errorf("at most %d keys, want little more than 3050", most)
	}
}

// A flood of invented keys does not block new customers, and does not reset an exhausted key.
func TestTheColdestKeysGoFirst(t *testing.T) {
	for name, bound := range map[string]Option{"keys": MaxKeys(10_000),
		"bytes": MaxBytes(1_000_000)} {
		t.Run(name, func(t *testing.T) {
			s, clock := open(algorithms.TokenBucket{Capacity: 10,
				Refill: algorithms.Rate{Count: 1, Per: time.Minute}}, bound)
			for i := range 100 {
				mustTake(t, s, fmt.Sprint("spent ", i), 10)
			}
			for i := range 20_000 {
				if d := mustTake(t, s, fmt.Sprint("made up ", i), 1); !d.Allowed {
					t.Fatalf("new key %d: %+v", i, d)
				}
				clock.move(time.Millisecond)
			}
			if s.Len() < 5000 || int64(s.Len()) > s.options.maxKeys ||
				s.bytes.Load() > s.options.maxBytes {
				t.Errorf("%d keys in %d bytes", s.Len(), s.bytes.Load())
			}
			for i := range 100 {
				if d := mustTake(t, s, fmt.Sprint("spent ", i), 1); d.Allowed {
					t.Errorf("key %d is as good as new", i)
				}
			}
		})
	}
	s, _ := open(algorithms.FixedWindow{Limit: 1, Window: time.Minute}, MaxKeys(1))
	for i := range 300 {
		if d := mustTake(t, s, fmt.Sprint(i), 1); !d.Allowed || s.Len() != 1 {
			t.Fatalf("%+v, %d keys", d, s.Len())
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	const most = 1 << 20
	long := strings.Repeat("x", 200)
	for name, fill := range map[string]func() any{
		"long keys": func() any {
			s, _ := open(algorithms.FixedWindow{Limit: 5, Window: time.Hour}, MaxBytes(most))
			for i := range 8_000 {
				mustTake(t, s, long+fmt.Sprint(i), 1)
			}
			return s
		},
		"logs": func() any {
			s, clock := open(algorithms.SlidingLog{Limit: 1000, Window: time.Hour}, MaxBytes(most))
			for i := range 200_000 {
				mustTake(t, s, fmt.Sprint(i%650), 3)
				clock.move(time.Microsecond)
			}
			return s
		},
		"logs of a group": func() any {
			s, clock := open(algorithms.SlidingLog{Limit: 1000, Window: time.Hour}, MaxBytes(most))
			group := NewGroup(s)
			for i := range 200_000 {
				if _, _, err := group.Take(t.Context(), []string{fmt.Sprint(i % 650)}, 3); err !=
					nil {
					t.Fatal(err)
				}
				clock.move(time.Microsecond)
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			store := fill()
			runtime.GC()
			runtime.ReadMemStats(&after)
			runtime.KeepAlive(store)
			// A log may hold as much again, left over from append's first allocation.
			if used := int64(after.HeapAlloc) - int64(before.HeapAlloc); used > 2*most ||
				used < most/2 {
				t.Errorf("%d bytes are used, want %d", used, most)
			}
		})
	}
}

func TestSetRuleAppliesToKeysInUse(t *testing.T) {
	s, clock := open(algorithms.FixedWindow{Limit: 10, Window: time.Minute})
	mustTake(t, s, "key", 4)
	if err := s.SetRule(algorithms.FixedWindow{Limit: 5, Window: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if d := mustTake(t, s, "key", 1); !d.Allowed || d.Limit != 5 || d.Remaining != 0 {
		t.Errorf("%+v, want the last of 5", d)
	}
	if err := s.SetRule(algorithms.FixedWindow{Limit: 3, Window: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if d := mustTake(t, s, "key", 1); d.Allowed || d.Remaining != 0 || d.RetryAfter != time.Minute {
		t.Errorf("%+v, want a refusal for a minute", d)
	}
	if _, err := s.Take(t.Context(), "key", 4); err == nil {
		t.Error("a cost above the new limit was accepted")
	}
	if err := s.SetRule(algorithms.FixedWindow{Limit: 0, Window: time.Minute}); err == nil {
		t.Error("an invalid rule was accepted")
	}
	if got := s.Rule(); got != (algorithms.FixedWindow{Limit: 3, Window: time.Minute}) {
		t.Errorf("the rule is %+v", got)
	}
	clock.move(time.Minute)
	if d := mustTake(t, s, "key", 3); !d.Allowed {
		t.Errorf("%+v in the next window", d)
	}
}

func TestSetRuleWhileCallersTake(t *testing.T) {
	s := New(algorithms.TokenBucket{Capacity: 10, Refill: perSecond(1000)})
	var wait sync.WaitGroup
	for caller := range 4 {
		wait.Go(func() {
			for i := range 2000 {
				key := fmt.Sprint((caller + i) % 50)
				d, err := s.Take(t.Context(), key, int64(1+i%10))
				var cost *algorithms.CostError
				if err != nil && !errors.As(err, &cost) || d.Remaining < 0 {
					t.Errorf("%+v, %v", d, err)
					return
				}
				if err := s.Refund(t.Context(), key, 1); err != nil {
					t.Errorf("refund: %v", err)
				}
			}
		})
	}
	for i := range 1000 {
		if err := s.SetRule(algorithms.TokenBucket{Capacity: int64(1 + i%20),
			Refill: perSecond(int64(1 + i))}); err != nil {
			t.Error(err)
		}
	}
	wait.Wait()
}

func TestNewPanicsOnAnInvalidRule(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	New(algorithms.SlidingLog{})
}

func TestDecisionsOnKnownKeysDoNotAllocate(t *testing.T) {
	if n := allocations(t, algorithms.TokenBucket{Capacity: 10, Refill: perSecond(3)}); n != 0 {
		t.Errorf("token bucket: %g allocations", n)
	}
	if n := allocations(t, algorithms.LeakingBucket{Capacity: 10, Outflow: perSecond(3)}); n != 0 {
		t.Errorf("leaking bucket: %g allocations", n)
	}
	if n := allocations(t, algorithms.FixedWindow{Limit: 10, Window: time.Second}); n != 0 {
		t.Errorf("fixed window: %g allocations", n)
	}
	if n := allocations(t, algorithms.SlidingCounter{Limit: 10, Window: time.Second}); n != 0 {
		t.Errorf("sliding counter: %g allocations", n)
	}
}

func allocations[S any](t *testing.T, rule algorithms.Rule[S]) float64 {
	s, ctx := New(rule), t.Context()
	return testing.AllocsPerRun(1000, func() {
		if _, err := s.Take(ctx, "key", 1); err != nil {
			t.Error(err)
		}
		if _, err := s.Peek(ctx, "key", 1); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkTake(b *testing.B) {
	benchmark(b, "token bucket", algorithms.TokenBucket{Capacity: 1e9, Refill: perSecond(1000000)})
	benchmark(b, "leaking bucket",
		algorithms.LeakingBucket{Capacity: 100, Outflow: perSecond(7000)})
	benchmark(b, "fixed window", algorithms.FixedWindow{Limit: 100, Window: time.Second})
	benchmark(b, "sliding counter", algorithms.SlidingCounter{Limit: 100, Window: time.Second})
	benchmark(b, "sliding log", algorithms.SlidingLog{Limit: 100, Window: time.Second})
}

func benchmark[S any](b *testing.B, name string, rule algorithms.Rule[S]) {
	for _, keys := range []int{1, 100_000} {
		b.Run(fmt.Sprintf("%s/keys=%d", name, keys), func(b *testing.B) {
			s, ctx := New(rule), b.Context()
			names := make([]string, keys)
			for i := range names {
				names[i] = fmt.Sprint("tenant-", i)
				if _, err := s.Take(ctx, names[i], 1); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if _, err := s.Take(ctx, names[i*7919%keys], 1); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func BenchmarkTakeNewKeys(b *testing.B) {
	const second = 1000
	s, clock := open(algorithms.TokenBucket{Capacity: 1, Refill: perSecond(1)})
	names := make([]string, 200*second)
	for i := range names {
		names[i] = fmt.Sprint("tenant-", i)
	}
	take := func(i int) {
		if _, err := s.Take(b.Context(), names[i%len(names)], 1); err != nil {
			b.Fatal(err)
		}
		clock.move(time.Second / second)
	}
	for i := range 100 * second {
		take(i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		take(100*second + i)
	}
}
