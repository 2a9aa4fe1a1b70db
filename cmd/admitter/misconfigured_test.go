package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A header's file that is missing is a mistake of the operator: it costs no job an attempt, the log
// and the bucket name it, and resume tries again once it is mended.
func TestAMissingFileOfATargetCostsNoAttempt(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 8)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Authorization")
	}))
	defer target.Close()
	file := filepath.Join(t.TempDir(), "key")
	p := launch(t, "--drain", "--config", configure(t, fmt.Sprintf(`
policies:
  - name: api
    algorithm: leaking_bucket
    outflow: 100/s
    capacity: 10
    retry: {max_attempts: 1, backoff: 1h, max_backoff: 1h}
    target: {http: {url: '%s', headers: {Authorization: {file: '%s'}}}}
`, target.URL, file))).ready()
	for range 3 {
		operate[any](p, "POST", "/v1/jobs/api/acme", "x", 202)
	}
	type state struct {
		By        string `json:"blocked_by"`
		LastError string `json:"last_error"`
		Attempts  int
	}
	eventually(t, "nothing names the missing file", func() bool {
		b := operate[state](p, "GET", "/v1/buckets/api/acme", "", 200)
		return b.By == "breaker" && strings.Contains(b.LastError, "a mistake at the drainer") &&
			strings.Contains(b.LastError, file)
	})
	for id := 1; id <= 3; id++ {
		eventually(t, "a job counts an attempt, or does not wait for the breaker", func() bool {
			j := operate[state](p, "GET", fmt.Sprintf("/v1/jobs/api:%d", id), "", 200)
			return j.Attempts == 0 && j.By == "breaker"
		})
	}
	if err := os.WriteFile(file, []byte("Bearer 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := operate[struct{ Probes int }](p, "POST", "/v1/resume/api/acme", "", 200)
	if r.Probes != 1 {
		t.Errorf("resume started %d probes", r.Probes)
	}
	for range 3 {
		if got := <-asked; got != "Bearer 1" {
			t.Errorf("the target got %q", got)
		}
	}
	p.says(`penstock_jobs_total{outcome="done",policy="api"} 3`)
	p.says(`penstock_jobs_total{outcome="dead",policy="api"} 0`)
	p.stop()
	if log := p.Log.String(); !strings.Contains(log, "a mistake of this process keeps it from") ||
		!strings.Contains(log, file) {
		t.Errorf("the log does not name the file:\n%s", log)
	}
}
