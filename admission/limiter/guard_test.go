package limiter_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/admission/limiter/inredis"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/kit/redistest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

var k = admission.Caller{Key: "k"}

func TestRedisDecidesAsMemoryDoes(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range algorithmNames {
		s := share(t, server)
		p := one(a, 3)
		p.Name = "alg-" + strings.ReplaceAll(string(a), "_", "-")
		first, second := s.limit(p, policy.Closed), share(t, server).limit(p, policy.Closed)
		taking(t, first, k)(2, true)
		taking(t, second, k)(2, false)
		taking(t, second, k)(1, true)
		taking(t, first, k)(1, false)
		if err := second.Refund(t.Context(), k, 1); err != nil {
			t.Fatal(err)
		}
		if c, err := second.Peek(t.Context(), k, 1); err != nil || !c.Allowed {
			t.Errorf("%s after a refund: %+v, %v", a, c, err)
		}
		if _, err := first.Take(t.Context(), k, 4); !errors.As(err, new(*algorithms.CostError)) {
			t.Errorf("%s: more than can ever pass: %v", a, err)
		}
	}
}

func TestSeveralLimitsInRedis(t *testing.T) {
	server := redistest.Start(t)
	testSeveralLimits(t, share(t, server).factory)
}

type outage struct {
	fail, mend func()
	empty      bool
}

func TestWithoutTheStore(t *testing.T) {
	for name, disturb := range map[string]func(t *testing.T, server *redistest.Server,
		p *proxy) outage{
		"stopped and restarted empty": func(t *testing.T, server *redistest.Server,
			_ *proxy) outage {
			return outage{server.Stop, func() { server.Restart(t) }, true}
		},
		"frozen": func(t *testing.T, server *redistest.Server, _ *proxy) outage {
			return outage{func() { server.Freeze() }, func() { server.Thaw() }, false}
		},
		"slow": func(_ *testing.T, _ *redistest.Server, p *proxy) outage {
			return outage{func() { p.delay(4 * timeout) }, func() { p.delay(0) }, false}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			between := newProxy(t, server.Addr())
			s := shareFor(t, server, between.address(), timeout)
			s.factory.SetLive(4)
			open, closed, local := s.limit(tokens("o", 8), policy.Open), s.limit(tokens("c", 8),
				policy.Closed), s.limit(window("l", 8), policy.Local)
			for _, l := range []admission.Limiter{open, closed, local} {
				taking(t, l, k)(8, true)
				taking(t, l, admission.Caller{Key: "other"})(1, true)
			}
			o := disturb(t, server, between)
			o.fail()

			began := time.Now()
			s.until("it is known to be down", func() bool {
				if c, err := closed.Take(t.Context(), k, 1); err == nil && c.Allowed {
					t.Fatalf("allowed: %+v", c)
				}
				_, _ = closed.Take(t.Context(), admission.Caller{Key: "other"}, 1)
				return !s.isUp()
			})
			t.Logf("given up after %v", time.Since(began))

			if c := taking(t, open, admission.Caller{Key: "other"})(3, true); c.Granted != 3 {
				t.Errorf("open: %+v", c)
			}
			if err := open.Refund(t.Context(), admission.Caller{Key: "other"}, 3); err != nil {
				t.Errorf("open: %v", err)
			}
			if c, err := closed.Take(t.Context(), admission.Caller{Key: "other"}, 1); err == nil {
				t.Errorf("closed: %+v", c)
			}
			share := taking(t, local, admission.Caller{Key: "other"})
			if c := share(2, true); c.Limit != 2 {
				t.Errorf("local: %+v", c)
			}
			share(1, false)
			if c := share(8, false); c.RetryAfter <= 0 {
				t.Errorf("local: %+v", c)
			}
			s.factory.SetLive(2)
			share(2, true)
			share(1, false)
			if err := local.Refund(t.Context(), admission.Caller{Key: "other"}, 1); err != nil {
				t.Error(err)
			}
			share(1, true)

			o.mend()
			s.until("the store is asked again", func() bool {
				_, _ = closed.Peek(t.Context(), k, 1)
				return s.isUp()
			})
			for name, l := range map[string]admission.Limiter{"open": open, "closed": closed,
				"local": local} {
				if c, err := l.Peek(t.Context(), k, 8); err != nil || c.Allowed != o.empty {
					t.Errorf("%s afterwards: %+v, %v; the store is empty: %v", name, c, err,
						o.empty)
				}
			}
			var told []string
			for _, line := range strings.Split(strings.TrimSpace(s.log.String()), "\n") {
				told = append(told, line[strings.Index(line, "level="):][:len("level=INFO")])
			}
			if len(told) != 2 || told[0] != "level=WARN" || told[1] != "level=INFO" {
				t.Errorf("one line for each change was wanted:\n%s",
					s.log)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.fell["o open"] == 0 || s.fell["c closed"] == 0 || s.fell["l local"] == 0 {
				t.Errorf("counted %v", s.fell)
			}
		})
	}
}

// A store may be down at the start.
func TestTheStoreMayComeLater(t *testing.T) {
	server := redistest.Start(t)
	server.Stop()
	s := shareFor(t, server, server.Addr(), timeout)
	l := s.limit(tokens("p", 2), policy.Local)
	taking(t, l, k)(2, true)
	taking(t, l, k)(1, false)
	s.until("the store is given up", func() bool {
		_, _ = l.Peek(t.Context(), admission.Caller{Key: "other"}, 1)
		return !s.isUp()
	})
	server.Restart(t)
	s.until("the store is asked", func() bool {
		c, err := l.Peek(t.Context(), k, 2)
		return err == nil && c.Allowed && s.isUp()
	})

	// A Redis that fails again and again does not grant the share each time.
	server.Stop()
	s.until("the store is given up again", func() bool {
		_, _ = l.Peek(t.Context(), admission.Caller{Key: "other"}, 1)
		return !s.isUp()
	})
	taking(t, l, k)(1, false)
}

func TestCallersWhoLeaveDoNotTripTheBreaker(t *testing.T) {
	server := redistest.Start(t)
	s := share(t, server)
	l := s.limit(tokens("p", 100), policy.Closed)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		if _, err := l.Take(gone, k, 1); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err := l.Take(t.Context(), k, 101); !errors.As(err, new(*algorithms.CostError)) {
			t.Fatal(err)
		}
	}
	if !s.isUp() {
		t.Error("the store was given up")
	}
	taking(t, l, k)(100, true)
}

// A late command fails for all requests that share it, but counts as one failure.
func TestOneStallIsNoOutage(t *testing.T) {
	server := redistest.Start(t)
	between := newProxy(t, server.Addr())
	s := shareFor(t, server, between.address(), timeout)
	l := s.limit(tokens("p", 10_000), policy.Closed)
	taking(t, l, k)(1, true)
	between.delayOnce(2 * timeout)
	var wait sync.WaitGroup
	for range 64 {
		wait.Go(func() { _, _ = l.Take(t.Context(), k, 1) })
	}
	wait.Wait()
	if !s.isUp() {
		t.Error("the store was given up")
	}
	s.until("decisions go on", func() bool {
		_, err := l.Take(t.Context(), k, 1)
		return err == nil
	})
}

func TestOneBadKeyIsNoOutage(t *testing.T) {
	server := redistest.Start(t)
	s := share(t, server)
	bad, good := s.limit(tokens("bad", 5), policy.Closed), s.limit(tokens("good", 5), policy.Closed)
	rdb := server.Client()
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "penstock:{bad:k}", "words", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if c, err := bad.Take(t.Context(), k, 1); !errors.Is(err, admit.ErrStore) {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	taking(t, good, k)(5, true)
	if !s.isUp() {
		t.Error("the store was given up")
	}
	if told := s.log.String(); strings.Count(told, "\n") != 1 ||
		!strings.Contains(told, "penstock:{bad:k}") || !strings.Contains(told, "deleted") {
		t.Errorf("one line with the value's name and what to do was wanted:\n%s", told)
	}
}

// Without the commands that scripts run, no decision can be made.
func TestAScriptThatMayNotWriteIsAnOutage(t *testing.T) {
	server := redistest.Start(t)
	s := share(t, server)
	l := s.limit(tokens("p", 100), policy.Closed)
	taking(t, l, k)(1, true)
	rdb := server.Client()
	defer rdb.Close()
	if err := rdb.Do(t.Context(), "acl", "setuser", "default", "-set").Err(); err != nil {
		t.Fatal(err)
	}
	s.until("it is known that Redis cannot decide", func() bool {
		if c, err := l.Take(t.Context(), k, 1); err == nil {
			t.Fatalf("%+v", c)
		}
		return !s.isUp()
	})
}

// On a cluster a global limit cannot share the slot of each key.
func TestAFrozenMasterIsLoggedAndNoOutage(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	s := &shared{t: t, log: &waittest.Log{}, fell: map[string]int{}}
	rdb := cluster.Client()
	defer rdb.Close()
	s.factory = limiter.New(limiter.Options{
		Shared: inredis.New(rdb, inredis.Options{Timeout: timeout}),
		Sink:   s, Logger: slog.New(slog.NewTextHandler(s.log, nil)),
	})
	l := s.limit(tokens("api", 30_000), policy.Open)
	ask := func(key int) {
		from := admission.Caller{Key: queue.Key(strconv.Itoa(key))}
		if checked, err := l.Take(t.Context(), from, 1); err != nil || !checked.Allowed {
			t.Errorf("%+v, %v", checked, err)
		}
	}
	s.until("all masters decide", func() bool {
		before := s.fallbacks()
		for key := range 30 {
			ask(key)
		}
		return s.fallbacks() == before
	})
	before := s.fallbacks()
	cluster.Nodes[1].Freeze()
	defer cluster.Nodes[1].Thaw()
	var wait sync.WaitGroup
	for key := range 300 {
		wait.Go(func() { ask(key) })
	}
	wait.Wait()
	if fell := s.fallbacks() - before; fell == 0 || fell > 200 {
		t.Errorf("%d of 300 decisions were without Redis, whose second of three masters is frozen",
			fell)
	}
	if err := s.factory.Health(); err != nil || !s.isUp() {
		t.Errorf("%v, up: %t", err, s.isUp())
	}
	if n := strings.Count(s.log.String(), "follow on_store_error"); n != 1 {
		t.Errorf("%d lines about the master in %s", n, s.log)
	}
}

func TestLimitsThatAClusterCannotKeep(t *testing.T) {
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: []string{"127.0.0.1:1"}, IsClusterMode: true, ContextTimeoutEnabled: true,
	})
	defer rdb.Close()
	factory := limiter.New(limiter.Options{Shared: inredis.New(rdb, inredis.Options{})})
	if _, err := factory.Limit(perUserAndAll(), nil); !errors.As(err, new(*policy.InvalidError)) {
		t.Errorf("got %v", err)
	}
	alike := perUserAndAll()
	alike.Limits[1].Key = "{key}"
	if _, err := factory.Limit(alike, nil); err != nil {
		t.Error(err)
	}
}

// The factory detects an outage without requests.
func TestADeadStoreIsNoticedWithoutTraffic(t *testing.T) {
	server := redistest.Start(t)
	s := shareFor(t, server, server.Addr(), timeout)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.factory.Run(ctx) }()
	if err := s.factory.Health(); err != nil {
		t.Error("at the start:", err)
	}
	server.Freeze()
	s.until("it is noticed", func() bool { return s.factory.Health() != nil && !s.isUp() })
	looks := time.NewTicker(20 * time.Millisecond)
	defer looks.Stop()
	for range 100 { // longer than between two probes
		if <-looks.C; s.factory.Health() == nil {
			t.Fatal("it is well again, and is not")
		}
	}
	server.Thaw()
	s.until("it is well", func() bool { return s.factory.Health() == nil && s.isUp() })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
