package main

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// dumps matches Go's formatting of structs, maps, pointers and missing errors, and keys in subject
// form.
var dumps = regexp.MustCompile(`<nil>|map\[|&\{|\{[A-Z]\w+:|0x[0-9a-f]{6}|%!|tenant%20`)

// TestTheLogHasNoGoDumps covers all ends of jobs, and valid and invalid changes of a policy.
func TestTheLogHasNoGoDumps(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/gone"):
			w.WriteHeader(http.StatusGone)
		case strings.HasSuffix(r.URL.Path, "/busy") && r.Header.Get("Penstock-Attempt") == "1":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer target.Close()
	file := configure(t, `
policies:
  - {name: api, algorithm: leaking_bucket, outflow: 100/s, capacity: 30, retry: {backoff: 10ms}, target: {http: {url: "`+target.URL+`"}}}
`)
	p := launch(t, "--drain", "--config", file, "--log-level", "debug").ready()
	for _, path := range []string{"/gone", "/busy", "/fine"} {
		r := p.ask(http.MethodPost, "/v1/jobs/api/tenant%207", "", "Penstock-Path", path)
		if r.status != 202 {
			t.Fatalf("%+v", r)
		}
	}
	for _, content := range []string{
		`{"algorithm":"leaking_bucket","outflow":"50/s","capacity":30,"target":{"http":{"url":"` +
			target.URL + `"}}}`,
		`{"algorithm":"fixed_window","limit":1,"window":"1d"}`,
	} {
		p.ask(http.MethodPut, "/v1/policies/api", content)
	}
	eventually(t, "the jobs do not end", func() bool {
		_, text := p.get("/metrics")
		return strings.Contains(text, `penstock_queue_jobs{policy="api"} 0`) &&
			strings.Contains(text, `penstock_jobs_total{outcome="done",policy="api"} 2`)
	})
	p.stop()
	text := p.Log.String()
	for line := range strings.Lines(text) {
		if dumps.MatchString(line) {
			t.Errorf("a line that nobody wrote: %s", line)
		}
	}
	for _, want := range []string{"msg=ready http=", "msg=start policy=api", `key="tenant 7"`,
		"outcome=done", "outcome=failed"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}
