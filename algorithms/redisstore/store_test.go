package redisstore

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/algorithms/memstore"
	"github.com/penstock-mq/penstock/internal/kit/algorithmstest"
	"github.com/penstock-mq/penstock/internal/kit/redistest"
)

// TestForeignValues checks that a stored value that is not a state is an error that names the key,
// and stays.
func TestForeignValues(t *testing.T) {
	numbers := []string{"", " ", "hello", "-5", "1e5", "0x10", "1.5", "nan", "12 ",
		"9007199254740992", "1" + strings.Repeat("0", 400), strings.Repeat("1", 50_000) + "x"}
	notMeter := append([]string{"5+", "+5", "5+-1", "5:", "5::6", "5+6:7", "5+9007199254740992"},
		numbers...)
	notWindow := append([]string{"5:", ":5", "5:-6", "5:6:", "5:9007199254740992"}, numbers...)
	notCounter := append([]string{"5:6:", "::", "5:6:7:8", "5:6:9007199254740992"}, numbers...)
	c := newClient(t, server, Options{})
	t.Run("token bucket",
		foreign(c, New(c, "token", algorithms.TokenBucket{Capacity: 9, Refill: perHour(1)}),
			notMeter))
	t.Run("leaking bucket",
		foreign(c, New(c, "leak", algorithms.LeakingBucket{Capacity: 9, Outflow: perHour(1)}),
			notMeter))
	t.Run("fixed window",
		foreign(c, New(c, "window", algorithms.FixedWindow{Limit: 9, Window: year}), notWindow))
	t.Run("sliding counter",
		foreign(c, New(c, "counter", algorithms.SlidingCounter{Limit: 9, Window: year}),
			notCounter))
	t.Run("sliding log",
		foreign(c, New(c, "log", algorithms.SlidingLog{Limit: 9, Window: time.Hour}), numbers))
	t.Run("log of words", func(t *testing.T) {
		s := New(c, "words", algorithms.SlidingLog{Limit: 9, Window: time.Hour})
		name := redisKey(s.lane.stem, "key")
		if err := c.rdb.RPush(t.Context(), name, "some", "words").Err(); err != nil {
			t.Fatal(err)
		}
		refuses(t, s, name)
		if n, err := c.rdb.LLen(t.Context(), name).Result(); err != nil || n != 2 {
			t.Errorf("%d elements are left, %v", n, err)
		}
	})
}

func foreign[S any](c *Client, s *Store[S], values []string) func(t *testing.T) {
	return func(t *testing.T) {
		name := redisKey(s.lane.stem, "key")
		for _, value := range values {
			if err := c.rdb.Set(t.Context(), name, value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			refuses(t, s, name)
			if got, err := c.rdb.Get(t.Context(), name).Result(); err != nil || got != value {
				t.Errorf("%q became %q, %v", value, got, err)
			}
		}
		c.rdb.Del(t.Context(), name)
		if err := c.rdb.HSet(t.Context(), name, "field", "value").Err(); err != nil {
			t.Fatal(err)
		}
		refuses(t, s, name)
		if n, err := c.rdb.HLen(t.Context(), name).Result(); err != nil || n != 1 {
			t.Errorf("%d fields are left, %v", n, err)
		}
	}
}

func refuses[S any](t *testing.T, s *Store[S], name string) {
	t.Helper()
	errs := make(map[string]error)
	_, errs["take"] = s.Take(t.Context(), "key", 1)
	_, errs["take up to"] = s.TakeUpTo(t.Context(), "key", 1)
	_, errs["peek"] = s.Peek(t.Context(), "key", 1)
	errs["refund"] = s.Refund(t.Context(), "key", 1)
	for what, err := range errs {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("%s: got %v, want an error that names %q", what, err, name)
		}
	}
}

func TestForeignValuesHarmNoOthers(t *testing.T) {
	c := newClient(t, server, Options{})
	s := New(c, "policy", algorithms.TokenBucket{Capacity: 9, Refill: perHour(1)})
	if err := c.rdb.Set(t.Context(), redisKey(s.lane.stem, "b"), "foreign", 0).Err(); err != nil {
		t.Fatal(err)
	}
	flight := &call{terms: s.lane.terms()}
	for _, key := range []string{"a", "b", "c"} {
		r := &request{kind: take, n: 1, done: make(chan struct{}, 1)}
		flight.buckets = append(flight.buckets,
			&bucket{lane: &s.lane, key: key, name: redisKey(s.lane.stem, key),
				flying: []*request{r}})
	}
	flight.prepare(c, &node{}, 0)
	c.send([]*call{flight})
	var all []*request
	for _, b := range flight.buckets {
		all = append(all, b.flying...)
	}
	flight.settle(c, &node{}, 0)
	for i, r := range all {
		if <-r.done; (r.err != nil) != (i == 1) || i != 1 && r.decision.Remaining != 8 {
			t.Errorf("key %d: %+v, %v", i, r.decision, r.err)
		}
	}
}

func TestRedisKeys(t *testing.T) {
	c := newClient(t, server, Options{Prefix: "p"})
	for _, k := range []struct{ policy, key, want string }{
		{"api", "tenant-1", "p:{api:tenant-1}"},
		{"api", "", "p:{api:}"},
		{"api", "a}b{c%7D", "p:{api:a%7Db%7Bc%257D}"},
		{"api", "a:b c\x00é", "p:{api:a:b c\x00é}"},
		{"a:b", "c", "p:{a%3Ab:c}"},
		{"a}%", "c", "p:{a%7D%25:c}"},
	} {
		if got := redisKey(c.stem(k.policy), k.key); got != k.want {
			t.Errorf("key %q of policy %q is %q, want %q", k.key, k.policy, got, k.want)
		}
	}
}

// TestStatesExpire checks that a value outlives its use by a minute, and is deleted if a refund
// makes it new.
func TestStatesExpire(t *testing.T) {
	c := newClient(t, server, Options{})
	t.Run("token bucket",
		expires(c, New(c, "token", algorithms.TokenBucket{Capacity: 9, Refill: perHour(1)})))
	t.Run("leaking bucket",
		expires(c, New(c, "leak", algorithms.LeakingBucket{Capacity: 9, Outflow: perHour(1)})))
	t.Run("fixed window",
		expires(c, New(c, "window", algorithms.FixedWindow{Limit: 9, Window: year})))
	t.Run("sliding counter",
		expires(c, New(c, "counter", algorithms.SlidingCounter{Limit: 9, Window: year})))
	t.Run("sliding log",
		expires(c, New(c, "log", algorithms.SlidingLog{Limit: 9, Window: time.Hour})))
	t.Run("a hundred years", expires(c, New(c, "years", algorithms.TokenBucket{
		Capacity: 100, Refill: algorithms.Rate{Count: 1, Per: year},
	})))
}

func expires[S any](c *Client, s *Store[S]) func(t *testing.T) {
	return func(t *testing.T) {
		name := redisKey(s.lane.stem, "key")
		for range 3 {
			d := mustTake(t, s, "key", 1)
			left, err := c.rdb.PTTL(t.Context(), name).Result()
			if most := d.ResetAfter + algorithmstest.Grace + time.Millisecond; err != nil ||
				left > most || left < most-patient {
				t.Errorf("it expires in %s, %v; want %s", left, err, most)
			}
		}
		if d := mustTake(t, s, "key", s.Rule().Most()); d.Allowed {
			t.Fatalf("%+v, want a refusal", d)
		}
		if err := s.Refund(t.Context(), "key", math.MaxInt64); err != nil {
			t.Fatal(err)
		}
		if n, err := c.rdb.Exists(t.Context(), name).Result(); err != nil || n != 0 {
			t.Errorf("%d values are left, %v", n, err)
		}
		if d := mustTake(t, s, "key", s.Rule().Most()); !d.Allowed {
			t.Errorf("%+v after all was given back", d)
		}
		if n, err := c.rdb.Exists(t.Context(), name).Result(); err != nil || n != 1 {
			t.Errorf("%d values, %v; want 1", n, err)
		}
	}
}

func TestSetRule(t *testing.T) {
	odd := algorithms.Rate{Count: 7, Per: 3 * time.Second}
	t.Run("token bucket", changes(
		algorithms.TokenBucket{Capacity: 20, Refill: odd},
		algorithms.TokenBucket{Capacity: 5,
			Refill: algorithms.Rate{Count: 3, Per: 3 * time.Second}},
		algorithms.TokenBucket{Capacity: 1000, Refill: perSecond(1000)},
	))
	t.Run("leaking bucket", changes(
		algorithms.LeakingBucket{Capacity: 20, Outflow: odd, Burst: 3},
		algorithms.LeakingBucket{Capacity: 5,
			Outflow: algorithms.Rate{Count: 2, Per: 3 * time.Second}},
	))
	t.Run("fixed window", changes(
		algorithms.FixedWindow{Limit: 20, Window: time.Minute},
		algorithms.FixedWindow{Limit: 5, Window: 7 * time.Second},
		algorithms.FixedWindow{Limit: 7, Window: time.Hour},
	))
	t.Run("sliding counter", changes(
		algorithms.SlidingCounter{Limit: 20, Window: time.Minute},
		algorithms.SlidingCounter{Limit: 5, Window: 7 * time.Second},
		algorithms.SlidingCounter{Limit: 7, Window: time.Hour},
	))
	t.Run("sliding log", changes(
		algorithms.SlidingLog{Limit: 20, Window: time.Minute},
		algorithms.SlidingLog{Limit: 5, Window: 7 * time.Second, CountAccepted: true},
		algorithms.SlidingLog{Limit: 30, Window: time.Hour},
	))
}

func changes[S any](rules ...algorithms.Rule[S]) func(t *testing.T) {
	return func(t *testing.T) {
		c := newClient(t, server, Options{})
		now := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
		c.now = func() time.Time { return now }
		store := New(c, "policy", rules[0])
		var state S
		for i := range 200 {
			rule := rules[i/3%len(rules)]
			if err := store.SetRule(rule); err != nil {
				t.Fatal(err)
			}
			n := 1 + int64(i)%rule.Most()
			var want algorithms.Decision
			if i%5 == 0 {
				state, want = rule.TakeUpTo(state, now, n)
				got, err := store.TakeUpTo(t.Context(), "key", n)
				if err != nil || got != want {
					t.Fatalf("step %d under %+v: got %+v, %v; want %+v", i, rule, got, err, want)
				}
			} else {
				state, want = rule.Take(state, now, n)
				if got := mustTake(t, store, "key", n); got != want {
					t.Fatalf("step %d under %+v: got %+v, want %+v", i, rule, got, want)
				}
			}
			if i%7 == 0 {
				state = rule.Refund(state, now, 3)
				if err := store.Refund(t.Context(), "key", 3); err != nil {
					t.Fatal(err)
				}
			}
			now = now.Add(time.Duration(i%4) * 700 * time.Millisecond)
		}
	}
}

type ownRule struct{ algorithms.TokenBucket }

func TestInvalidRules(t *testing.T) {
	c := newClient(t, server, Options{})
	good := algorithms.TokenBucket{Capacity: 1, Refill: perSecond(1)}
	for _, rule := range []algorithms.Rule[algorithms.TokenBucketState]{algorithms.TokenBucket{},
		ownRule{good}} {
		s := New(c, "policy", good)
		if err := s.SetRule(rule); err == nil || s.Rule() != good {
			t.Errorf("SetRule(%+v): %v, and the rule is %+v", rule, err, s.Rule())
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("no panic for %+v", rule)
				}
			}()
			New(c, "policy", rule)
		}()
	}
}

func TestServersClock(t *testing.T) {
	c := newClient(t, server, Options{})
	s := New(c, "policy", algorithms.TokenBucket{Capacity: 5, Refill: perSecond(100)})
	if d, err := s.TakeUpTo(t.Context(), "key", 5); err != nil || d.Granted != 5 {
		t.Fatalf("%+v, %v", d, err)
	}
	waitFor(t, "tokens come back", func() bool {
		d, err := s.Peek(t.Context(), "key", 5)
		return err == nil && d.Allowed
	})
	now, err := c.rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	mustTake(t, s, "key", 1)
	us, err := c.rdb.Get(t.Context(), redisKey(s.lane.stem, "key")).Int64()
	if err != nil || time.UnixMicro(us).Sub(now).Abs() > time.Minute {
		t.Errorf("the bucket is full at %s, %v; now is %s", time.UnixMicro(us), err, now)
	}
}

// TestMixedTraffic uses many goroutines, keys and methods, and checks totals against the limits,
// for the race detector.
func TestMixedTraffic(t *testing.T) {
	mixed(t, newClient(t, server, Options{}))
}

func TestCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	rdb := cluster.Client()
	defer rdb.Close()
	mixed(t, newClientOf(rdb, Options{}))
	rule := algorithms.LeakingBucket{Capacity: 20,
		Outflow: algorithms.Rate{Count: 7, Per: 3 * time.Second}, Burst: 4}
	t.Run("leaking bucket", func(t *testing.T) {
		algorithmstest.Run(t, rule, func(_ *testing.T,
			now func() time.Time) algorithmstest.Limiter {
			c := newClientOf(rdb, Options{})
			c.now = now
			return New(c, "policy", rule)
		})
	})
	for i, node := range cluster.Nodes {
		if decisions(t, node) == 0 {
			t.Errorf("node %d has decided nothing", i)
		}
	}
}

func TestRing(t *testing.T) {
	addrs := make(map[string]string)
	var servers []*redistest.Server
	for _, name := range []string{"a", "b", "c"} {
		s := redistest.Start(t)
		servers = append(servers, s)
		addrs[name] = s.Addr()
	}
	rdb := redis.NewRing(&redis.RingOptions{Addrs: addrs, ContextTimeoutEnabled: true})
	defer rdb.Close()
	mixed(t, newClientOf(rdb, Options{}))
	for i, s := range servers {
		if decisions(t, s) == 0 {
			t.Errorf("server %d has decided nothing", i)
		}
	}
}

func mixed(t *testing.T, c *Client) {
	const limit, keys = 100, 20
	bucket := New(c, "bucket", algorithms.TokenBucket{Capacity: limit, Refill: perHour(1)})
	log := New(c, "log",
		algorithms.SlidingLog{Limit: limit, Window: time.Hour, CountAccepted: true})
	var (
		wait    sync.WaitGroup
		mu      sync.Mutex
		granted [2][keys]int64
	)
	for caller := range 24 {
		wait.Go(func() {
			ask := bucket.Take
			if caller%2 == 0 {
				ask = log.Take
			}
			for i := range 10 * keys {
				key, n := (i+caller)%keys, int64(1+i%3)
				ctx, cancel := context.WithCancel(t.Context())
				d, err := ask(ctx, fmt.Sprint(key), n)
				cancel()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				granted[caller%2][key] += d.Granted
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	for i := range keys {
		for kind, ask := range []func(context.Context, string,
			int64) (algorithms.Decision, error){log.TakeUpTo, bucket.TakeUpTo} {
			d, err := ask(t.Context(), fmt.Sprint(i), limit)
			if err != nil {
				t.Fatal(err)
			}
			if got := granted[kind][i] + d.Granted; got != limit {
				t.Errorf("kind %d, key %d: %d units were granted, want %d", kind, i, got, limit)
			}
		}
	}
	waitFor(t, "nothing is under way", func() bool { return c.inFlight() == 0 })
	if len(bucket.lane.buckets)+len(log.lane.buckets)+len(c.nodes[""].ready)+c.waiting != 0 {
		t.Error("something waits for ever")
	}
}

func TestMemoryAgrees(t *testing.T) {
	rule := algorithms.SlidingCounter{Limit: 10, Window: year}
	memory, store := memstore.New(rule), New(newClient(t, server, Options{}), "policy", rule)
	for i := range 30 {
		n := int64(1 + i%3)
		want, err := memory.Take(t.Context(), "key", n)
		if err != nil {
			t.Fatal(err)
		}
		got := mustTake(t, store, "key", n)
		if got.Allowed != want.Allowed || got.Granted != want.Granted ||
			got.Remaining != want.Remaining || got.Limit != want.Limit {
			t.Errorf("call %d: got %+v, want %+v", i, got, want)
		}
	}
}

func TestStatesOfAFormerAlgorithm(t *testing.T) {
	c := newClient(t, server, Options{})
	stores := map[string]interface {
		Take(ctx context.Context, key string, n int64) (algorithms.Decision, error)
		Peek(ctx context.Context, key string, n int64) (algorithms.Decision, error)
		Refund(ctx context.Context, key string, n int64) error
	}{
		"token bucket": New(c, "former",
			algorithms.TokenBucket{Capacity: 9,
				Refill: algorithms.Rate{Count: 7, Per: 3 * time.Hour}}),
		"fixed window":    New(c, "former", algorithms.FixedWindow{Limit: 9, Window: year}),
		"sliding counter": New(c, "former", algorithms.SlidingCounter{Limit: 9, Window: year}),
		"sliding log":     New(c, "former", algorithms.SlidingLog{Limit: 9, Window: time.Hour}),
	}
	for before, former := range stores {
		for after, store := range stores {
			if before == after {
				continue
			}
			key := before + " to " + after
			if _, err := former.Take(t.Context(), key, 5); err != nil {
				t.Fatal(err)
			}
			if d, err := store.Peek(t.Context(), key, 1); err != nil || d.Remaining != 9 {
				t.Errorf("%s: looks like %+v, %v", key, d, err)
			}
			if d, err := store.Take(t.Context(), key, 4); err != nil || d.Remaining != 5 {
				t.Errorf("%s: decides %+v, %v", key, d, err)
			}
			if err := store.Refund(t.Context(), key, 1); err != nil {
				t.Errorf("%s: refunds: %v", key, err)
			}
			if d, err := store.Peek(t.Context(), key, 1); err != nil || d.Remaining != 6 {
				t.Errorf("%s: afterwards %+v, %v", key, d, err)
			}
		}
	}
}
