package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/algorithms/memstore"
)

// openLimiter decides on one unit, and must allow it.
type openLimiter struct {
	decide func(ctx context.Context, key string) error
	close  func() error
}

var errRefused = errors.New("a request was refused, so what was measured is not what it should be")

func must(allowed bool, err error) error {
	if err == nil && !allowed {
		err = errRefused
	}
	return err
}

// contestant has limits so large that no request is refused.
type contestant struct {
	name, algorithm string
	ours            bool
	unkeyed         bool
	open            func(keys int) (openLimiter, error)
}

func (c contestant) isPeer() bool { return !c.ours && !c.unkeyed }

const (
	plenty    = 1_000_000_000
	perSecond = 1_000_000 // the fastest rate that all take
	window    = time.Hour
)

func contestants() []contestant {
	refill := algorithms.Rate{Count: perSecond, Per: time.Second}
	return []contestant{
		{name: "penstock", algorithm: "token bucket", ours: true, open: func(
			int) (openLimiter, error) {
			return ours(algorithms.TokenBucket{Capacity: plenty, Refill: refill})
		}},
		{name: "penstock", algorithm: "leaking bucket", ours: true, open: func(
			int) (openLimiter, error) {
			return ours(algorithms.LeakingBucket{Capacity: plenty, Outflow: refill,
				Burst: plenty / 2})
		}},
		{name: "penstock", algorithm: "fixed window", ours: true, open: func(
			int) (openLimiter, error) {
			return ours(algorithms.FixedWindow{Limit: plenty, Window: window})
		}},
		{name: "penstock", algorithm: "sliding counter", ours: true, open: func(
			int) (openLimiter, error) {
			return ours(algorithms.SlidingCounter{Limit: plenty, Window: window})
		}},
		{name: "penstock", algorithm: "sliding log", ours: true, open: func(keys int) (openLimiter,
			error) {
			// A log cannot hold plenty, so its window is short.
			window := time.Second
			if keys == 1 {
				window = 10 * time.Millisecond
			}
			return ours(algorithms.SlidingLog{Limit: algorithms.MaxLogLimit, Window: window})
		}},
		{name: "x/time/rate", algorithm: "token bucket", unkeyed: true, open: openRate},
		{name: "x/time/rate in a map", algorithm: "token bucket", open: openRates},
		{name: "sethvargo/go-limiter", algorithm: "fixed window", open: openGoLimiter},
		{name: "throttled/throttled", algorithm: "GCRA", open: openThrottled},
		{name: "ulule/limiter", algorithm: "fixed window", open: openUlule},
	}
}

func nothing() error { return nil }

func ours[S any](rule algorithms.Rule[S]) (openLimiter, error) {
	store := memstore.New(rule)
	return openLimiter{func(ctx context.Context, key string) error {
		d, err := store.Take(ctx, key, 1)
		return must(d.Allowed, err)
	}, nothing}, nil
}

func openRate(int) (openLimiter, error) {
	one := rate.NewLimiter(perSecond, plenty)
	return openLimiter{func(context.Context, string) error {
		return must(one.Allow(), nil)
	}, nothing}, nil
}

// openRates is the usual map of x/time/rate limiters, without eviction.
func openRates(int) (openLimiter, error) {
	var (
		mu       sync.Mutex
		limiters = make(map[string]*rate.Limiter)
	)
	return openLimiter{func(_ context.Context, key string) error {
		mu.Lock()
		one, ok := limiters[key]
		if !ok {
			one = rate.NewLimiter(perSecond, plenty)
			limiters[key] = one
		}
		mu.Unlock()
		return must(one.Allow(), nil)
	}, nothing}, nil
}

func openGoLimiter(int) (openLimiter, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: plenty, Interval: window})
	if err != nil {
		return openLimiter{}, fmt.Errorf("open go-limiter: %w", err)
	}
	return openLimiter{func(ctx context.Context, key string) error {
		_, _, _, ok, err := store.Take(ctx, key)
		return must(ok, err)
	}, func() error { return store.Close(context.Background()) }}, nil
}

func openThrottled(int) (openLimiter, error) {
	store, err := throttledstore.NewCtx(0)
	if err != nil {
		return openLimiter{}, fmt.Errorf("open throttled's store: %w", err)
	}
	one, err := throttled.NewGCRARateLimiterCtx(store,
		throttled.RateQuota{MaxRate: throttled.PerSec(perSecond), MaxBurst: plenty})
	if err != nil {
		return openLimiter{}, fmt.Errorf("open throttled: %w", err)
	}
	// two callers of a key use up the usual ten
	one.SetMaxCASAttemptsLimit(math.MaxInt)
	return openLimiter{func(ctx context.Context, key string) error {
		limited, _, err := one.RateLimitCtx(ctx, key, 1)
		return must(!limited, err)
	}, nothing}, nil
}

func openUlule(int) (openLimiter, error) {
	one := limiter.New(ululestore.NewStore(), limiter.Rate{Period: window, Limit: plenty})
	return openLimiter{func(ctx context.Context, key string) error {
		c, err := one.Get(ctx, key)
		return must(!c.Reached, err)
	}, nothing}, nil
}
