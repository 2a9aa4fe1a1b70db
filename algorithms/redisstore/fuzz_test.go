package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/algorithms"
)

// For any reply to a script, each request gets an error or a decision that the rule could make.
func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		"1000000;", "1000000;5", "1000000;5+3", "1000000;?", "1000000;2:3", "1000000;2:3:4",
		"1000000;2 999 3 4", "1000009;5 99 3 4", "1000000;22 999999 3",
		"1000000;0 0", ";", "", "x",
		"9007199254740992;1", "9007199254740991;9007199254740991", "1000000;5;6", "1000000;,,,,",
		"1000000;5,5+1,2:3,2 999 3 4 5 6,2:3:4",
		"1000000;0,0,0:0,0 0 0 0 0,0:0:0",
	} {
		f.Add(seed, uint8(0), int64(1))
		f.Add(seed, uint8(3), int64(5))
	}
	rdb := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	f.Cleanup(func() { _ = rdb.Close() })
	client := NewClient(rdb, Options{})
	perSecond := algorithms.Rate{Count: 3, Per: time.Second}
	token := NewMember(client, "p", "token", algorithms.TokenBucket{Capacity: 5, Refill: perSecond})
	leaking := NewMember(client, "p", "leaking",
		algorithms.LeakingBucket{Capacity: 5, Outflow: perSecond, Burst: 2})
	fixed := NewMember(client, "p", "fixed", algorithms.FixedWindow{Limit: 5, Window: time.Second})
	log := NewMember(client, "p", "log", algorithms.SlidingLog{Limit: 5, Window: time.Second})
	counter := NewMember(client, "p", "counter",
		algorithms.SlidingCounter{Limit: 5, Window: time.Second})
	lanes := []*lane{&token.lane, &leaking.lane, &fixed.lane, &log.lane, &counter.lane,
		&NewGroup(client, "p", token, leaking, fixed, log, counter).lane}

	f.Fuzz(func(t *testing.T, said string, of uint8, n int64) {
		if n < 1 || n > 5 {
			return
		}
		for i, lane := range lanes {
			key := "key"
			if i == len(lanes)-1 {
				key = joinKeys([]string{key, key, key, key, key})
			}
			requests := []*request{{kind: take, n: n, done: make(chan struct{}, 1)},
				{kind: kind(of % 4), n: n, done: make(chan struct{}, 1)}}
			if lane.names != nil && requests[1].kind == takeUpTo {
				requests = requests[:1]
			}
			c := call{terms: lane.terms(),
				buckets: []*bucket{{key: key, flying: append([]*request{}, requests...)}},
				reply:   &once{redis.NewStringCmd(context.Background())}}
			c.reply.SetVal(said)
			c.settle(client, &node{}, 0)
			for _, r := range requests {
				select {
				case <-r.done:
				default:
					t.Fatalf("%q: a request to rule %d is not answered", said, i)
				}
				d := r.decision
				if r.err != nil || r.kind == refund {
					continue
				}
				if d.Limit != 5 || d.Remaining < 0 || d.Remaining > d.Limit || d.RetryAfter < 0 ||
					d.ResetAfter < 0 ||
					d.Granted < 0 || d.Granted > r.n || d.Allowed != (d.RetryAfter == 0) {
					t.Fatalf("%q: rule %d decides %+v about %d units (kind %d)", said, i, d, r.n,
						r.kind)
				}
			}
		}
	})
}
