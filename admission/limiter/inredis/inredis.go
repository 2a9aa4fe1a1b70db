// Package inredis keeps the states of limits in a shared Redis. It is separate: programs without
// Redis do not link its client.
//
//	limits := limiter.New(limiter.Options{Shared: inredis.New(rdb, inredis.Options{})})
package inredis

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/algorithms/redisstore"
	"github.com/penstock-mq/penstock/policy"
)

// Options of limits in Redis.
type Options struct {
	// Prefix of keys in Redis; default [redisstore.DefaultPrefix].
	Prefix string
	// Timeout bounds a decision; default [redisstore.DefaultTimeout].
	Timeout time.Duration
}

// New returns the store for [limiter.Options]. The client needs ContextTimeoutEnabled, and stays
// the caller's. New does not contact Redis.
func New(rdb redis.UniversalClient, o Options) limiter.Shared {
	if o.Timeout <= 0 {
		o.Timeout = redisstore.DefaultTimeout
	}
	_, cluster := rdb.(*redis.ClusterClient)
	return limiter.Shared{Timeout: o.Timeout, Cluster: cluster,
		Open: func(b limiter.Breaker) limiter.Place {
			return place{redisstore.NewClient(rdb,
				redisstore.Options{Prefix: o.Prefix, Timeout: o.Timeout,
					Breaker: b})}
		}}
}

type place struct{ client *redisstore.Client }

func (at place) Store(p policy.Policy, l policy.Limit, rule algorithms.Parametrized) limiter.Store {
	name := ""
	if len(p.Limits) > 0 {
		name = l.Name + ":" + string(l.Algorithm)
	}
	store, err := redisstore.Open(at.client, p.Name, name, rule)
	if err != nil {
		panic(err) // no algorithm lacks a script
	}
	return store
}

func (at place) Group(policy string, stores []limiter.Store) limiter.Group {
	members := make([]redisstore.Member, len(stores))
	for i, s := range stores {
		members[i] = s.(redisstore.Member)
	}
	return redisstore.NewGroup(at.client, policy, members...)
}
