package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/redis/go-redis/v9"
)

// terms are a rule's, unchanged by a later SetRule.
type terms interface {
	most() int64
	program() *script
	arguments() []any
	// pair encodes a request as in common.lua; 0, 0 takes no units.
	pair(r *request) (n, times int64)
	// settle sets the decisions of a key's requests from the script's reply at now; sent is on the
	// client's clock.
	settle(key, said string, now time.Time, sent time.Duration, requests []*request) error
	doubt(key string)
}

// call is one run of a script for keys of one lane.
type call struct {
	terms   terms
	buckets []*bucket
	reply   *once
	args    []any
	time    int
}

// once is a command that must not be retried: it may have been applied.
type once struct{ *redis.StringCmd }

func (once) NoRetry() bool { return true }

// prepare builds the command. It omits abandoned requests, and answers requests that are expired or
// no longer possible. It returns false if no request remains.
func (c *call) prepare(client *Client, at *node, sent time.Duration) bool {
	most, kept := c.terms.most(), c.buckets[:0]
	for _, b := range c.buckets {
		requests := b.flying[:0]
		for _, r := range b.flying {
			switch {
			case !r.stage.CompareAndSwap(waits, flies):
			case sent-r.came > client.timeout:
				r.finish(ErrTimeout)
			case r.n > most && (r.kind == take || r.kind == peek):
				r.finish(algorithms.CheckCost(r.n, most))
			default:
				requests = append(requests, r)
			}
		}
		clear(b.flying[len(requests):])
		b.flying = requests
		if len(requests) > 0 {
			kept = append(kept, b)
		}
	}
	c.buckets = kept
	if len(kept) == 0 {
		return false
	}

	program, parameters := c.terms.program(), c.terms.arguments()
	args := make([]any, 0, 4+2*len(kept)+len(parameters))
	args = append(args, "evalsha", program.hash, len(kept)*max(1, len(kept[0].names)))
	for _, b := range kept {
		if b.names == nil {
			args = append(args, &b.name)
		}
		for _, name := range b.names {
			args = append(args, name)
		}
	}
	c.time = len(args)
	args = append(args, client.time(at, sent))
	args = append(args, parameters...)
	for _, b := range kept {
		args = append(args, encode(c.terms, b.flying))
	}
	c.args = args
	return true
}

func encode(t terms, requests []*request) any {
	type pair struct{ n, times int64 }
	var few [4]pair
	pairs := few[:0]
	for _, r := range requests {
		n, times := t.pair(r)
		last := len(pairs) - 1
		switch {
		case n == 0:
		case n > 0 && times > 0 && last >= 0 && pairs[last].n == n && pairs[last].times > 0:
			pairs[last].times += times
		default:
			pairs = append(pairs, pair{n, times})
		}
	}
	switch {
	case len(pairs) == 0:
		return int64(0)
	case len(pairs) == 1 && pairs[0].times == 1:
		return pairs[0].n
	}
	var text []byte
	for _, p := range pairs {
		text = strconv.AppendInt(text, p.n, 10)
		text = strconv.AppendInt(append(text, ' '), p.times, 10)
		text = append(text, ' ')
	}
	return text[:len(text)-1]
}

func (c *Client) dispatch(at *node, calls []*call) {
	done := func(error) {}
	if c.breaker != nil {
		allowed, err := c.breaker.Allow()
		if err != nil {
			for _, call := range calls {
				call.reply = &once{redis.NewStringCmd(context.Background(), call.args...)}
				call.reply.SetErr(err)
			}
			return
		}
		done = allowed
	}
	c.send(calls)
	err := outage(calls)
	c.follow(err)
	if err != nil {
		at.answered.Store(0)
		if c.anyAnswers() {
			err = nil // the breaker would open for the other servers, too
		}
	}
	done(err)
}

// anyAnswers reports whether a server answered when it was last asked. After a minute it may have
// left the cluster.
func (c *Client) anyAnswers() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		last := time.Duration(n.answered.Load())
		if last > 0 && c.elapsed()-last < time.Minute {
			return true
		}
	}
	return false
}

// follow looks for the successor of a cluster's master that is down. Its client would wait for a
// minute, as no node redirects calls that reach none.
func (c *Client) follow(outage error) {
	if cluster, ok := c.rdb.(*redis.ClusterClient); ok && outage != nil {
		cluster.ReloadState(context.Background())
	}
}

// outage returns the error that shows that Redis, or a part of a cluster, cannot decide now. A
// script does not fail because of a foreign value.
func outage(calls []*call) error {
	for _, call := range calls {
		err := call.reply.Err()
		if err != nil && !slices.ContainsFunc(ofOneSlot, func(prefix string) bool {
			return redis.HasErrorPrefix(err, prefix)
		}) {
			return err
		}
	}
	return nil
}

// ofOneSlot are replies about a cluster's slot that moves, and about keys of several slots.
var ofOneSlot = []string{"TRYAGAIN", "CROSSSLOT", "MOVED", "ASK"}

// time is the time argument of scripts. A call that runs after its callers gave up must take no
// units, so the argument is a deadline by the server's clock, estimated from its last reply.
func (c *Client) time(at *node, sent time.Duration) any {
	if c.now != nil {
		return c.now().UnixMicro()
	}
	if ahead := at.ahead.Load(); ahead > 0 {
		return "<" + strconv.FormatInt(ahead+(sent+c.timeout).Microseconds(), 10)
	}
	return ""
}

// send runs calls in one pipeline. It resends those with an unknown script, and those rejected as
// late though in time: Redis's clock has stepped.
func (c *Client) send(calls []*call) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	for range 3 {
		c.exec(ctx, calls)
		var again []*call
		for _, call := range calls {
			switch err := call.reply.Err(); {
			case redis.HasErrorPrefix(err, "NOSCRIPT"):
				call.args[0], call.args[1] = "eval", call.terms.program().source
			case redis.HasErrorPrefix(err, "LATE"):
				call.args[call.time] = ""
			default:
				continue
			}
			again = append(again, call)
		}
		if calls = again; len(calls) == 0 {
			return
		}
	}
}

func (c *Client) exec(ctx context.Context, calls []*call) {
	pipe := c.rdb.Pipeline()
	for _, call := range calls {
		call.reply = &once{redis.NewStringCmd(ctx, call.args...)}
		_ = pipe.Process(ctx, call.reply)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		for _, call := range calls {
			if call.reply.Err() == nil && (!isReply(err) || call.reply.Val() == "") {
				call.reply.SetErr(err)
			}
		}
	}
}

func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

func (c *call) settle(client *Client, at *node, sent time.Duration) {
	said, err := c.reply.Result()
	if err != nil {
		err = client.explain(err)
	}
	first, rest, _ := strings.Cut(said, ";")
	us, ok := parseNumber(first)
	if err == nil && (!ok || strings.Count(rest, ";") != len(c.buckets)-1) {
		err = fmt.Errorf("ask Redis: the script answered %q", said)
	}
	if err == nil {
		at.answered.Store(int64(client.elapsed()))
		if !client.apart {
			at.ahead.Store(us - sent.Microseconds())
		}
	}
	now := time.UnixMicro(us)
	for _, b := range c.buckets {
		var one string
		one, rest, _ = strings.Cut(rest, ";")
		failed := err
		if failed == nil {
			failed = c.terms.settle(b.key, one, now, sent, b.flying)
		}
		if failed != nil {
			c.terms.doubt(b.key)
		}
		for i, r := range b.flying {
			r.finish(failed)
			b.flying[i] = nil
		}
		b.flying = b.flying[:0]
	}
}
