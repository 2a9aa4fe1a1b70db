package main

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

func TestNewLimit(t *testing.T) {
	perMinute := algorithms.Rate{Count: 30, Per: time.Minute}
	minute := policy.Duration(time.Minute)
	// Windows of the clock that no test run crosses.
	year, long := 366*24*60*minute, 366*24*time.Hour
	for _, c := range []struct {
		before, after policy.Policy
		window        time.Duration
	}{
		{policy.Policy{Algorithm: policy.TokenBucket, Capacity: 3, Refill: perMinute},
			policy.Policy{Algorithm: policy.TokenBucket, Capacity: 5, Refill: perMinute}, 10 * time.Second},
		{policy.Policy{Algorithm: policy.LeakingBucket, Capacity: 3, Outflow: perMinute, Burst: 1},
			policy.Policy{Algorithm: policy.LeakingBucket, Capacity: 5, Outflow: perMinute, Burst: 1},
			10 * time.Second},
		{policy.Policy{Algorithm: policy.FixedWindow, Limit: 3, Window: year},
			policy.Policy{Algorithm: policy.FixedWindow, Limit: 5, Window: year}, long},
		{policy.Policy{Algorithm: policy.SlidingLog, Limit: 3, Window: minute, Count: policy.CountAccepted},
			policy.Policy{Algorithm: policy.SlidingLog, Limit: 5, Window: minute, Count: policy.CountAccepted},
			time.Minute},
		{policy.Policy{Algorithm: policy.SlidingCounter, Limit: 3, Window: year},
			policy.Policy{Algorithm: policy.SlidingCounter, Limit: 5, Window: year}, long},
	} {
		t.Run(string(c.before.Algorithm), func(t *testing.T) {
			limit, err := newLimit(c.before, nil)
			if err != nil {
				t.Fatal(err)
			}
			take := func(n int64, want bool) {
				t.Helper()
				if d, err := limit.Limiter.Take(t.Context(), "k", n); err != nil || d.Allowed != want {
					t.Fatalf("take %d: %+v, %v", n, d, err)
				}
			}
			take(3, true)
			take(1, false)
			changed, err := newLimit(c.after, limit.Limiter)
			if err != nil || changed.Limiter != limit.Limiter ||
				changed.Quota != (admission.Quota{Units: 5, Window: c.window}) {
				t.Fatalf("%+v, %v", changed, err)
			}
			take(1, false) // nothing is in force before the commit
			changed.Commit()
			take(2, true)
			take(1, false)

			other := policy.Policy{Algorithm: policy.TokenBucket, Capacity: 1, Refill: perMinute}
			if c.before.Algorithm == policy.TokenBucket {
				other = policy.Policy{Algorithm: policy.FixedWindow, Limit: 1, Window: minute}
			}
			fresh, err := newLimit(other, limit.Limiter)
			if err != nil || fresh.Limiter == limit.Limiter || fresh.Commit != nil {
				t.Errorf("another algorithm: %+v, %v", fresh, err)
			}
		})
	}
	var none admission.Limiter
	for _, p := range []policy.Policy{{}, {Algorithm: "abacus"}, {Algorithm: policy.TokenBucket}} {
		if _, err := newLimit(p, none); err == nil {
			t.Errorf("%+v became a limiter", p)
		}
	}
}

func TestWithoutPasswords(t *testing.T) {
	const given = "nats://user:p@ss@a:4222, b:4222,tls://token@c:4443"
	if got, want := withoutPasswords(given), "nats://a:4222,nats://b:4222,tls://c:4443"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
