// Package redisstore keeps a rate-limiting rule's states in Redis, one per key. Processes share
// limits exactly.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
//	client := redisstore.NewClient(rdb, redisstore.Options{})
//	perSecond := algorithms.Rate{Count: 5, Per: time.Second}
//	rule := algorithms.TokenBucket{Capacity: 10, Refill: perSecond}
//	store := redisstore.New(client, "api", rule)
//	decision, err := store.Take(ctx, "tenant-1", 1)
//
// Decisions equal package memstore's. A script per algorithm changes the state by Redis's clock and
// returns the former one for the Go rule, which decides.
//
// # Round trips
//
// A request is sent at once unless a command for its key is in flight; then it shares the next one.
// Keys of a policy share a command, and commands share a pipeline. On a Redis Cluster only keys of
// one slot share commands; on a Ring each key has its own.
//
// Refusals are cached until the request could pass, at most ten seconds. A Refund through the same
// store, and SetRule, clear the entry. Peek always asks Redis. For a [algorithms.SlidingLog] only
// the refused cost is cached, unless it records refusals.
//
// # Errors
//
// After an error other than [ErrOverloaded] and [*algorithms.CostError] the request may have been
// counted. It is not retried.
//
// # Storage
//
// A key is stored as prefix:{policy:key}, with '%', '{' and '}' percent-encoded (':' too in a
// policy). The scripts describe the values. One expires a minute after its key is back in its
// initial state. A foreign value is an error and stays. Times are whole microseconds until 2155.
// Tested with Redis 7.0; requires 5.0: earlier scripts must not write after they read the time.
package redisstore

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Defaults of [Options].
const (
	DefaultPrefix  = "penstock"
	DefaultTimeout = 50 * time.Millisecond
)

// ErrOverloaded: too many requests wait for Redis. This one was not counted.
var ErrOverloaded = errors.New("too many requests wait for Redis")

// ErrTimeout: no answer within [Options].Timeout.
var ErrTimeout = errors.New("no answer from Redis in time")

// Options configures a [Client].
type Options struct {
	// Prefix of keys; default [DefaultPrefix].
	Prefix string
	// Timeout of Redis, default [DefaultTimeout]. A request that waits for another of its key fails
	// after at most twice as long.
	Timeout time.Duration
	// Breaker blocks requests; may be nil.
	Breaker Breaker
}

// Breaker decides whether a batch may be sent; its error fails all requests. done gets nil if Redis
// answered. A gobreaker.TwoStepCircuitBreaker implements it.
type Breaker interface {
	Allow() (done func(error), err error)
}

// More flights do not make Redis faster, and fewer make larger batches. A script call with 64 keys
// blocks Redis for 0.3 to 0.5 ms.
const (
	maxFlights     = 4    // per server
	yields         = 2    // one misses many requests, three gain no more
	maxKeys        = 512  // per flight
	maxKeysPerCall = 64   // per script call
	maxPerKey      = 1024 // requests of one key per flight
	maxWaiting     = 65536
)

// Client has a process's pending requests. It needs no closing. Its stores are safe for concurrent
// use.
type Client struct {
	rdb     redis.UniversalClient
	prefix  string
	timeout time.Duration
	breaker Breaker
	slotted bool             // a cluster: keys of a slot share calls
	apart   bool             // several servers, and unknown which has a key: no key shares a call
	now     func() time.Time // nil: Redis's clock; for tests
	born    time.Time
	denied  denied

	maxWaiting int
	requests   sync.Pool

	mu      sync.Mutex
	waiting int
	nodes   map[string]*node // by address; all keys at "" unless Redis is a cluster
}

// NewClient returns a client over rdb, which it does not close. It panics without
// ContextTimeoutEnabled, because Redis could block callers.
func NewClient(rdb redis.UniversalClient, o Options) *Client {
	if !endsWithContext(rdb) {
		panic("redisstore: the Redis client was made without ContextTimeoutEnabled")
	}
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	_, single := rdb.(*redis.Client)
	of, cluster := rdb.(*redis.ClusterClient)
	c := &Client{
		rdb: rdb, prefix: o.Prefix, timeout: o.Timeout, breaker: o.Breaker, slotted: cluster,
		apart: !single && !cluster, born: time.Now(), maxWaiting: maxWaiting,
		nodes:    map[string]*node{},
		requests: sync.Pool{New: func() any { return &request{done: make(chan struct{}, 1)} }},
	}
	if cluster {
		of.OnNewNode(func(node *redis.Client) { node.AddHook(&c.denied) })
	}
	return c
}

func endsWithContext(rdb redis.UniversalClient) bool {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return rdb.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return rdb.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return rdb.Options().ContextTimeoutEnabled
	}
	return true
}

// elapsed is monotonic.
func (c *Client) elapsed() time.Duration { return time.Since(c.born) }

var (
	keyEscapes    = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
	policyEscapes = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D", ":", "%3A")
)

func (c *Client) stem(policy string) string {
	return c.prefix + ":{" + policyEscapes.Replace(policy) + ":"
}

func redisKey(stem, key string) string {
	if strings.ContainsAny(key, "%{}") {
		key = keyEscapes.Replace(key)
	}
	return stem + key + "}"
}

func (c *Client) explain(err error) error {
	if denied := c.denied.explain(err, 2*c.timeout); denied != nil {
		return denied
	}
	if isTimeout(err) {
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return fmt.Errorf("ask Redis: %w", err)
}
