//go:build unix

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/redistest"
)

// checks sends concurrent checks of a key to admitters, and returns the number of allowed ones.
// Every answer must be a decision.
func checks(t *testing.T, path string, each int, admitters ...string) int64 {
	t.Helper()
	var allowed atomic.Int64
	var wait sync.WaitGroup
	for client := range 8 {
		wait.Go(func() {
			for range each {
				response, err := http.Post("http://"+admitters[client%len(admitters)]+path, "", nil)
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(response.Body)
				response.Body.Close()
				switch {
				case err != nil:
					t.Error(err)
				case response.StatusCode == http.StatusOK:
					allowed.Add(1)
				case response.StatusCode != http.StatusTooManyRequests:
					t.Errorf("%s: %s", response.Status, body)
				}
			}
		})
	}
	wait.Wait()
	return allowed.Load()
}

// Two admitters on one Redis allow together exactly the limit, of one rule and of several. While
// Redis hangs each uses its share, and afterwards both obey Redis again.
func TestTwoAdmittersShareTheirLimits(t *testing.T) {
	redis := redistest.Start(t)
	const limit = 60
	c := newCluster(t,
		`  - {name: token, algorithm: token_bucket, capacity: 60, refill: 1/d, on_store_error: local}
  - {name: counter, algorithm: sliding_counter, limit: 60, window: 366d}
  - {name: log, algorithm: sliding_log, limit: 60, window: 1d, count: accepted}
  - {name: window, algorithm: fixed_window, limit: 60, window: 366d}
  - {name: meter, algorithm: leaking_bucket, outflow: 1/d, capacity: 60, queue: false}
  - name: several
    on_store_error: open
    limits:
      - {name: each, key: "{key}", algorithm: token_bucket, capacity: 25, refill: 1/d}
      - {name: all, key: global, algorithm: sliding_counter, limit: 60, window: 366d}`)
	store := fmt.Sprintf("state: {store: redis, redis: {addrs: [%q], timeout: 2s}}\n", redis.Addr())
	own, err := os.ReadFile(c.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.config(), append([]byte(store), own...), 0o600); err != nil {
		t.Fatal(err)
	}
	c.admitter()
	second := proctest.FreeAddress(t)
	spawnAdmitter(t, "second admitter", "--config", c.config(), "--http-listen", second,
		"--nats-url", c.url())

	for _, policy := range []string{"token", "counter", "log", "window", "meter"} {
		if n := checks(t, "/v1/check/"+policy+"/k", 20, c.http, second); n != limit {
			t.Errorf("%s: %d checks were allowed by two admitters, want %d", policy, n, limit)
		}
	}
	if n := checks(t, "/v1/check/several/a", 10, c.http, second); n != 25 {
		t.Errorf("several, a: %d checks were allowed, want the 25 of one key", n)
	}
	if n := checks(t, "/v1/check/several/b", 10, c.http, second) +
		checks(t, "/v1/check/several/c", 10, c.http, second); n != limit-25 {
		t.Errorf("several, b and c: %d checks were allowed, want what a has left of %d", n, limit)
	}

	redis.Freeze()
	down := func(admitter string) bool {
		checks(t, "/v1/check/several/x", 1, admitter)
		return strings.Contains(metrics(t, admitter), "penstock_store_up 0")
	}
	c.until("both know that Redis does not answer", func() bool {
		return down(c.http) && down(second)
	})
	for _, admitter := range []string{c.http, second} {
		if n := checks(t, "/v1/check/token/fresh", 20, admitter); n != limit/2 {
			t.Errorf("%d checks were allowed by one of two admitters alone, want its share of %d",
				n, limit/2)
		}
		if text := metrics(t, admitter); !strings.Contains(text,
			`penstock_store_fallbacks_total{mode="local",policy="token"} 160`) {
			t.Errorf("the fallbacks are not counted:\n%s", text)
		}
	}
	redis.Thaw()
	c.until("both ask Redis again", func() bool {
		checks(t, "/v1/check/several/x", 1, c.http, second)
		return strings.Contains(metrics(t, c.http), "penstock_store_up 1") &&
			strings.Contains(metrics(t, second), "penstock_store_up 1")
	})
	if n := checks(t, "/v1/check/token/k", 5, c.http, second); n != 0 {
		t.Errorf("%d checks were allowed of what Redis knows to be used up", n)
	}
}

func metrics(t *testing.T, admitter string) string {
	t.Helper()
	response, err := http.Get("http://" + admitter + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
