package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

func rate(text string) algorithms.Rate {
	r, err := algorithms.ParseRate(text)
	if err != nil {
		panic(err)
	}
	return r
}

func one(a policy.Algorithm, units int64) policy.Policy {
	p := policy.Policy{Name: "p", Rule: policy.Rule{Algorithm: a}}
	switch a {
	case policy.TokenBucket:
		p.Capacity, p.Refill = units, rate("30/m")
	case policy.LeakingBucket:
		p.Capacity, p.Outflow, p.Queue = units, rate("30/m"), &policy.Queue{Off: true}
	case policy.SlidingLog:
		p.Limit, p.Window, p.Count = units, policy.Duration(time.Hour), policy.CountAccepted
	default:
		p.Limit, p.Window = units, policy.Duration(366*24*time.Hour)
	}
	return p.WithDefaults()
}

var algorithmNames = []policy.Algorithm{
	policy.TokenBucket, policy.LeakingBucket, policy.FixedWindow, policy.SlidingLog,
	policy.SlidingCounter,
}

func taking(t *testing.T, l admission.Limiter,
	from admission.Caller) func(n int64, want bool) admission.Checked {
	return func(n int64, want bool) admission.Checked {
		t.Helper()
		c, err := l.Take(t.Context(), from, n)
		if err != nil || c.Allowed != want {
			t.Fatalf("take %d of %v: %+v, %v; want allowed %v", n, from, c, err, want)
		}
		return c
	}
}

func ExampleFactory() {
	factory := limiter.New(limiter.Options{})
	signup, err := policy.Read([]byte(`{"name":"signup","limits":[
		{"name":"per-ip","key":"{ip}","algorithm":"sliding_log","limit":2,"window":"1h"},
		{"name":"all","key":"global","algorithm":"token_bucket","capacity":1000,"refill":"10/s"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	limit, err := factory.Limit(signup, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		checked, err := limit.Limiter.Take(context.Background(), admission.Caller{IP: "192.0.2.1"},
			1)
		fmt.Println(checked.Allowed, checked.Quota.Policy, checked.Remaining, err)
	}
	// Output:
	// true signup/per-ip 1 <nil>
	// true signup/per-ip 0 <nil>
	// false signup/per-ip 0 <nil>
}

func TestStatesOutliveChanges(t *testing.T) {
	for _, a := range algorithmNames {
		t.Run(string(a), func(t *testing.T) {
			factory := limiter.New(limiter.Options{})
			limit, err := factory.Limit(one(a, 3), nil)
			if err != nil {
				t.Fatal(err)
			}
			before := taking(t, limit.Limiter, admission.Caller{Key: "k"})
			before(3, true)
			before(1, false)
			changed, err := factory.Limit(one(a, 5), limit.Limiter)
			if err != nil || changed.Quota.Units != 5 || changed.Quota.Policy != "p" {
				t.Fatalf("%+v, %v", changed, err)
			}
			before(1, false)
			changed.Commit()
			after := taking(t, changed.Limiter, admission.Caller{Key: "k"})
			if c := after(2, true); c.Quota != changed.Quota {
				t.Errorf("answered by %+v, want %+v", c.Quota, changed.Quota)
			}
			after(1, false)

			other := policy.TokenBucket
			if a == other {
				other = policy.FixedWindow
			}
			fresh, err := factory.Limit(one(other, 1), changed.Limiter)
			if err != nil {
				t.Fatal(err)
			}
			fresh.Commit()
			taking(t, fresh.Limiter, admission.Caller{Key: "k"})(1, true)
		})
	}
}

func TestQuotas(t *testing.T) {
	for _, c := range []struct {
		algorithm policy.Algorithm
		window    time.Duration
	}{
		{policy.TokenBucket, 10 * time.Second}, {policy.LeakingBucket, 10 * time.Second},
		{policy.SlidingLog, time.Hour},
		{policy.FixedWindow, 366 * 24 * time.Hour}, {policy.SlidingCounter, 366 * 24 * time.Hour},
	} {
		limit, err := limiter.New(limiter.Options{}).Limit(one(c.algorithm, 5), nil)
		if want := (admission.Quota{Policy: "p", Units: 5, Window: c.window}); err != nil ||
			limit.Quota != want || limit.ByIP {
			t.Errorf("%s: %+v, %v", c.algorithm, limit, err)
		}
	}
}

func TestAnInvalidPolicyHasNoLimiter(t *testing.T) {
	for _, p := range []policy.Policy{{}, {Rule: policy.Rule{Algorithm: "abacus"}},
		{Rule: policy.Rule{Algorithm: policy.TokenBucket}}} {
		if _, err := limiter.New(limiter.Options{}).Limit(p, nil); err == nil {
			t.Errorf("%+v became a limiter", p)
		}
	}
}

func perUserAndAll() policy.Policy {
	return policy.Policy{Name: "api", Limits: policy.Limits{
		{Name: "per-user", Key: "{key}",
			Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 2, Refill: rate("1/h")}},
		{Name: "all", Key: "global",
			Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 3,
				Window: policy.Duration(time.Hour)}},
	}}.WithDefaults()
}

func testSeveralLimits(t *testing.T, factory *limiter.Factory) {
	limit, err := factory.Limit(perUserAndAll(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if limit.Quota != (admission.Quota{Policy: "api/per-user", Units: 2, Window: 2 * time.Hour}) {
		t.Errorf("the tightest quota is %+v", limit.Quota)
	}
	user := func(key queue.Key) func(int64, bool) admission.Checked {
		return taking(t, limit.Limiter, admission.Caller{Key: key})
	}
	user("a")(2, true)
	if c := user("a")(1, false); c.Quota.Policy != "api/per-user" || c.RetryAfter <= 0 {
		t.Errorf("refused by %+v", c)
	}
	if c := user("b")(2, false); c.Quota.Policy != "api/all" {
		// b has 2 left, all have 1: no key loses a unit
		t.Errorf("refused by %+v", c)
	}
	user("b")(1, true)
	user("c")(1, false)
	if err := limit.Limiter.Refund(t.Context(), admission.Caller{Key: "a"}, 1); err != nil {
		t.Fatal(err)
	}
	if c, err := limit.Limiter.Peek(t.Context(), admission.Caller{Key: "c"}, 1); err != nil ||
		!c.Allowed || c.Remaining != 1 {
		t.Errorf("after a refund: %+v, %v", c, err)
	}
	user("c")(1, true)
	if _, err := limit.Limiter.Take(t.Context(), admission.Caller{Key: "c"}, 3); !errors.As(err,
		new(*algorithms.CostError)) {
		t.Errorf("more than can ever pass: %v", err)
	}

	changed := perUserAndAll()
	changed.Limits = policy.Limits{changed.Limits[1], {Name: "per-ip", Key: "{ip}",
		Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 1,
			Window: policy.Duration(366 * 24 * time.Hour)}}}
	changed.Limits[0].Limit = 5
	after, err := factory.Limit(changed.WithDefaults(), limit.Limiter)
	if err != nil || !after.ByIP {
		t.Fatalf("%+v, %v", after, err)
	}
	after.Commit()
	for i, want := range []bool{true, true, false} {
		from := admission.Caller{Key: "d", IP: fmt.Sprint("192.0.2.", i)}
		taking(t, after.Limiter, from)(1, want)
	}
}

func TestSeveralLimitsInMemory(t *testing.T) {
	testSeveralLimits(t, limiter.New(limiter.Options{}))
}

// Requests under the old and the new order of a policy's limits use the same stores.
func TestReorderedLimitsDoNotWaitForEachOther(t *testing.T) {
	factory := limiter.New(limiter.Options{})
	wide := func(reversed bool) policy.Policy {
		p := policy.Policy{Name: "p", Limits: policy.Limits{
			{Name: "a", Key: "global",
				Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 1_000_000,
					Window: policy.Duration(time.Hour)}},
			{Name: "b", Key: "global",
				Rule: policy.Rule{Algorithm: policy.SlidingCounter, Limit: 1_000_000,
					Window: policy.Duration(time.Hour)}},
		}}
		if reversed {
			p.Limits[0], p.Limits[1] = p.Limits[1], p.Limits[0]
		}
		return p.WithDefaults()
	}
	before, err := factory.Limit(wide(false), nil)
	if err != nil {
		t.Fatal(err)
	}
	after, err := factory.Limit(wide(true), before.Limiter)
	if err != nil {
		t.Fatal(err)
	}
	after.Commit()
	done := make(chan struct{})
	go func() {
		var wait sync.WaitGroup
		for i := range 8 {
			l := []admission.Limiter{before.Limiter, after.Limiter}[i%2]
			wait.Go(func() {
				for range 5_000 {
					if _, err := l.Take(context.Background(), admission.Caller{}, 1); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wait.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(waittest.Patience()):
		t.Fatal("they wait for each other")
	}
}
