package redisstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/redistest"
	"github.com/penstock-mq/penstock/internal/waittest"
	"github.com/redis/go-redis/v9"
)

// Environment of a child process: the address of Redis, the prefix, and a key of hammers.
const (
	hammerServer = "REDISSTORE_TEST_SERVER"
	hammerPrefix = "REDISSTORE_TEST_PREFIX"
	hammerRule   = "REDISSTORE_TEST_RULE"
)

const (
	processes     = 8
	callersOfEach = 4
	hammerLimit   = 1000
	callsOfEach   = 150 // far more than the limit in total
	refillCalls   = 10 * callsOfEach
)

// year is a window longer than any test.
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

// hammerChild is a child's main function: once standard input ends, it takes all it can, and prints
// the total.
func hammerChild() int {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv(hammerServer),
		ContextTimeoutEnabled: true})
	defer rdb.Close()
	open := hammers[os.Getenv(hammerRule)]
	store := open(NewClient(rdb,
		Options{Prefix: os.Getenv(hammerPrefix), Timeout: waittest.Patience()}))
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), waittest.Patience())
	defer cancel()
	calls := callsOfEach
	if os.Getenv(hammerRule) == refilling {
		calls = refillCalls
	}
	var (
		wait    sync.WaitGroup
		granted atomic.Int64
		failed  atomic.Bool
	)
	for caller := range callersOfEach {
		wait.Go(func() {
			for i := range calls {
				ask, n := store.Take, int64(1)
				if caller == 0 {
					ask, n = store.TakeUpTo, 1+int64(i)%3
				}
				d, err := ask(ctx, "key", n)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					failed.Store(true)
					return
				}
				granted.Add(d.Granted)
			}
		})
	}
	wait.Wait()
	if failed.Load() {
		return 1
	}
	fmt.Println(granted.Load())
	return 0
}

func hammer(t *testing.T, s *redistest.Server, prefix, rule string) int64 {
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
	for range processes {
		c := &child{cmd: exec.CommandContext(ctx, program)}
		c.cmd.Env = append(os.Environ(), hammerServer+"="+s.Addr(), hammerPrefix+"="+prefix,
			hammerRule+"="+rule)
		c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.errors
		if c.stdin, err = c.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := c.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		children = append(children, c)
	}
	for _, c := range children { // start them all together
		if err := c.stdin.Close(); err != nil {
			t.Error(err)
		}
	}
	var total int64
	for _, c := range children {
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("a child: %v\n%s", err, c.errors.String())
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(c.out.String()), 10, 64)
		if err != nil {
			t.Errorf("a child printed %q", c.out.String())
		}
		total += n
	}
	return total
}

func TestProcessesShareALimitExactly(t *testing.T) {
	for rule := range hammers {
		if rule == refilling {
			continue
		}
		t.Run(rule, func(t *testing.T) {
			if got := hammer(t, server, fmt.Sprint("test", prefixes.Add(1)), rule); got !=
				hammerLimit {
				t.Errorf("%d units were granted, want %d", got, hammerLimit)
			}
		})
	}
}

// TestProcessesShareARate: at most the capacity passes, plus the refill by Redis's own clock.
func TestProcessesShareARate(t *testing.T) {
	rdb := server.Client()
	defer rdb.Close()
	before, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	got := hammer(t, server, fmt.Sprint("test", prefixes.Add(1)), refilling)
	after, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	most := 20 + after.Sub(before).Microseconds()*refill.Count/refill.Per.Microseconds()
	if got > most || got < 20 {
		t.Errorf("%d units were granted in %s, want 20 to %d", got, after.Sub(before), most)
	}
}
