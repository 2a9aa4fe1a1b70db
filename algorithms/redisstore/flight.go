package redisstore

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/algorithms"
)

type kind uint8

const (
	take kind = iota
	takeUpTo
	peek
	refund
)

type request struct {
	kind kind
	n    int64
	came time.Duration // on the client's monotonic clock

	stage    atomic.Int32
	done     chan struct{} // after decision and err
	decision algorithms.Decision
	ruling   int
	err      error
}

// pair encodes a request; see common.lua.
func (r *request) pair() (n, times int64) {
	switch r.kind {
	case peek:
		return r.n, -1
	case refund:
		return -min(r.n, exact-1), 1
	}
	return r.n, 1
}

// A compare-and-swap decides whether a request is sent or its caller leaves.
const (
	waits int32 = iota
	flies
	left
)

func (r *request) finish(err error) {
	r.err = err
	r.done <- struct{}{}
}

type bucket struct {
	lane    *lane
	key     string
	name    string
	names   []string   // of a group, instead of name
	waiting []*request // guarded by Client.mu
	flying  []*request // owned by the current flight
}

// lane is the non-generic half of a store. Its keys can share calls.
type lane struct {
	stem   string
	suffix string
	terms  func() terms
	names  func(key string) []string

	buckets map[string]*bucket // guarded by Client.mu
}

// stored is the name that determines the slot.
func (b *bucket) stored() string {
	if b.names != nil {
		return b.names[0]
	}
	return b.name
}

// redisKey is one to one.
func (l *lane) redisKey(key string) string { return redisKey(l.stem, key) + l.suffix }

// ask queues a request and waits for its answer, or until ctx ends.
func (c *Client) ask(ctx context.Context, l *lane, key string, kind kind,
	n int64) (algorithms.Decision, int, error) {
	if err := ctx.Err(); err != nil {
		return algorithms.Decision{}, 0, err
	}
	r := c.requests.Get().(*request)
	r.kind, r.n, r.came = kind, n, c.elapsed()
	r.stage.Store(waits)
	if !c.enqueue(l, key, r) {
		c.requests.Put(r)
		return algorithms.Decision{}, 0, ErrOverloaded
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		r.stage.CompareAndSwap(waits, left)
		// r is not reused: the flight may still hold it.
		return algorithms.Decision{}, 0, ctx.Err()
	}
	d, ruling, err := r.decision, r.ruling, r.err
	r.decision, r.ruling, r.err = algorithms.Decision{}, 0, nil
	c.requests.Put(r)
	return d, ruling, err
}

func (c *Client) enqueue(l *lane, key string, r *request) bool {
	c.mu.Lock()
	if c.waiting >= c.maxWaiting {
		c.mu.Unlock()
		return false
	}
	c.waiting++
	b := l.buckets[key]
	if b == nil {
		b = &bucket{lane: l, key: key}
		if l.names != nil {
			b.names = l.names(key)
		} else {
			b.name = l.redisKey(key)
		}
		l.buckets[key] = b
		c.queue(b, nil)
	}
	b.waiting = append(b.waiting, r)
	c.mu.Unlock()
	return true
}

// node is a server and the keys that wait for it.
type node struct {
	flights int
	ready   []*bucket // not in flight; the longest-waiting first

	ahead    atomic.Int64 // Redis's clock minus elapsed in µs; 0: unknown
	answered atomic.Int64 // elapsed at the last answer; 0 after a failure
}

// queue adds a key to those that wait for its server, and starts a flight if more are possible. A
// flight that queues a key again names its own server, which it goes on to serve.
func (c *Client) queue(b *bucket, here *node) {
	n := c.nodeOf(b)
	n.ready = append(n.ready, b)
	if n != here && n.flights < maxFlights {
		n.flights++
		go c.fly(n)
	}
}

var ended, _ = context.WithDeadline(context.Background(), time.Time{})

// nodeOf is the server of a key: of a cluster, the master that its client knows of.
func (c *Client) nodeOf(b *bucket) *node {
	address := ""
	if cluster, ok := c.rdb.(*redis.ClusterClient); ok {
		// With this context it does not load what it does not know, because c.mu is held.
		if master, err := cluster.MasterForKey(ended, b.stored()); err == nil {
			address = master.Options().Addr
		}
	}
	n := c.nodes[address]
	if n == nil {
		n = &node{}
		c.nodes[address] = n
	}
	return n
}

func (c *Client) fly(n *node) {
	f := flight{node: n}
	for {
		for range yields {
			runtime.Gosched()
		}
		if !c.board(&f) {
			return
		}
		sent := c.elapsed()
		calls := f.calls[:0]
		for _, call := range f.calls {
			if call.prepare(c, n, sent) {
				calls = append(calls, call)
			}
		}
		if len(calls) > 0 {
			c.dispatch(n, calls)
		}
		for _, call := range calls {
			call.settle(c, n, sent)
		}
	}
}

type flight struct {
	node    *node
	calls   []*call
	buckets []*bucket
}

// board ends the former flight and fills the next with the longest-waiting keys. It returns false
// if no key waits.
func (c *Client) board(f *flight) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := f.node
	for _, b := range f.buckets {
		if len(b.waiting) > 0 {
			c.queue(b, at)
		} else {
			delete(b.lane.buckets, b.key)
		}
	}
	f.calls, f.buckets = nil, nil
	if len(at.ready) == 0 {
		at.flights--
		return false
	}
	n := min(len(at.ready), maxKeys)
	f.buckets = append(f.buckets, at.ready[:n]...)
	left := copy(at.ready, at.ready[n:])
	clear(at.ready[left:])
	at.ready = at.ready[:left]
	open := map[place]*call{}
	for _, b := range f.buckets {
		b.board()
		c.waiting -= len(b.flying)
		in := place{lane: b.lane}
		if c.slotted {
			in.slot = slotOf(b.stored())
		}
		to := open[in]
		if to == nil || c.apart || len(to.buckets) == maxKeysPerCall {
			to = &call{terms: b.lane.terms()}
			f.calls = append(f.calls, to)
			open[in] = to
		}
		to.buckets = append(to.buckets, b)
	}
	return true
}

type place struct {
	lane *lane
	slot uint16
}

func (b *bucket) board() {
	if len(b.waiting) <= maxPerKey {
		b.flying, b.waiting = b.waiting, b.flying[:0]
		return
	}
	b.flying = append(b.flying[:0], b.waiting[:maxPerKey]...)
	left := copy(b.waiting, b.waiting[maxPerKey:])
	clear(b.waiting[left:])
	b.waiting = b.waiting[:left]
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}
