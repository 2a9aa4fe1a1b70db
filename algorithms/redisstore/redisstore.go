// Package redisstore keeps the states of a rate-limiting rule in Redis, one per key, so that
// processes share each limit exactly.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
//	client := redisstore.NewClient(rdb, redisstore.Options{})
//	perSecond := algorithms.Rate{Count: 5, Per: time.Second}
//	rule := algorithms.TokenBucket{Capacity: 10, Refill: perSecond}
//	store := redisstore.New(client, "api", rule)
//	decision, err := store.Take(ctx, "tenant-1", 1)
//
// Decisions are the same as in package memstore. One script per algorithm changes the state at the
// time of Redis's own clock, and returns the former state, from which the Go rule derives each
// caller's decision.
//
// # Round trips
//
// A request is sent at once if no command for its key is under way. Otherwise it shares the key's
// next command; keys of one policy share a command, and commands a pipeline. On a Redis Cluster,
// only keys of one slot share a command; on a Ring, none do.
//
// Refusals are cached: until the request could pass, but for at most ten seconds, Take and TakeUpTo
// are answered from the state that refused. A Refund through the same store and SetRule clear the
// entry; refunds by other processes are seen after at most ten seconds. Peek always asks Redis. For
// a [algorithms.SlidingLog] only the refused cost is cached, and nothing if it records refused
// requests.
//
// # Errors
//
// An error other than [ErrOverloaded] and [*algorithms.CostError] means that Redis did not answer,
// or that the context ended first: the request may or may not have been counted, and is not
// retried.
//
// # Storage
//
// A key is stored as prefix:{policy:key}, with '%', '{' and '}' percent-encoded (':' too in a
// policy). Values are short strings, or a list for a SlidingLog; the scripts in this directory
// describe them. A value expires a minute after the key is back in its initial state. A foreign
// value is an error that names the key; it stays unchanged. Times are whole microseconds, valid
// until 2155. Tested with Redis 7.0; requires 5.0, because in earlier versions a script must not
// write after reading the time.
package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// DefaultPrefix and DefaultTimeout are the defaults of [Options].
const (
	DefaultPrefix  = "penstock"
	DefaultTimeout = 50 * time.Millisecond
)

// ErrOverloaded means that too many requests already wait for Redis. The request was not counted.
var ErrOverloaded = errors.New("too many requests wait for Redis")

// ErrTimeout means that Redis did not answer within [Options].Timeout.
var ErrTimeout = errors.New("no answer from Redis in time")

// Options are the settings of a [Client]; the zero value has the defaults.
type Options struct {
	// Prefix begins all keys in Redis; empty means [DefaultPrefix].
	Prefix string
	// Timeout is how long Redis may take to answer; 0 means [DefaultTimeout]. A request that waits
	// for another one of its key fails after at most twice as long.
	Timeout time.Duration
	// Breaker blocks requests to a Redis that does not answer; nil sends all.
	Breaker Breaker
}

// Breaker decides whether a batch may be sent; otherwise all its requests fail with Allow's error.
// done gets nil if Redis answered. A gobreaker.TwoStepCircuitBreaker implements it.
type Breaker interface {
	Allow() (done func(error), err error)
}

// Limits on concurrent work. More flights do not make Redis faster, and fewer make larger batches.
// A script call blocks Redis: 64 keys take 0.3 to 0.5 ms.
const (
	maxFlights     = 4
	yields         = 2     // before a flight; one misses many requests, three gain no more
	maxKeys        = 512   // per flight
	maxKeysPerCall = 64    // per script call
	maxPerKey      = 1024  // requests of one key per flight
	maxWaiting     = 65536 // requests of a client that wait for a flight
)

// Client holds the connection to Redis and the pending requests of a process's stores. It needs no
// closing. All methods of its stores are safe for concurrent use.
type Client struct {
	rdb     redis.UniversalClient
	prefix  string
	timeout time.Duration
	breaker Breaker
	shared  bool             // one server holds all keys, so any can share a script call
	slotted bool             // a cluster: keys of one slot can
	now     func() time.Time // nil for Redis's clock; set by tests only
	born    time.Time
	ahead   atomic.Int64 // Redis's clock minus elapsed in µs, or slightly more; 0 if unknown

	maxWaiting int
	requests   sync.Pool

	mu      sync.Mutex
	flights int       // under way
	waiting int       // requests waiting for a flight
	ready   []*bucket // with waiting requests and none flying; the longest-waiting first
}

// NewClient returns a client for stores in rdb, which it does not close. It panics if rdb was made
// without ContextTimeoutEnabled, because Redis could then block callers.
func NewClient(rdb redis.UniversalClient, o Options) *Client {
	if !endsWithContext(rdb) {
		panic("redisstore: the Redis client was made without ContextTimeoutEnabled")
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	_, single := rdb.(*redis.Client)
	_, cluster := rdb.(*redis.ClusterClient)
	return &Client{
		rdb: rdb, prefix: o.Prefix, timeout: o.Timeout, breaker: o.Breaker, shared: single,
		slotted: cluster, born: time.Now(), maxWaiting: maxWaiting,
		requests: sync.Pool{New: func() any { return &request{done: make(chan struct{}, 1)} }},
	}
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
	return true // another implementation, with other options
}

// elapsed returns monotonic time.
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
	if isTimeout(err) {
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return fmt.Errorf("ask Redis: %w", err)
}
