//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestABucketLearnsTheLimitOfARealTarget has a target that answers 429 to all except one call a
// second. The learned rate is visible and counted, and is discarded when the outflow changes.
func TestABucketLearnsTheLimitOfARealTarget(t *testing.T) {
	var mu sync.Mutex
	var last time.Time
	limited := true
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if limited && time.Since(last) < time.Second {
			w.Header().Set("Retry-After", "0.1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		last = time.Now()
	}))
	defer target.Close()
	c := newCluster(t, fmt.Sprintf("  - {name: api, algorithm: leaking_bucket, outflow: 100/s, "+
		"capacity: 50, adaptive_rate: {min: 50/s}, target: {http: {url: %q}}}", target.URL))
	own, err := os.ReadFile(c.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.config(), append([]byte("targets: {allow: [127.0.0.0/8]}\n"), own...),
		0o600); err != nil {
		t.Fatal(err)
	}
	spawnAdmitter(t, "admitter", "--config", c.config(), "--drain")
	ask := func(method, path, body string, want int) []byte {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+c.http+path,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != want {
			t.Fatalf("%s %s: %s %s, %v", method, path, response.Status, answer, err)
		}
		return answer
	}
	bucket := func() (state struct {
		Outflow, Adapted float64
		Depth            int
	}) {
		t.Helper()
		if err := json.Unmarshal(ask("GET", "/v1/buckets/api/a", "", 200), &state); err != nil {
			t.Fatal(err)
		}
		return state
	}
	counted := func(buckets int) bool {
		return strings.Contains(metrics(t, c.http),
			fmt.Sprintf("penstock_adapted_buckets{policy=\"api\"} %d\n", buckets))
	}

	for range 20 {
		ask("POST", "/v1/jobs/api/a", "", http.StatusAccepted)
	}
	c.until("the bucket is slower than its outflow", func() bool {
		state := bucket()
		return state.Outflow == 100 && state.Adapted >= 50 && state.Adapted < 100
	})
	c.until("it is counted", func() bool { return counted(1) })

	mu.Lock()
	limited = false
	mu.Unlock()
	c.until("its jobs are done", func() bool { return bucket().Depth == 0 })
	ask("PATCH", "/v1/policies/api", `{"outflow":"80/s"}`, 200)
	c.until("what it has learnt is forgotten", func() bool {
		state := bucket()
		return state.Outflow == 80 && state.Adapted == 0
	})
	c.until("it is not counted any more", func() bool { return counted(0) })
}
