package redisstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/redistest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

func TestSlotsMatchRedis(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	rdb := cluster.Client()
	defer rdb.Close()
	names := []string{"", "a", "{}x", "x{}y", "{a}b", "x{a}b{c}", "{{a}}", "a}b{c",
		"penstock:{api:tenant-1}", "123456789", "\x00\xff"}
	byTag := map[uint16][]string{}
	var shared []string
	for i := range 1000 {
		key := fmt.Sprintf("%x", i*i*7919)
		slot := slotOf(redisKey("c:{policy:", key))
		if byTag[slot] = append(byTag[slot], key); len(byTag[slot]) == 2 {
			shared = append(shared, byTag[slot]...)
		}
	}
	for _, name := range names {
		want, err := rdb.ClusterKeySlot(t.Context(), name).Result()
		if got := int64(slotOf(name)); err != nil || got != want {
			t.Errorf("%q lies in slot %d, %v; want %d", name, got, err, want)
		}
	}

	// Keys of one slot share a script call; others get separate ones.
	c := newClientOf(rdb, Options{Prefix: "c"})
	s := New(c, "policy", algorithms.TokenBucket{Capacity: 2, Refill: perHour(1)})
	f := flight{node: &node{flights: 1}}
	c.mu.Lock()
	for _, key := range append(shared, "alone") {
		r := &request{kind: take, n: 1, done: make(chan struct{}, 1)}
		b := &bucket{lane: &s.lane, key: key, name: s.lane.redisKey(key), waiting: []*request{r}}
		s.lane.buckets[key] = b
		f.node.ready = append(f.node.ready, b)
		c.waiting++
	}
	c.mu.Unlock()
	if !c.board(&f) {
		t.Fatal("nothing is ready")
	}
	if len(shared) < 4 || len(f.calls) != len(shared)/2+1 {
		t.Errorf("%d calls for %d keys, of which two each share a slot", len(f.calls),
			len(f.buckets))
	}
	for _, call := range f.calls {
		call.prepare(c, f.node, 0)
	}
	c.dispatch(f.node, f.calls)
	for _, call := range f.calls {
		call.settle(c, f.node, 0)
	}
	if c.board(&f) {
		t.Fatal("something is ready still")
	}
	for _, key := range append(shared, "alone") {
		if d := mustTake(t, s, key, 1); d.Remaining != 0 {
			t.Errorf("%s: %+v", key, d)
		}
	}
}

func TestGroupOnCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	rdb := cluster.Client()
	defer rdb.Close()
	c := newClientOf(rdb, Options{})
	g := NewGroup(c, "policy",
		NewMember(c, "policy", "short", algorithms.TokenBucket{Capacity: 2, Refill: perHour(1)}),
		NewMember(c, "policy", "long", algorithms.FixedWindow{Limit: 3, Window: year}))
	for i := range 20 {
		key := fmt.Sprint("tenant-", i)
		for n, want := range []bool{true, true, false} {
			if d, ruling, err := g.Take(t.Context(), []string{key, key}, 1); err != nil ||
				d.Allowed != want || ruling != 0 {
				t.Errorf("%s, request %d: %+v, ruling %d, %v", key, n, d, ruling, err)
			}
		}
	}
	if d, _, err := g.Take(t.Context(), []string{"a", "everyone"}, 1); err == nil {
		t.Errorf("keys of two slots: %+v", d)
	}
}

type testBreaker struct {
	open error
	mu   sync.Mutex
	told []error
}

func (b *testBreaker) Allow() (func(error), error) {
	return func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.told = append(b.told, err)
	}, b.open
}

func (b *testBreaker) last() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told[len(b.told)-1]
}

func TestBreakerCountsPipelines(t *testing.T) {
	s := redistest.Start(t)
	b := &testBreaker{}
	c := newClient(t, s, Options{Timeout: time.Second, Breaker: b})
	store := New(c, "policy", algorithms.TokenBucket{Capacity: 2, Refill: perHour(1)})
	mustTake(t, store, "key", 2)
	if err := c.rdb.Set(t.Context(), store.lane.redisKey("foreign"), "words", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Take(t.Context(), "foreign", 1); err == nil {
		t.Error("words are a state")
	}
	if d := mustTake(t, store, "key", 1); d.Allowed {
		t.Errorf("%+v", d)
	}
	if len(b.told) != 3 || b.told[0] != nil || b.told[1] != nil || b.told[2] != nil {
		t.Fatalf("told %v; want three answers", b.told)
	}
	mustTake(t, store, "key", 1)
	s.Stop()
	if _, err := store.Take(t.Context(), "other", 1); err == nil {
		t.Error("a stopped server decided")
	}
	if len(b.told) != 4 || b.told[3] == nil {
		t.Fatalf("told %v; want an outage at the end", b.told)
	}
	b.open = fmt.Errorf("open")
	if _, err := store.Take(t.Context(), "other", 1); err == nil || len(b.told) != 4 {
		t.Errorf("sent in spite of the breaker: %v, told %v", err, b.told)
	}
}

func TestAFrozenMasterDelaysOnlyItsKeys(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	addresses := []string{cluster.Nodes[0].Addr(), cluster.Nodes[1].Addr()}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses,
		ContextTimeoutEnabled: true, ReadTimeout: waittest.Patience()})
	defer rdb.Close()
	rule := algorithms.TokenBucket{Capacity: 1000, Refill: perHour(1)}
	c := newClientOf(rdb, Options{Timeout: waittest.Patience()})
	s := New(c, "policy", rule)
	var healthy, frozen []string
	for i := 0; len(healthy) < 20 || len(frozen) < maxFlights; i++ {
		key := fmt.Sprint(i)
		if slotOf(redisKey(s.lane.stem, key)) >= 2*16384/3 {
			frozen = append(frozen, key)
		} else {
			healthy = append(healthy, key)
		}
	}
	mustTake(t, s, healthy[0], 1) // the client learns which server has which slots
	freezeIdle(t, cluster.Nodes[2], c)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cluster.Nodes[2].Thaw()
	for i := range maxFlights {
		wait.Go(func() { _, _ = s.Take(t.Context(), frozen[i], 1) })
		waitFor(t, "one more flight waits for the frozen server", func() bool {
			return c.inFlight() == i+1 && c.waitingNow() == 0
		})
	}
	for _, key := range healthy {
		mustTake(t, s, key, 1)
	}
	if n := c.inFlight(); n < maxFlights {
		t.Errorf("they waited for the frozen server, of whose flights %d are left", n)
	}

	b := &testBreaker{}
	s = New(newClientOf(rdb, Options{Timeout: 50 * time.Millisecond, Breaker: b}), "policy", rule)
	waitFor(t, "a decision of a server that answers", func() bool {
		_, err := s.Take(t.Context(), healthy[0], 1)
		return err == nil
	})
	if _, err := s.Take(t.Context(), frozen[0], 1); err == nil {
		t.Error("a frozen server decided")
	}
	if last := b.last(); last != nil {
		t.Errorf("the breaker was told of an outage while a server answers: %v", last)
	}
}

// Without a redirection the client of a cluster would go on asking the dead master for a minute.
func TestASuccessorInAClusterIsFound(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	replica := cluster.StartReplica(t, cluster.Nodes[2])
	rdb := cluster.Client()
	defer rdb.Close()
	s := New(newClientOf(rdb, Options{}), "policy",
		algorithms.TokenBucket{Capacity: 2, Refill: perHour(1)})
	key := ""
	for i := 0; slotOf(redisKey(s.lane.stem, key)) < 11000; i++ {
		key = fmt.Sprint(i)
	}
	waitFor(t, "a decision", func() bool {
		_, err := s.Take(t.Context(), key, 1)
		return err == nil
	})
	cluster.Nodes[2].Stop()
	of := replica.Client()
	defer of.Close()
	waitFor(t, "the replica takes over", func() bool {
		role, err := of.Do(t.Context(), "role").Slice()
		return err == nil && role[0] == "master"
	})
	began := time.Now()
	waitFor(t, "a decision of the replica", func() bool {
		_, err := s.Take(t.Context(), key, 1)
		return err == nil
	})
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("found after %v", took)
	}
}
