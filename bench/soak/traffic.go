package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// policies are the permanent ones. All their temporary state expires in far less than half an hour.
const policies = `
targets: {allow: [127.0.0.0/8]}
policies:
  - &queue
    name: plain
    algorithm: leaking_bucket
    outflow: 2/s
    capacity: 50
    duplicate_window: 1m
    target: &target {http: {url: "http://%s"}}
    retry: {max_attempts: 2, backoff: 100ms}
  - {<<: *queue, name: kept, partitions: 4, result_retention: 2m, concurrency: 2, adaptive_rate: {min: 1/m}}
  - {<<: *queue, name: shared, outflow_total: 50/s}
  - {<<: *queue, name: bad}
  - {<<: *queue, name: slow, outflow: 1/m, capacity: 5}
  - <<: *queue
    name: limits
    limits:
      - {name: log, algorithm: sliding_log, limit: 50, window: 1m}
      - {name: tokens, algorithm: token_bucket, capacity: 100, refill: 5/s, cost: tokens}
      - {name: all, algorithm: sliding_counter, limit: 3000, window: 1m, key: global}
  - {name: door, algorithm: token_bucket, capacity: 5, refill: 1/s, queue: {capacity: 10},
     duplicate_window: 1m, target: *target}
  - {name: bucket, algorithm: token_bucket, capacity: 5, refill: 1/2s}
  - {name: window, algorithm: fixed_window, limit: 10, window: 30s}
  - {name: log, algorithm: sliding_log, limit: 5, window: 1m}
  - {name: counter, algorithm: sliding_counter, limit: 100, window: 1m}
  - {name: meter, algorithm: leaking_bucket, outflow: 5/s, capacity: 20, queue: false}
`

var (
	queues = []string{"plain", "kept", "shared", "limits", "door"}
	doors  = []string{"bucket", "window", "log", "counter", "meter"}
	looks  = []string{"/v1/stats?keys=5", "/v1/buckets?by=late", "/v1/buckets/plain",
		"/v1/policies", "/v1/history/kept", "/v1/dead/bad", "/v1/drainers",
		"/v1/buckets?by=refused"}
)

// answer is the target of all jobs: it refuses jobs of the policy bad, and fails or throttles a few
// others.
func answer(l net.Listener) {
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch luck := rand.IntN(100); {
		case strings.HasPrefix(r.Header.Get("Penstock-Job"), "bad:") && luck < 70:
			w.WriteHeader(http.StatusUnprocessableEntity)
		case luck == 0:
			w.WriteHeader(http.StatusInternalServerError)
		case luck == 1:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
}

type deed struct {
	name string
	rate float64
	do   func(ask asker, n int)
}

type asker func(method, path, body string, header ...string) (status int, text []byte)

func (s *soak) deeds() []deed {
	fresh := func(n int) string { return fmt.Sprintf("fresh-%d", n) }
	known := func(n int) string { return fmt.Sprintf("known-%d", n%100) }
	queue := func(n int) string { return queues[n%len(queues)] }
	// later submits a job that waits, and returns its path.
	later := func(ask asker, n int) string {
		_, text := ask("POST", "/v1/jobs/"+queues[n%4]+"/later-"+fresh(n), "{}",
			"Penstock-Not-Before", "30s", "Penstock-Tag", "later")
		var a struct{ Job string }
		_ = json.Unmarshal(text, &a)
		return "/v1/jobs/" + a.Job
	}
	return []deed{
		{"jobs of new keys", 20, func(ask asker, n int) {
			ask("POST", "/v1/jobs/"+queue(n)+"/"+fresh(n), "{}")
		}},
		{"jobs of known keys", 20, func(ask asker, n int) {
			ask("POST", "/v1/jobs/"+queue(n)+"/"+known(n), "{}", "Idempotency-Key", fresh(n/2),
				"Penstock-Priority", strconv.Itoa(n/2%5), "Penstock-Deadline", "5m")
		}},
		{"jobs of buckets that fill up", 5, func(ask asker, n int) {
			ask("POST", "/v1/jobs/slow/"+fresh(n/20), "{}")
		}},
		{"waits", 3, func(ask asker, n int) {
			ask("POST", "/v1/jobs/"+queue(n)+"/wait-"+fresh(n)+"?wait=5s", "{}")
		}},
		{"batches of 20", 0.5, func(ask asker, n int) {
			var lines strings.Builder
			for i := range 20 {
				fmt.Fprintf(&lines, `{"policy":%q,"key":"batch-%d-%d"}`+"\n", queue(i), n, i)
			}
			ask("POST", "/v1/jobs:batch", lines.String())
		}},
		{"cancels", 2, func(ask asker, n int) { ask("DELETE", later(ask, 2*n), "") }},
		{"edits", 2, func(ask asker, n int) {
			job := later(ask, 2*n+1)
			ask("PATCH", job+"?priority=7&deadline=10m", "")
			ask("GET", job, "")
			ask("PATCH", job+"?run=1", "")
		}},
		{"checks", 50, func(ask asker, n int) {
			key := fresh(n)
			if n%2 == 0 {
				key = known(n / 2)
			}
			ask("POST", "/v1/check/"+doors[n/2%len(doors)]+"/"+key, "")
		}},
		{"dead letters", 0.5, func(ask asker, n int) {
			ask("POST", "/v1/jobs/bad/"+fresh(n), "{}")
			switch n % 60 {
			case 0:
				ask("POST", "/v1/dead/bad/replay", "")
			case 30:
				ask("DELETE", "/v1/dead/bad?before=1m", "")
			}
		}},
		{"overrides and pauses", 0.5, func(ask asker, n int) {
			ask("PUT", "/v1/policies/plain/keys/"+fresh(n), `{"outflow":"5/s"}`)
			ask("POST", "/v1/jobs/plain/"+fresh(n), "{}")
			ask("DELETE", "/v1/policies/plain/keys/"+fresh(n), "")
			ask("POST", "/v1/pause/plain/"+fresh(n), "")
			ask("POST", "/v1/resume/plain/"+fresh(n), "")
		}},
		{"policies made and deleted", 0.2, func(ask asker, n int) {
			path := fmt.Sprintf("/v1/policies/new-%d", n)
			ask("PUT", path, `{"algorithm":"leaking_bucket","outflow":"5/s","capacity":20,
				"result_retention":"1m","target":{"http":{"url":"`+s.target+`"}}}`)
			for i := range 5 {
				ask("POST", fmt.Sprintf("/v1/jobs/new-%d/%d", n, i), "{}")
			}
			ask("PATCH", path, `{"outflow":"6/s"}`)
			ask("PUT", path+"/keys/1", `{"outflow":"1/s"}`)
			for status := 202; status == 202 || status >= 500; time.Sleep(time.Second) {
				status, _ = ask("DELETE", path+"?purge=1", "")
			}
		}},
		{"looks", 1, func(ask asker, n int) {
			ask("GET", looks[n%len(looks)], "")
		}},
		{"streams of events, of 10 s", 0.2, func(ask asker, _ int) {
			ask("GET", "/v1/events", "")
		}},
	}
}

// atOnce bounds the concurrent actions of a kind. Further ones are dropped, because slow answers
// must not accumulate.
const atOnce = 50

func (s *soak) begin(ctx context.Context) *sync.WaitGroup {
	var all sync.WaitGroup
	for _, d := range s.deeds() {
		all.Go(func() {
			ticker := time.NewTicker(time.Duration(float64(time.Second) / d.rate))
			defer ticker.Stop()
			free := make(chan struct{}, atOnce)
			for n := 1; ; n++ {
				select {
				case <-ticker.C:
				case <-ctx.Done():
					return
				}
				select {
				case free <- struct{}{}:
					all.Go(func() {
						defer func() { <-free }()
						d.do(func(method, path, body string, header ...string) (int, []byte) {
							return s.ask(ctx, d.name, method, path, body, header)
						}, n)
					})
				default:
					s.count(d.name, "left out")
				}
			}
		})
	}
	return &all
}

// ask sends a request, and counts how it was answered. Streams of events end after 10 s.
func (s *soak) ask(ctx context.Context, deed, method, path, body string,
	header []string) (status int, text []byte) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(within, method, s.url+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		if ctx.Err() == nil {
			s.count(deed, "no answer")
		}
		return 0, nil
	}
	defer response.Body.Close()
	if path == "/v1/events" {
		defer time.AfterFunc(10*time.Second, cancel).Stop()
	}
	text, _ = io.ReadAll(response.Body)
	s.count(deed, strconv.Itoa(response.StatusCode))
	return response.StatusCode, text
}
