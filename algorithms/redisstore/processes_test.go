package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/redis/go-redis/v9"
)

// Environment of a child process: the address of Redis, the prefix, and keys of hammers.
const (
	hammerServer = "REDISSTORE_TEST_SERVER"
	hammerPrefix = "REDISSTORE_TEST_PREFIX"
	hammerRules  = "REDISSTORE_TEST_RULES"
)

const (
	processes     = 8
	callersOfEach = 4
	hammerLimit   = 1000
	callsOfEach   = 60
	refillCalls   = 5 * callsOfEach
)

const year = 366 * 24 * time.Hour

type limiter interface {
	Take(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	TakeUpTo(ctx context.Context, key string, n int64) (algorithms.Decision, error)
}

// hammers are stores that regain no units during a test, except the last.
var hammers = map[string]func(c *Client) limiter{
	"token bucket": func(c *Client) limiter {
		return New(c, "policy", algorithms.TokenBucket{Capacity: hammerLimit, Refill: perHour(1)})
	},
	"leaking bucket": func(c *Client) limiter {
		return New(c, "policy",
			algorithms.LeakingBucket{Capacity: hammerLimit, Outflow: perHour(1)})
	},
	"fixed window": func(c *Client) limiter {
		return New(c, "policy", algorithms.FixedWindow{Limit: hammerLimit, Window: year})
	},
	"sliding counter": func(c *Client) limiter {
		return New(c, "policy", algorithms.SlidingCounter{Limit: hammerLimit, Window: year})
	},
	"sliding log": func(c *Client) limiter {
		return New(c, "policy", algorithms.SlidingLog{Limit: hammerLimit, Window: time.Hour})
	},
	"sliding log of accepted": func(c *Client) limiter {
		return New(c, "policy",
			algorithms.SlidingLog{Limit: hammerLimit, Window: time.Hour, CountAccepted: true})
	},
	refilling: func(c *Client) limiter {
		return New(c, "policy", algorithms.TokenBucket{Capacity: 20, Refill: refill})
	},
}

const refilling = "refilling token bucket"

var refill = algorithms.Rate{Count: 7001, Per: 3 * time.Second}

// hammerChild is a child's main function: once standard input ends, it takes all it can of each
// rule, and prints the totals.
func hammerChild() int {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv(hammerServer),
		ContextTimeoutEnabled: true})
	defer rdb.Close()
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for i, rule := range strings.Split(os.Getenv(hammerRules), ",") {
		c := NewClient(rdb, Options{Prefix: fmt.Sprint(os.Getenv(hammerPrefix), i),
			Timeout: waittest.Patience()})
		granted, err := takeAll(hammers[rule](c), rule)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println(granted)
	}
	return 0
}

func takeAll(store limiter, rule string) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waittest.Patience())
	defer cancel()
	calls := callsOfEach
	if rule == refilling {
		calls = refillCalls
	}
	var granted atomic.Int64
	var wait sync.WaitGroup
	errs := make([]error, callersOfEach)
	for caller := range callersOfEach {
		wait.Go(func() {
			for i := 0; i < calls && errs[caller] == nil; i++ {
				ask, n := store.Take, int64(1)
				if caller == 0 {
					ask, n = store.TakeUpTo, 1+int64(i)%3
				}
				d, err := ask(ctx, "key", n)
				granted.Add(d.Granted)
				errs[caller] = err
			}
		})
	}
	wait.Wait()
	return granted.Load(), errors.Join(errs...)
}

func hammer(t *testing.T, rules ...string) (totals []int64) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*waittest.Patience())
	defer cancel()
	type child struct {
		cmd         *exec.Cmd
		stdin       io.Closer
		out, errors bytes.Buffer
	}
	var children []*child
	prefix := fmt.Sprint("test", prefixes.Add(1), "-")
	for range processes {
		c := &child{cmd: exec.CommandContext(ctx, program)}
		c.cmd.Env = append(os.Environ(), hammerServer+"="+server.Addr(), hammerPrefix+"="+prefix,
			hammerRules+"="+strings.Join(rules, ","))
		c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.errors
		if c.stdin, err = c.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := c.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		children = append(children, c)
	}
	for _, c := range children {
		if err := c.stdin.Close(); err != nil {
			t.Error(err)
		}
	}
	totals = make([]int64, len(rules))
	for _, c := range children {
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("a child: %v\n%s", err, c.errors.String())
			continue
		}
		for i := range totals {
			var n int64
			if _, err := fmt.Fscan(&c.out, &n); err != nil {
				t.Errorf("total %d of a child: %v", i, err)
			}
			totals[i] += n
		}
	}
	return totals
}

func TestProcessesShareALimitExactly(t *testing.T) {
	var rules []string
	for rule := range hammers {
		if rule != refilling {
			rules = append(rules, rule)
		}
	}
	for i, got := range hammer(t, rules...) {
		if got != hammerLimit {
			t.Errorf("%s: %d units were granted, want %d", rules[i], got, hammerLimit)
		}
	}
}

// TestProcessesShareARate checks that at most the capacity passes, plus the refill by Redis's own
// clock.
func TestProcessesShareARate(t *testing.T) {
	rdb := server.Client()
	defer rdb.Close()
	before, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	got := hammer(t, refilling)[0]
	after, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	most := 20 + after.Sub(before).Microseconds()*refill.Count/refill.Per.Microseconds()
	if got > most || got < 20 {
		t.Errorf("%d units were granted in %s, want 20 to %d", got, after.Sub(before), most)
	}
}
