package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/algorithms/redisstore"
	"github.com/penstock-mq/penstock/bench/paper"
)

const (
	policy   = "api"
	peerName = "go-redis/redis_rate"
)

// redisContestants never refuse.
func redisContestants(addr string) []contestant {
	refill := algorithms.Rate{Count: perSecond, Per: time.Second}
	return []contestant{
		{name: "penstock", algorithm: "token bucket", ours: true, open: func(
			int) (openLimiter, error) {
			return oursInRedis(addr, algorithms.TokenBucket{Capacity: plenty, Refill: refill},
				1), nil
		}},
		{name: "penstock", algorithm: "leaking bucket", ours: true, open: func(
			int) (openLimiter, error) {
			return oursInRedis(addr,
				algorithms.LeakingBucket{Capacity: plenty, Outflow: refill, Burst: plenty / 2},
				1), nil
		}},
		{name: "penstock", algorithm: "fixed window", ours: true, open: func(
			int) (openLimiter, error) {
			return oursInRedis(addr, algorithms.FixedWindow{Limit: plenty, Window: window}, 1), nil
		}},
		{name: "penstock", algorithm: "sliding counter", ours: true, open: func(
			int) (openLimiter, error) {
			return oursInRedis(addr, algorithms.SlidingCounter{Limit: plenty, Window: window},
				1), nil
		}},
		{name: "penstock", algorithm: "sliding log", ours: true, open: func(keys int) (openLimiter,
			error) {
			window := time.Second
			if keys == 1 {
				window = 10 * time.Millisecond
			}
			return oursInRedis(addr,
				algorithms.SlidingLog{Limit: algorithms.MaxLogLimit, Window: window}, 1), nil
		}},
		{name: peerName, algorithm: "GCRA", open: func(int) (openLimiter, error) {
			return redisRate(addr,
				redis_rate.Limit{Rate: perSecond, Burst: plenty, Period: time.Second}), nil
		}},
	}
}

// floodContestants pass one unit, and refuse for an hour.
func floodContestants(addr string) []contestant {
	refill := algorithms.Rate{Count: 1, Per: window}
	return []contestant{
		{name: "penstock", algorithm: "token bucket", open: func(int) (openLimiter, error) {
			return oursInRedis(addr, algorithms.TokenBucket{Capacity: 1, Refill: refill}, 1), nil
		}},
		{name: "penstock", algorithm: "leaking bucket", open: func(int) (openLimiter, error) {
			return oursInRedis(addr, algorithms.LeakingBucket{Capacity: 1, Outflow: refill}, 1), nil
		}},
		{name: "penstock", algorithm: "fixed window", open: func(int) (openLimiter, error) {
			return oursInRedis(addr, algorithms.FixedWindow{Limit: 1, Window: window}, 1), nil
		}},
		{name: "penstock", algorithm: "sliding counter", open: func(int) (openLimiter, error) {
			return oursInRedis(addr, algorithms.SlidingCounter{Limit: 1, Window: window}, 1), nil
		}},
		{name: "penstock", algorithm: "sliding log of what passed", open: func(int) (openLimiter,
			error) {
			return oursInRedis(addr,
				algorithms.SlidingLog{Limit: 1, Window: window, CountAccepted: true}, 1), nil
		}},
		{name: "penstock", algorithm: "sliding log of everything", open: func(int) (openLimiter,
			error) {
			return oursInRedis(addr, algorithms.SlidingLog{Limit: 1, Window: window}, 1), nil
		}},
		{name: peerName, algorithm: "GCRA", open: func(int) (openLimiter, error) {
			return redisRate(addr, redis_rate.Limit{Rate: 1, Burst: 1, Period: window}), nil
		}},
	}
}

// holder's keys in Redis are weighed.
type holder struct {
	name, algorithm string
	keys            int
	requests        int
	// windows that may hold one request; 0: any
	window time.Duration
	open   func() openLimiter
}

// A log is filled by requests of several units.
const unitsAtOnce = 10

// counterWindow is short: counters soon need two windows.
const counterWindow = 2 * time.Second

func holders(addr string) []holder {
	hundred := algorithms.Rate{Count: 100, Per: window}
	log := func(keys int, limit int64) holder {
		return holder{name: "penstock", algorithm: fmt.Sprintf("sliding log of %s",
			paper.Grouped(int(limit))), keys: keys,
			requests: int(limit) / unitsAtOnce, open: func() openLimiter {
				return oursInRedis(addr, algorithms.SlidingLog{Limit: limit, Window: window},
					unitsAtOnce)
			}}
	}
	set := func(keys, entries int) holder {
		return holder{name: "a sorted set",
			algorithm: fmt.Sprintf("sliding log of %s", paper.Grouped(entries)), keys: keys,
			requests: entries / unitsAtOnce, open: func() openLimiter { return sortedSets(addr) }}
	}
	return []holder{
		{name: "penstock", algorithm: "token bucket, 100 an hour", keys: 10_000, requests: 1,
			open: func() openLimiter {
				return oursInRedis(addr, algorithms.TokenBucket{Capacity: 100, Refill: hundred}, 1)
			}},
		{name: "penstock", algorithm: "token bucket, 7 an hour", keys: 10_000, requests: 1,
			open: func() openLimiter {
				return oursInRedis(addr,
					algorithms.TokenBucket{Capacity: 100,
						Refill: algorithms.Rate{Count: 7, Per: window}}, 1)
			}},
		{name: "penstock", algorithm: "leaking bucket, 100 an hour", keys: 10_000, requests: 1,
			open: func() openLimiter {
				return oursInRedis(addr, algorithms.LeakingBucket{Capacity: 100, Outflow: hundred},
					1)
			}},
		{name: "penstock", algorithm: "fixed window", keys: 10_000, requests: 1,
			open: func() openLimiter {
				return oursInRedis(addr, algorithms.FixedWindow{Limit: 100, Window: window}, 20)
			}},
		{name: "penstock", algorithm: "sliding counter", keys: 10_000, requests: 2,
			window: counterWindow,
			open: func() openLimiter {
				return oursInRedis(addr,
					algorithms.SlidingCounter{Limit: 100, Window: counterWindow}, 20)
			}},
		log(10_000, 100),
		log(1_000, 1000),
		{name: peerName, algorithm: "GCRA, 100 an hour", keys: 10_000, requests: 1,
			open: func() openLimiter {
				return redisRate(addr, redis_rate.Limit{Rate: 100, Burst: 100, Period: window})
			}},
		set(10_000, 100),
		set(1_000, 1000),
	}
}

// oursInRedis asks for n units at a time, with its peers' patience.
func oursInRedis[S any](addr string, rule algorithms.Rule[S], n int64) openLimiter {
	rdb := redisClient(addr)
	store := redisstore.New(redisstore.NewClient(rdb, redisstore.Options{Timeout: patience}),
		policy, rule)
	return openLimiter{func(ctx context.Context, key string) error {
		d, err := store.Take(ctx, key, n)
		return must(d.Allowed, err)
	}, rdb.Close}
}

func redisRate(addr string, limit redis_rate.Limit) openLimiter {
	rdb := redisClient(addr)
	one := redis_rate.NewLimiter(rdb)
	return openLimiter{func(ctx context.Context, key string) error {
		answer, err := one.Allow(ctx, key, limit)
		return must(err == nil && answer.Allowed > 0, err)
	}, rdb.Close}
}

// sortedSets are common logs: a member per unit with the time in µs as score, and in its name with
// a number.
func sortedSets(addr string) openLimiter {
	rdb := redisClient(addr)
	var last atomic.Int64
	return openLimiter{func(ctx context.Context, key string) error {
		now := time.Now()
		members := make([]redis.Z, unitsAtOnce)
		for i := range members {
			members[i] = redis.Z{Score: float64(now.UnixMicro()),
				Member: fmt.Sprintf("%d-%d", now.UnixMicro(), last.Add(1))}
		}
		var count *redis.IntCmd
		_, err := rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.ZRemRangeByScore(ctx, "log:"+key, "-inf", fmt.Sprint(now.Add(-window).UnixMicro()))
			pipe.ZAdd(ctx, "log:"+key, members...)
			count = pipe.ZCard(ctx, "log:"+key)
			pipe.PExpire(ctx, "log:"+key, window)
			return nil
		})
		if err == nil && count.Val() < unitsAtOnce {
			err = errors.New("a sorted set lacks what was added")
		}
		return err
	}, rdb.Close}
}
