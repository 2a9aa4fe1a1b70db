package redisstore

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/algorithmstest"
)

func newTestGroup(c *Client, r algorithmstest.GroupRules) *Group {
	return NewGroup(c, "policy", NewMember(c, "policy", "token", r.Token),
		NewMember(c, "policy", "leaking", r.Leaking),
		NewMember(c, "policy", "fixed", r.Fixed), NewMember(c, "policy", "log", r.Log),
		NewMember(c, "policy", "counter", r.Counter))
}

func TestGroupConformance(t *testing.T) {
	rdb := server.Client()
	t.Cleanup(func() { _ = rdb.Close() })
	algorithmstest.RunGroup(t, func(_ *testing.T, now func() time.Time,
		r algorithmstest.GroupRules) algorithmstest.Group {
		c := newClientOf(rdb, Options{})
		c.now = now
		return newTestGroup(c, r)
	})
}

func twoLimits(c *Client, limit int64) *Group {
	return NewGroup(c, "policy",
		NewMember(c, "policy", "each", algorithms.TokenBucket{Capacity: 2, Refill: perHour(1)}),
		NewMember(c, "policy", "all",
			algorithms.SlidingLog{Limit: limit, Window: time.Hour, CountAccepted: true}))
}

// Two clients that share a group's keys allow exactly the limit, even if they batch requests
// differently.
func TestGroupsOfTwoClientsAreExact(t *testing.T) {
	const limit, users = 37, 30
	one := newClient(t, server, Options{})
	groups := []*Group{twoLimits(one, limit),
		twoLimits(newClient(t, server, Options{Prefix: one.prefix}), limit)}
	var (
		wait    sync.WaitGroup
		mu      sync.Mutex
		granted = map[string]int64{}
		all     int64
	)
	for caller := range 32 {
		wait.Go(func() {
			for call := range users {
				user := string(rune('A' + (caller*7+call)%users))
				d, _, err := groups[caller%2].Take(t.Context(), []string{user, "everyone"}, 1)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				granted[user] += d.Granted
				all += d.Granted
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	for user, n := range granted {
		if n > 2 {
			t.Errorf("%s got %d", user, n)
		}
	}
	if all != limit {
		t.Errorf("%d were granted, want %d", all, limit)
	}
}

func TestGroupStateIsNamedAndExpires(t *testing.T) {
	c := newClient(t, server, Options{Prefix: "group"})
	g := twoLimits(c, 5)
	keys := []string{"a}b", "everyone"}
	if d, _, err := g.Take(t.Context(), keys, 1); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	for _, name := range []string{"group:{policy:a%7Db}:each", "group:{policy:everyone}:all"} {
		ttl, err := c.rdb.PTTL(t.Context(), name).Result()
		if longest := time.Hour + time.Minute; err != nil || ttl <= longest-10*time.Second ||
			ttl > longest {
			t.Errorf("%s lives for %v, %v", name, ttl, err)
		}
	}
	if err := g.Refund(t.Context(), keys, 1); err != nil {
		t.Fatal(err)
	}
	if n, err := c.rdb.Exists(t.Context(), "group:{policy:a%7Db}:each",
		"group:{policy:everyone}:all").Result(); n != 0 || err != nil {
		t.Errorf("%d keys are left of a refunded state, %v", n, err)
	}
}

func TestAForeignValueChangesNothing(t *testing.T) {
	c := newClient(t, server, Options{Prefix: "foreign"})
	g := twoLimits(c, 5)
	for _, value := range []string{"not a time", "1:2:3:4"} {
		if err := c.rdb.Set(t.Context(), "foreign:{policy:everyone}:all", value, 0).Err(); err !=
			nil {
			t.Fatal(err)
		}
		d, _, err := g.Take(t.Context(), []string{"a", "everyone"}, 1)
		if err == nil || !strings.Contains(err.Error(), `"foreign:{policy:everyone}:all"`) {
			t.Errorf("%+v, %v; want an error that names the key", d, err)
		}
		if n, err := c.rdb.Exists(t.Context(), "foreign:{policy:a}:each").Result(); n != 0 ||
			err != nil {
			t.Errorf("the other rule was asked all the same: %d, %v", n, err)
		}
	}
}

func TestKeysAreJoinedOneToOne(t *testing.T) {
	seen := map[string]bool{}
	for _, keys := range [][]string{{""}, {"", ""}, {"a", "b"}, {"ab", ""}, {"", "ab"},
		{"1 a", "0 "}, {"1 a0 "}, {"a b", "3"}} {
		joined := joinKeys(keys)
		if seen[joined] {
			t.Errorf("%q is joined to %q, as others were", keys, joined)
		}
		seen[joined] = true
		got := splitKeys(joined)
		if len(got) != len(keys) {
			t.Errorf("%q comes back as %q", keys, got)
			continue
		}
		for i := range keys {
			if got[i] != keys[i] {
				t.Errorf("%q comes back as %q", keys, got)
			}
		}
	}
}
