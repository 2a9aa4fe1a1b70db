package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

func TestRemaindersOfLimitsAreReported(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer target.Close()
	answers := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		<-answers
	}))
	defer slow.Close()
	answer := sync.OnceFunc(func() { close(answers) })
	defer answer() // also of a test that fails: the server waits for it
	p := launch(t, "--drain", "--config", configure(t, `drain: {lease: 2s}
policies:
  - name: mail
    algorithm: leaking_bucket
    capacity: 10
    target: {http: {url: '`+target.URL+`'}}
    limits:
      - {name: daily, algorithm: fixed_window, limit: 100, window: 366d, key: global}
      - {shared: account}
  - name: strict
    algorithm: leaking_bucket
    capacity: 10
    target: {http: {url: '`+slow.URL+`'}}
    limits: [{name: calls, algorithm: sliding_log, limit: 3, window: 1h, count_from: answer}]
shared_limits:
  - {name: account, algorithm: token_bucket, capacity: 20, refill: 1/d}
`)).ready()
	p.posts("/v1/jobs/mail/acme", "", 202)
	p.posts("/v1/jobs/strict/acme", "", 202)
	for path, wants := range map[string][]string{
		"/metrics": {`penstock_limit_units{kind="left",limit="daily",policy="mail"} 99`,
			`penstock_limit_units{kind="max",limit="daily",policy="mail"} 100`,
			`penstock_limit_units{kind="left",limit="account",policy="mail"} 19`,
			`penstock_limit_open{limit="calls",policy="strict"} 1`},
		"/v1/buckets/strict/acme": {`{"name":"calls","left":2,"most":3,"open":1}`},
		"/v1/buckets/mail/acme": {`{"name":"daily","left":99,"most":100}`,
			`{"name":"account","left":19,"most":20}`},
	} {
		for _, want := range wants {
			eventually(t, path+" has "+want, func() bool {
				_, text := p.get(path)
				return strings.Contains(text, want)
			})
		}
	}
	answer()
	eventually(t, "the answer is counted", func() bool {
		_, open := p.get("/metrics")
		_, bucket := p.get("/v1/buckets/strict/acme")
		return strings.Contains(open, `penstock_limit_open{limit="calls",policy="strict"} 0`) &&
			strings.Contains(bucket, `{"name":"calls","left":2,"most":3}`)
	})
	p.stop()
}
