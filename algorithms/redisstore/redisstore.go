// Package redisstore keeps the states of a rate-limiting rule in Redis, one per key, so that any
// number of processes share each limit exactly.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
//	client := redisstore.NewClient(rdb, redisstore.Options{})
//	perSecond := algorithms.Rate{Count: 5, Per: time.Second}
//	rule := algorithms.TokenBucket{Capacity: 10, Refill: perSecond}
//	store := redisstore.New(client, "api", rule)
//	decision, err := store.Take(ctx, "tenant-1", 1)
//
// Decisions are those of package memstore, made in Redis by one script per algorithm at the time of
// Redis's own clock: no two processes need agree on theirs. A script changes the state and answers
// with what was stored before, and the Go rule draws each caller's decision from that.
//
// # Round trips
//
// A request that finds nothing under way goes out at once. Of each key at most one command is under
// way, and requests that come meanwhile share the next one; keys of one policy share a command, and
// commands a pipeline. So the busier a process is, the fewer commands it needs for a decision. On a
// Redis Cluster or a Ring each key has a command of its own.
//
// A refusal is remembered, so a caller who hammers costs no round trips: until the same request
// could pass, and at most ten seconds, Take and TakeUpTo are answered from the state that refused,
// with the waits counted down by the monotonic clock of this process. It is forgotten by a Refund
// through the same store and by SetRule; what other processes give back meanwhile is seen after
// those ten seconds. Peek always asks Redis. A [algorithms.SlidingLog] remembers only the cost that
// was refused, and nothing at all if it records refused requests: there each one counts.
//
// # Errors and doubt
//
// An error that is not a [*algorithms.CostError] or the end of the caller's context means that
// Redis did not answer: the request may or may not have been counted, and is never repeated. So it
// is when a context ends before the answer. Others who share the command are not affected.
//
// # Storage
//
// A key is stored as prefix:{policy:key}, with '%', '{' and '}' percent-encoded (':' too in a
// policy); the braces make policy and key what a Redis Cluster hashes. Values are short texts, or a
// list for a SlidingLog, described in the scripts beside this file. A value expires a minute after
// it is as good as new, and is deleted when a refund makes it so. What is stored under a key and is
// not such a value is an error that names the key, and stays as it is. Time is kept in whole
// microseconds, good until the year 2155: numbers are exact until 2255, and a state may lie a
// hundred years ahead. Tested with Redis 7.0; needs 5.0, the first in which a script may write
// after it asked for the time.
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

// What [Options] mean when they are empty.
const (
	DefaultPrefix  = "penstock"
	DefaultTimeout = 50 * time.Millisecond
)

// ErrOverloaded says that too many requests wait for Redis already. The request was not counted.
var ErrOverloaded = errors.New("too many requests wait for Redis")

// ErrTimeout says that Redis did not answer within [Options].Timeout.
var ErrTimeout = errors.New("no answer from Redis in time")

// Options are settings of a [Client]; the zero value is good.
type Options struct {
	// Prefix is what all keys in Redis begin with; empty means [DefaultPrefix].
	Prefix string
	// Timeout is how long Redis may take for an answer; 0 means [DefaultTimeout]. A request that
	// must first wait for another one of its key fails after at most twice as long.
	Timeout time.Duration
	// Breaker keeps requests from a Redis that is known not to answer; nil: all are sent.
	Breaker Breaker
}

// Breaker decides whether a flight may be sent; if not, all its requests fail with Allow's error.
// done reports how the flight went: nil when Redis answered, whatever it said of single requests.
// A gobreaker.TwoStepCircuitBreaker is one.
type Breaker interface {
	Allow() (done func(error), err error)
}

// How much is under way at once. More flights do not make Redis faster, and fewer make larger
// batches. All keys of one script call are decided before Redis serves anybody else: 64 take 0.3 to
// 0.5 ms.
const (
	maxFlights     = 4
	yields         = 2     // before a flight; one leaves many behind, and three bring no more
	maxKeys        = 512   // of a flight
	maxKeysPerCall = 64    // of a script call
	maxPerKey      = 1024  // requests of one key in a flight
	maxWaiting     = 65536 // requests of a client that wait for a flight
)

// Client is what the stores of a process share: the connection to Redis, and what is under way on
// it. It starts goroutines only for the time that Redis takes to answer, so it needs no closing.
// All methods of its stores are safe for concurrent use.
type Client struct {
	rdb     redis.UniversalClient
	prefix  string
	timeout time.Duration
	breaker Breaker
	shared  bool             // keys can share a script call: one server has them all
	slotted bool             // those of one slot of a cluster can
	now     func() time.Time // nil for Redis's clock; only tests set it
	born    time.Time
	ahead   atomic.Int64 // of elapsed is the clock of Redis, in µs, or a little more; 0: not known

	maxWaiting int
	requests   sync.Pool

	mu      sync.Mutex
	flights int       // under way
	waiting int       // requests that wait for one
	ready   []*bucket // with requests that wait, and none under way; the longest waiting first
}

// NewClient returns a client for stores that keep their states in rdb, which it does not close. rdb
// must have been made with ContextTimeoutEnabled, or Redis could keep callers waiting beyond the
// timeout; one without is a mistake of the caller and panics.
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
	return true // another implementation, which has other options
}

// elapsed is the time on a clock that does not step.
func (c *Client) elapsed() time.Duration { return time.Since(c.born) }

var (
	keyEscapes    = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
	policyEscapes = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D", ":", "%3A")
)

// stem is what the Redis keys of a policy begin with.
func (c *Client) stem(policy string) string {
	return c.prefix + ":{" + policyEscapes.Replace(policy) + ":"
}

// redisKey is where a key's state is stored, one to one.
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
