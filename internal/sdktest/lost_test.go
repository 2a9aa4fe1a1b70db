package sdktest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// strict is an API that allows 10 requests in any second, and 200 and 9,000 tokens in any minute.
type strict struct {
	mu              sync.Mutex
	starts          []time.Time
	served, refused int
}

func (s *strict) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.starts = slices.DeleteFunc(s.starts, func(at time.Time) bool {
		return now.Sub(at) >= time.Minute
	})
	second := 0
	for _, at := range s.starts {
		if now.Sub(at) < time.Second {
			second++
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if second >= 10 || len(s.starts) >= 200 || (len(s.starts)+1)*tokensOfOne > 9000 {
		s.refused++
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"error":{"message":"too many requests","type":"rate_limit_error"}}`)
		return
	}
	s.served++
	s.starts = append(s.starts, now)
	fmt.Fprint(w, completion)
}

const lossless = `
http: {listen: '127.0.0.1:0'}
nats: {embedded: {dir: '%s', listen: ''}}
outbound:
  - listen: 127.0.0.1:0
    routes: [{prefix: /openai, upstream: '%s', policy: openai, tokens: tokens%s}]
policies:
  - name: openai
    algorithm: leaking_bucket
    outflow: 576/m
    capacity: 1000
    limits:
      - {name: requests, algorithm: sliding_log, limit: 192, window: 1m}
      - {name: tokens, algorithm: sliding_log, limit: 8700, window: 1m, cost: tokens}
`

// Two processes call at once, a hundred times each, what takes more than two minutes. With the
// default max_wait of 30s calls are refused, and come back at their turn: SDKs try three times.
func TestNoCallOfTwoHundredIsLost(t *testing.T) {
	dir := modules(t)
	for name, maxWait := range map[string]string{"default": "", "4m": ", max_wait: 4m"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &strict{}
			upstream := httptest.NewServer(api)
			t.Cleanup(upstream.Close)
			w := &world{t: t}
			w.admit(fmt.Sprintf(lossless, t.TempDir(), upstream.URL, maxWait))
			began := time.Now()
			var both sync.WaitGroup
			done := [2]int{}
			for i := range done {
				both.Go(func() {
					out, err := exec.CommandContext(t.Context(), "sh", "-c", "cd "+dir+
						" && exec node sdks.js many "+w.proxy+" -").Output()
					var got struct {
						Done int
						Lost []string
					}
					if err == nil {
						err = json.Unmarshal(out, &got)
					}
					if err != nil || got.Done != 100 {
						t.Errorf("process %d: %d of 100 calls succeeded: %v, %s", i+1, got.Done,
							err, strings.Join(got.Lost, "; "))
					}
					done[i] = got.Done
				})
			}
			both.Wait()
			t.Logf("%d of 200 calls in %v; the proxy refused %d requests, the API %d of %d",
				done[0]+done[1], time.Since(began).Round(time.Second), w.requests("openai",
					"refused"), api.refused, api.served+api.refused)
		})
	}
}
