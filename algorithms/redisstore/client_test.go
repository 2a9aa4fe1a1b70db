package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/redistest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

var waitFor = waittest.Until

func (c *Client) waitingNow() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}

func (c *Client) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	flights := 0
	for _, n := range c.nodes {
		flights += n.flights
	}
	return flights
}

func freezeIdle(t *testing.T, s *redistest.Server, c *Client) {
	t.Helper()
	waitFor(t, "nothing is under way", func() bool { return c.inFlight() == 0 })
	s.Freeze()
}

func decisions(t testing.TB, s *redistest.Server) int {
	t.Helper()
	rdb := s.Client()
	defer rdb.Close()
	info, err := rdb.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(info)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

type answer struct {
	algorithms.Decision
	err error
}

func takeAside[S any](ctx context.Context, s *Store[S], key string, n int64) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		d, err := s.Take(ctx, key, n)
		c <- answer{d, err}
	}()
	return c
}

func TestCallersShareCommands(t *testing.T) {
	s := redistest.Start(t)
	store := New(newClient(t, s, Options{}), "policy",
		algorithms.TokenBucket{Capacity: 100, Refill: perHour(1)})
	mustTake(t, store, "key", 1)
	before := decisions(t, s)

	freezeIdle(t, s, store.client)
	const callers = 50
	first := takeAside(t.Context(), store, "key", 1)
	waitFor(t, "the first request is under way", func() bool {
		return store.client.waitingNow() == 0 && store.client.inFlight() == 1
	})
	var others []<-chan answer
	for range callers {
		others = append(others, takeAside(t.Context(), store, "key", 2))
	}
	waitFor(t, "all others wait", func() bool { return store.client.waitingNow() == callers })
	s.Thaw()

	remaining := make(map[int64]bool)
	for _, c := range append(others, first) {
		if a := <-c; a.err != nil {
			t.Error(a.err)
		} else if a.Allowed {
			remaining[a.Remaining] = true
		}
	}
	if len(remaining) != 1+49 {
		t.Errorf("%d different remainders, want 50: %v", len(remaining), remaining)
	}
	if n := decisions(t, s) - before; n != 2 {
		t.Errorf("%d commands, want 2", n)
	}
}

func TestKeysShareCommands(t *testing.T) {
	s := redistest.Start(t)
	c := newClient(t, s, Options{})
	bucket := New(c, "bucket", algorithms.TokenBucket{Capacity: 100, Refill: perHour(1)})
	window := New(c, "window", algorithms.FixedWindow{Limit: 100, Window: year})
	mustTake(t, bucket, "key", 1)
	mustTake(t, window, "key", 1)
	before := decisions(t, s)

	freezeIdle(t, s, c)
	var all []<-chan answer
	for i := range maxFlights {
		all = append(all, takeAside(t.Context(), bucket, fmt.Sprint("first ", i), 1))
		waitFor(t, "another flight", func() bool {
			return c.inFlight() == i+1 && c.waitingNow() == 0
		})
	}
	for i := range maxKeysPerCall + 1 {
		all = append(all, takeAside(t.Context(), bucket, fmt.Sprint(i), 1),
			takeAside(t.Context(), window, fmt.Sprint(i), 1))
	}
	waitFor(t, "all others wait", func() bool { return c.waitingNow() == 2*maxKeysPerCall+2 })
	s.Thaw()
	for _, c := range all {
		if a := <-c; a.err != nil || a.Remaining != 99 {
			t.Errorf("%+v, want 99 remaining", a)
		}
	}
	if n := decisions(t, s) - before; n != maxFlights+4 {
		t.Errorf("%d commands, want %d", n, maxFlights+4)
	}
	waitFor(t, "the flights end", func() bool { return c.inFlight() == 0 })
	if len(bucket.lane.buckets)+len(window.lane.buckets) != 0 {
		t.Error("buckets are left")
	}
}

// A caller gets its context's error at once, even if its request was sent; others get their
// answers, and unsent requests are not counted.
func TestACallerLeaves(t *testing.T) {
	s := redistest.Start(t)
	store := New(newClient(t, s, Options{}), "policy",
		algorithms.TokenBucket{Capacity: 10, Refill: perHour(1)})
	mustTake(t, store, "key", 1)

	freezeIdle(t, s, store.client)
	ctx, cancel := context.WithCancel(t.Context())
	sent := takeAside(ctx, store, "key", 1)
	waitFor(t, "the first request is under way", func() bool {
		return store.client.waitingNow() == 0 && store.client.inFlight() == 1
	})
	waiting := takeAside(ctx, store, "key", 1)
	stays := takeAside(t.Context(), store, "key", 1)
	waitFor(t, "the others wait", func() bool { return store.client.waitingNow() == 2 })
	cancel()
	for _, c := range []<-chan answer{sent, waiting} {
		if a := <-c; !errors.Is(a.err, context.Canceled) {
			t.Errorf("got %v, want the context's error", a.err)
		}
	}
	s.Thaw()
	if a := <-stays; a.err != nil || a.Remaining != 7 {
		// 10, minus the first unit, the unit in flight, and this request's
		t.Errorf("%+v, want 7 remaining", a)
	}
	if _, err := store.Take(ctx, "key", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func TestScriptsAreLoadedAgain(t *testing.T) {
	s := redistest.Start(t)
	c := newClient(t, s, Options{})
	tokens := New(c, "bucket", algorithms.TokenBucket{Capacity: 10, Refill: perHour(1)})
	log := New(c, "log", algorithms.SlidingLog{Limit: 10, Window: time.Hour})
	rdb := s.Client()
	defer rdb.Close()
	for want := int64(9); want > 6; want-- {
		if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		first, second := takeAside(t.Context(), tokens, "key", 1), takeAside(t.Context(), log,
			"key", 1)
		for _, c := range []<-chan answer{first, second} {
			if a := <-c; a.err != nil || a.Remaining != want {
				t.Errorf("%+v, want %d remaining", a, want)
			}
		}
	}

	mustTake(t, tokens, "other", 1)
	calls := make([]*call, 0, 2)
	for _, l := range []*lane{&tokens.lane, &log.lane} {
		r := &request{kind: take, n: 1, done: make(chan struct{}, 1)}
		b := &bucket{lane: l, key: "other", name: redisKey(l.stem, "other"), flying: []*request{r}}
		calls = append(calls, &call{terms: l.terms(), buckets: []*bucket{b}})
	}
	if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	mustTake(t, tokens, "third", 1)
	for _, call := range calls {
		call.prepare(c, &node{}, 0)
	}
	c.send(calls)
	for i, want := range []int64{8, 9} {
		r := calls[i].buckets[0].flying[0]
		calls[i].settle(c, &node{}, 0)
		if <-r.done; r.err != nil || r.decision.Remaining != want {
			t.Errorf("call %d: %+v, %v; want %d remaining", i, r.decision, r.err, want)
		}
	}

	s.Restart(t)
	waitFor(t, "an answer from the new server", func() bool {
		d, err := tokens.Take(t.Context(), "key", 1)
		return err == nil && d.Remaining == 9
	})
}

func TestFrozenServer(t *testing.T) {
	s := redistest.Start(t)
	store := New(newClient(t, s, Options{Timeout: 20 * time.Millisecond}), "policy",
		algorithms.TokenBucket{Capacity: 100, Refill: perHour(1)})
	waitFor(t, "a decision", func() bool {
		_, err := store.Take(t.Context(), "key", 1)
		return err == nil
	})

	s.Freeze()
	var wait sync.WaitGroup
	for i := range 40 {
		wait.Go(func() {
			if _, err := store.Take(t.Context(), fmt.Sprint("key ", i%10), 1); !errors.Is(err,
				ErrTimeout) {
				t.Errorf("got %v, want ErrTimeout", err)
			}
			if err := store.Refund(t.Context(), fmt.Sprint("key ", i%10), 1); !errors.Is(err,
				ErrTimeout) {
				t.Errorf("got %v, want ErrTimeout", err)
			}
		})
	}
	wait.Wait()
	s.Thaw()
	waitFor(t, "a decision again", func() bool {
		_, err := store.Take(t.Context(), "key", 1)
		return err == nil
	})

	s.Stop()
	if _, err := store.Take(t.Context(), "key", 1); err == nil ||
		errors.As(err, new(*algorithms.CostError)) {
		t.Errorf("got %v from a server that is gone", err)
	}
	if n := store.client.waitingNow(); n != 0 {
		t.Errorf("%d requests wait for ever", n)
	}
}

// deaf drops the answers to scripts.
type deaf struct {
	net.Conn
	lose, lost bool
}

func (d *deaf) Write(p []byte) (int, error) {
	d.lose = d.lose || bytes.Contains(p, []byte("evalsha"))
	return d.Conn.Write(p)
}

func (d *deaf) Read(p []byte) (int, error) {
	if d.lost {
		return 0, io.EOF
	}
	n, err := d.Conn.Read(p)
	if d.lose {
		d.lost = true
		return 0, io.EOF
	}
	return n, err
}

// TestNothingIsSentTwice loses a command's answer; the Redis client must not retry it, contrary to
// its default.
func TestNothingIsSentTwice(t *testing.T) {
	rule := algorithms.FixedWindow{Limit: 100, Window: year}
	c := newClient(t, server, Options{})
	hears := New(c, "policy", rule)
	mustTake(t, hears, "key", 1)
	rdb := redis.NewClient(&redis.Options{
		Addr: server.Addr(), ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &deaf{Conn: conn}, err
		},
	})
	defer rdb.Close()
	store := New(newClientOf(rdb, Options{Prefix: c.prefix}), "policy", rule)
	if _, err := store.Take(t.Context(), "key", 1); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want that the connection was lost", err)
	}
	if d, err := hears.Peek(t.Context(), "key", 1); err != nil || d.Remaining != 98 {
		t.Errorf("%+v, %v; want 98 remaining", d, err)
	}
}

func TestTooManyWait(t *testing.T) {
	s := redistest.Start(t)
	c := newClient(t, s, Options{})
	c.maxWaiting = 3
	store := New(c, "policy", algorithms.TokenBucket{Capacity: 100, Refill: perHour(1)})
	mustTake(t, store, "key", 1)
	freezeIdle(t, s, c)
	all := []<-chan answer{takeAside(t.Context(), store, "key", 1)}
	waitFor(t, "the first request is under way", func() bool {
		return c.waitingNow() == 0 && store.client.inFlight() == 1
	})
	for i := range 3 {
		all = append(all, takeAside(t.Context(), store, "key", 1))
		waitFor(t, "another one waits", func() bool { return c.waitingNow() == i+1 })
	}
	if _, err := store.Take(t.Context(), "key", 1); !errors.Is(err, ErrOverloaded) {
		t.Errorf("got %v, want ErrOverloaded", err)
	}
	s.Thaw()
	for _, c := range all {
		if a := <-c; a.err != nil {
			t.Error(a.err)
		}
	}
	if d := mustTake(t, store, "key", 1); d.Remaining != 94 {
		t.Errorf("%d remain, want 94", d.Remaining)
	}
}

func TestRequestsThatNeedNoCommand(t *testing.T) {
	c := newClient(t, server, Options{Timeout: time.Second})
	store := New(c, "policy", algorithms.TokenBucket{Capacity: 10, Refill: perHour(1)})
	old := &request{kind: take, n: 1, done: make(chan struct{}, 1)}
	large := &request{kind: peek, n: 11, came: time.Minute, done: make(chan struct{}, 1)}
	b := &bucket{lane: &store.lane, key: "key", name: redisKey(store.lane.stem, "key"),
		flying: []*request{old, large}}
	flight := &call{terms: store.lane.terms(), buckets: []*bucket{b}}
	if flight.prepare(c, &node{}, time.Minute) {
		t.Error("a command is to be sent")
	}
	var cost *algorithms.CostError
	if <-old.done; !errors.Is(old.err, ErrTimeout) {
		t.Errorf("got %v, want ErrTimeout", old.err)
	}
	if <-large.done; !errors.As(large.err, &cost) || cost.Most != 10 {
		t.Errorf("got %v, want a CostError", large.err)
	}
}

func TestNewClientPanicsWithoutContextTimeouts(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	NewClient(rdb, Options{})
}

func TestALateCallTakesNothing(t *testing.T) {
	s := redistest.Start(t)
	c := newClient(t, s, Options{Timeout: 100 * time.Millisecond})
	store := New(c, "policy", algorithms.TokenBucket{Capacity: 100, Refill: perHour(1)})
	takesNothingLate(t, c, store, "key", s)

	// After the clock steps ahead, timely calls look late.
	c.nodes[""].ahead.Add(-time.Hour.Microseconds())
	waitFor(t, "a decision after the step", func() bool {
		_, err := store.Take(t.Context(), "key", 1)
		return err == nil
	})
}

func takesNothingLate[S any](t *testing.T, c *Client, store *Store[S], key string,
	s *redistest.Server) {

	t.Helper()
	waitFor(t, "a decision", func() bool {
		_, err := store.Take(t.Context(), key, 1)
		return err == nil
	})
	var before algorithms.Decision
	waitFor(t, "what is left", func() (ok bool) {
		var err error
		before, err = store.Peek(t.Context(), key, 1)
		return err == nil
	})
	freezeIdle(t, s, c)
	if _, err := store.Take(t.Context(), key, 50); err == nil {
		t.Fatal("it is answered by a Redis that hangs")
	}
	given := c.elapsed()
	waitFor(t, "the call is too late by the clock of Redis",
		func() bool { return c.elapsed() > given+2*c.timeout })
	s.Thaw()
	waitFor(t, "a decision again", func() bool {
		d, err := store.Peek(t.Context(), key, 1)
		if err == nil && d.Remaining != before.Remaining {
			t.Errorf("%d are left of %d", d.Remaining, before.Remaining)
		}
		return err == nil
	})
}

func TestALateCallOfAClusterTakesNothing(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	rdb := cluster.Client()
	defer rdb.Close()
	c := newClientOf(rdb, Options{Timeout: 100 * time.Millisecond})
	store := New(c, "policy", algorithms.TokenBucket{Capacity: 100, Refill: perHour(1)})
	key := "0"
	for i := 0; slotOf(redisKey(store.lane.stem, key)) < 2*16384/3+1; i++ {
		key = fmt.Sprint(i)
	}
	takesNothingLate(t, c, store, key, cluster.Nodes[2])
}
