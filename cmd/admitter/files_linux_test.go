package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

// TestJobsWaitForFileDescriptors has a drainer with few of them, and a target that holds all
// connections until the drainer has none left.
func TestJobsWaitForFileDescriptors(t *testing.T) {
	const jobs, limit = 90, 64
	var mu sync.Mutex
	attempts := map[string]int{}
	held := make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		attempts[r.Header.Get("Penstock-Attempt")]++
		mu.Unlock()
		<-held
	}))
	defer target.Close()
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	file := configure(t, fmt.Sprintf(`
policies:
  - {name: api, algorithm: leaking_bucket, outflow: 1000/s, capacity: 100, workers: %d,
     target: {http: {url: %q}}}
`, jobs, target.URL))
	p := launch(t, "--config", file).ready()
	for range jobs {
		operate[any](p, "POST", "/v1/jobs/api/a", "x", 202)
	}
	cmd := exec.Command("sh", "-c", fmt.Sprintf("ulimit -n %d; exec \"$@\"", limit), "sh",
		proctest.Program("drainer"), "--nats-url", p.nats,
		"--http-listen", "127.0.0.1:0")
	few := &process{Process: proctest.Start(t, cmd), t: t}
	if _, err := few.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the drainer has no file descriptor left", func() bool {
		return few.Log.Count("no free file descriptor") > 0
	})
	release()
	eventually(t, "all jobs are done", func() bool {
		return operate[bucketDocument](p, "GET", "/v1/buckets/api/a", "", 200).Depth == 0
	})
	log := few.Log.String()
	for _, word := range []string{"target is down", "disk"} {
		if strings.Contains(log, word) {
			t.Errorf("the log blames %q", word)
		}
	}
	if !strings.Contains(log, "http.max_connections is more than") {
		t.Error("there is no warning at the start")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(attempts) != 1 || attempts["1"] != jobs {
		t.Errorf("calls by attempt: %v, want %d first ones", attempts, jobs)
	}
	if t.Failed() {
		t.Log(log)
	}
	few.stop()
	p.stop()
}
