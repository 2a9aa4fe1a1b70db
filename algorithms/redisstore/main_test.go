package redisstore

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/redistest"
	"github.com/redis/go-redis/v9"
)

var server *redistest.Server

const patient = 30 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(hammerServer) != "" {
		os.Exit(hammerChild())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "redisstore")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if server, err = redistest.Open(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.Stop()
	if err := os.Setenv("REDIS_ADDR", server.Addr()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

var prefixes atomic.Int64

func newClient(t testing.TB, s *redistest.Server, o Options) *Client {
	t.Helper()
	rdb := s.Client()
	t.Cleanup(func() { _ = rdb.Close() })
	return newClientOf(rdb, o)
}

func newClientOf(rdb redis.UniversalClient, o Options) *Client {
	if o.Prefix == "" {
		o.Prefix = fmt.Sprint("test", prefixes.Add(1))
	}
	if o.Timeout == 0 {
		o.Timeout = patient
	}
	return NewClient(rdb, o)
}

func perSecond(n int64) algorithms.Rate { return algorithms.Rate{Count: n, Per: time.Second} }

func perHour(n int64) algorithms.Rate { return algorithms.Rate{Count: n, Per: time.Hour} }

func mustTake[S any](t testing.TB, s *Store[S], key string, n int64) algorithms.Decision {
	t.Helper()
	d, err := s.Take(t.Context(), key, n)
	if err != nil {
		t.Fatalf("take %d of %q: %v", n, key, err)
	}
	return d
}
