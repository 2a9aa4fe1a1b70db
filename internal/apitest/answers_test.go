package apitest

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/kit/policytest"
	"github.com/penstock-mq/penstock/policy"
)

func TestEveryAnswerIsAsDescribed(t *testing.T) {
	d := open(t)
	all := &seen{answers: map[string]map[string]bool{}}
	away, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := "nats://" + away.Addr().String()
	if err := away.Close(); err != nil {
		t.Fatal(err)
	}
	s := start(t, d, all, penstock.Options{Policies: []policy.Policy{
		policytest.Door("filed", 5, 1)}})
	without := start(t, d, all, penstock.Options{URL: nowhere, StartWithoutNATS: true,
		AdmitOnly: true})
	url, release := target(t)
	defer release()

	t.Run("policies", func(t *testing.T) { s.t = t; s.policies(url) })
	t.Run("jobs", func(t *testing.T) { s.t = t; s.jobs() })
	t.Run("checks", func(t *testing.T) { s.t = t; s.checks() })
	t.Run("permits", func(t *testing.T) { s.t = t; s.permits() })
	t.Run("keys", func(t *testing.T) { s.t = t; s.keys() })
	t.Run("buckets", func(t *testing.T) { s.t = t; s.buckets() })
	t.Run("dead letters", func(t *testing.T) { s.t = t; s.deadLetters() })
	t.Run("happenings", func(t *testing.T) { s.t = t; s.happenings() })
	t.Run("deletion", func(t *testing.T) { s.t = t; s.deletion() })
	t.Run("wrong requests", func(t *testing.T) { s.t = t; s.wrong() })
	t.Run("without NATS", func(t *testing.T) { without.t = t; without.unavailable() })
	if !t.Failed() {
		all.complete(t, d)
	}
}

const slow = `{"algorithm":"leaking_bucket","outflow":"1/d","capacity":%d,"target":{"http":{"url":%q}}}`

func (s *server) policies(url string) {
	fast := `{"algorithm":"leaking_bucket","outflow":"1000/s","capacity":100,` +
		`"result_retention":"1h","target":{"http":{"url":"` + url + `","forward":["X-Trace"]}}}`
	s.ask("PUT", "/v1/policies/fast?dry_run=1", fast, 200)
	s.ask("PUT", "/v1/policies/fast", fast, 201)
	s.ask("PUT", "/v1/policies/fast", strings.Replace(fast, "1000/s", "900/s", 1), 200)
	s.ask("PUT", "/v1/policies/fast", strings.Replace(fast, `"1000/s"`, `"900/s","partitions":2`,
		1), 409)
	s.ask("PUT", "/v1/policies/fast", fast, 412, `If-Match: "1"`)
	s.ask("PUT", "/v1/policies/bad", `{"algorithm":"leaking_bucket","outflo":"1/s"}`, 400)
	s.ask("PATCH", "/v1/policies/fast", `{"retry":{"max_attempts":3}}`, 200)
	s.ask("PATCH", "/v1/policies/fast", `{"partitions":7}`, 409)
	s.ask("PATCH", "/v1/policies/none", `{"workers":7}`, 404)
	s.ask("PATCH", "/v1/policies/fast", `{"partitions":7}`, 412, `If-Match: "1"`)
	s.ask("PATCH", "/v1/policies/fast", `[]`, 415, "Content-Type: application/json-patch+json")
	s.ask("PUT", "/v1/policies/slow", fmt.Sprintf(slow, 2, url), 201)
	s.ask("PUT", "/v1/policies/other", fmt.Sprintf(slow, 2, url), 201)
	s.ask("PUT", "/v1/policies/signup", `{"algorithm":"fixed_window","limit":10,"window":"1d"}`,
		201)
	s.ask("PUT", "/v1/policies/door", `{"algorithm":"sliding_counter","limit":1,"window":"1d",`+
		`"queue":{"capacity":5}}`, 201)
	s.ask("PUT", "/v1/policies/many", `{"limits":[{"name":"a","key":"{key}","algorithm":`+
		`"token_bucket","capacity":2,"refill":"1/d"},{"name":"b","key":"global","algorithm":`+
		`"sliding_log","limit":3,"window":"1d"}]}`, 201)
	s.ask("GET", "/v1/policies", "", 200)
	all, _ := s.send("GET", "/v1/policies", "")
	s.ask("GET", "/v1/policies", "", 304, "If-None-Match: "+all.Header.Get("ETag"))
	s.ask("GET", "/v1/policies/fast", "", 200)
	r, _ := s.send("GET", "/v1/policies/fast", "")
	s.ask("GET", "/v1/policies/fast", "", 304, "If-None-Match: "+r.Header.Get("ETag"))
	s.ask("GET", "/v1/policies/none", "", 404)
	s.ask("PATCH", "/v1/policies/fast/override?for=1h&because=x", `{"concurrency":2}`, 200)
	s.ask("PATCH", "/v1/policies/fast/override", `{"capacity":1}`, 400)
	s.ask("PATCH", "/v1/policies/fast/override", `{}`, 412, `If-Match: "1"`)
	s.ask("PATCH", "/v1/policies/fast/override", `[]`, 415,
		"Content-Type: application/json-patch+json")
	s.ask("PATCH", "/v1/policies/fast/override?for=1", `{"concurrency":2}`, 400)
	s.ask("GET", "/v1/policies/fast", "", 200)
	s.ask("DELETE", "/v1/policies/fast/override", "", 412, `If-Match: "1"`)
	s.ask("DELETE", "/v1/policies/fast/override", "", 200)
	s.ask("PATCH", "/v1/policies/none/override", `{}`, 404)
	s.ask("DELETE", "/v1/policies/none/override", "", 404)
	s.ask("POST", "/v1/take/none", "", 404)
	s.ask("POST", "/v1/take/fast?set=default", "", 200)
	s.ask("POST", "/v1/take/fast?set=_", "", 400)
	s.ask("POST", "/v1/release/fast", "", 200)
	s.ask("POST", "/v1/release/none", "", 404)
	s.ask("PUT", "/v1/policies/timed", fmt.Sprintf(slow, 1, url), 201)
	s.ask("POST", "/v1/schedules/timed/a", "tick", 201, "Penstock-Schedule: 30 6 * * 1-5",
		"Penstock-Schedule-Zone: Europe/Berlin")
	s.ask("GET", "/v1/schedules/timed", "", 200)
	s.ask("GET", "/v1/schedules/timed/b", "", 404)
	s.ask("GET", "/v1/schedules/none", "", 404)
	s.ask("PATCH", "/v1/schedules/timed/b?paused=1", "", 404)
	s.ask("DELETE", "/v1/schedules/timed/b", "", 404)
	s.ask("POST", "/v1/schedules/none/a", "tick", 404, "Penstock-Schedule: @daily")
	s.ask("POST", "/v1/run/timed/a", "", 202)
	s.ask("POST", "/v1/run/timed/a?name=other", "", 404)
	s.until("/v1/schedules", `"outcome":"done","job":"timed:1"`)
	s.ask("POST", "/v1/run/timed/a", "", 202)
	s.ask("POST", "/v1/run/timed/a", "", 429)
	s.ask("GET", "/v1/schedules/timed/a", "", 200)
	s.ask("GET", "/v1/schedules?limit=1", "", 200)
	s.ask("GET", "/v1/schedules?limit=0", "", 400)
	s.ask("PATCH", "/v1/schedules/timed/a?paused=1", "", 200)
	s.ask("DELETE", "/v1/schedules/timed/a", "", 204)
	for _, what := range []string{"pause", "resume"} {
		s.ask("POST", "/v1/"+what+"/fast", "", 200)
		s.ask("POST", "/v1/"+what+"/none", "", 404)
		s.ask("POST", "/v1/"+what+"/fast/a/b%20c", "", 200)
		s.ask("POST", "/v1/"+what+"/none/a", "", 404)
	}
}

func (s *server) jobs() {
	s.ask("POST", "/v1/jobs/fast/a", "hang", 202)
	s.ask("POST", "/v1/jobs/fast/b", `{"refuse":1}`, 202, "Idempotency-Key: one",
		"Penstock-Forward-X-Trace: x")
	s.ask("POST", "/v1/jobs/fast/b", `{"refuse":2}`, 202)
	s.until("/v1/dead/fast", `"id":2`)
	s.ask("POST", "/v1/jobs/fast/d?wait=1m", `{"x":1}`, 200)
	s.until("/v1/history/fast/d", `"done"`)
	s.ask("POST", "/v1/jobs/fast/d", `{"refuse":3}`, 200, "Penstock-Wait: 1m")
	s.ask("POST", "/v1/jobs/fast/d?wait=soon", "", 400)
	s.ask("POST", "/v1/jobs/fast/d", "", 400, "Penstock-Callback: http://example.test/")
	s.ask("POST", "/v1/jobs/other/w?wait=1ms", "", 202, "Penstock-Not-Before: 1h")
	s.ask("POST", "/v1/jobs/fast/b", `{"refuse":1}`, 409, "Idempotency-Key: one")
	s.ask("POST", "/v1/jobs/slow/", "", 202)
	s.ask("POST", "/v1/jobs/slow/a/b?wait=1m", "", 200)
	s.until("/v1/buckets/slow/a/b", `"depth":0`)
	s.ask("POST", "/v1/jobs/slow/a/b", "x", 202, "Idempotency-Key: two", "Penstock-Cost: 2",
		"Penstock-Not-Before: 1h", "Penstock-Deadline: 3h")
	s.ask("POST", "/v1/jobs/slow/a/b", "x", 202, "Idempotency-Key: two", "Penstock-Cost: 2",
		"Penstock-Not-Before: 1h", "Penstock-Deadline: 3h")
	s.ask("POST", "/v1/jobs/slow/a/b", "y", 422, "Idempotency-Key: two")
	s.ask("POST", "/v1/jobs/slow/a/b", "", 202)
	s.ask("POST", "/v1/jobs/slow/a/b", "", 429)
	s.ask("POST", "/v1/jobs/door/a", "", 202)
	s.ask("POST", "/v1/jobs/door/a", "", 429)
	s.ask("POST", "/v1/jobs/signup/a", "", 409)
	s.ask("POST", "/v1/jobs/none/a", "", 404)
	s.ask("POST", "/v1/jobs/slow/a", "", 400, "Penstock-Cost: none")
	s.ask("POST", "/v1/jobs:batch", `{"policy":"other","key":"a","body":{}}
{"policy":"other"}
{"policy":"other","key":"a","text":"x"}
{"policy":"other","key":"a","text":"x"}
{"policy":"other","key":"a","text":"x"}
{"policy":"other","key":"b","base64":"QQ=="}
`, 200)
	s.ask("POST", "/v1/jobs:batch", "", 400)
	s.until("/v1/jobs/fast:1", `"running"`)
	s.ask("GET", "/v1/jobs/fast:1", "", 200)
	s.ask("GET", "/v1/jobs/fast:2", "", 200)
	s.ask("GET", "/v1/jobs/slow:3", "", 200)
	s.ask("GET", "/v1/jobs/slow:3?body=1", "", 200)
	s.ask("GET", "/v1/jobs/slow/a/b?limit=1", "", 200)
	s.ask("GET", "/v1/jobs/slow/a/b?state=delayed", "", 200)
	s.ask("GET", "/v1/jobs/slow/a/b?state=lost", "", 400)
	s.ask("GET", "/v1/jobs/slow:99", "", 404)
	s.ask("GET", "/v1/jobs/none/a", "", 404)
	s.ask("GET", "/v1/jobs/slow", "", 400)
	s.ask("POST", "/v1/jobs/other/tagged", "", 202, "Penstock-Tag: eu, x",
		"Penstock-Not-Before: 1h")
	s.until("/v1/jobs/other/tagged", `"delayed"`)
	s.ask("GET", "/v1/jobs/other/tagged?tag=eu", "", 200)
	s.ask("GET", "/v1/jobs/other/tagged?tag=", "", 400)
	for _, path := range []string{"/v1/cancel/other/tagged", "/v1/cancel/other"} {
		s.ask("POST", path+"?tag=eu", "", 200)
		s.ask("POST", path, "", 400)
		s.ask("POST", strings.Replace(path, "other", "none", 1)+"?tag=eu", "", 404)
	}
	s.ask("PATCH", "/v1/jobs/slow:3?front=1&priority=7&deadline=2h", "", 200)
	s.ask("PATCH", "/v1/jobs/slow:3", "", 400)
	s.ask("PATCH", "/v1/jobs/slow:99?run=1", "", 404)
	s.ask("PATCH", "/v1/jobs/fast:1?run=1", "", 409)
	s.ask("DELETE", "/v1/jobs/slow:3", "", 200)
	s.ask("GET", "/v1/jobs/slow:3", "", 200)
	s.ask("DELETE", "/v1/jobs/fast:1", "", 409)
	s.ask("DELETE", "/v1/jobs/fast:99", "", 404)
}

func (s *server) checks() {
	for _, method := range []string{"GET", "POST"} {
		s.ask(method, "/v1/check/signup/a?cost=3", "", 200)
		s.ask(method, "/v1/check/signup/a?cost=8", "", 0)
		s.ask(method, "/v1/check/fast/a", "", 409)
		s.ask(method, "/v1/check/many/a?cost=2", "", 200)
		s.ask(method, "/v1/check/signup/a?cost=11", "", 400)
	}
	s.ask("GET", "/v1/check/signup/a?cost=8", "", 429)
	s.ask("POST", "/v1/check/many/a", "", 429)
	s.ask("DELETE", "/v1/check/signup/a", "", 204)
	s.ask("DELETE", "/v1/check/fast/a", "", 409)
	s.ask("DELETE", "/v1/check/none/a", "", 404)
}

func (s *server) permits() {
	s.ask("POST", "/v1/permits/fast/calls?wait=10s", "", 200, "Penstock-Priority: 1")
	s.ask("POST", "/v1/permits/fast/%C3%BC%2F%F0%9F%92%A7", "", 200)
	s.ask("POST", "/v1/permits/fast/"+strings.Repeat("k", 257), "", 400)
	s.ask("POST", "/v1/permits/fast/%FF", "", 400)
	for _, query := range []string{"wait=x", "wait=", "wait=0", "wait=-1s", "wait=1e9h", "wait=NaN",
		"wait=99999999999999999999h", "wait=6m", "wait=1s&wait=2s", "bogus=1"} {
		s.ask("POST", "/v1/permits/fast/calls?"+query, "", 400)
	}
	s.ask("POST", "/v1/permits/fast/calls", `{"cost":1,"costs":{"tokens":1200},"priority":-1}`, 200)
	for _, body := range []string{`{`, `[]`, `{"tokens":1}`, `{"cost":0}`, `{"cost":1e99}`,
		`{"cost":-1}`, `{"cost":NaN}`, `{"costs":{"tokens":1.5}}`, `{"costs":{"tokens":-1}}`,
		`{"costs":{"tokens":1e300}}`, `{"costs":{"":1}}`, `{"priority":10}`, `{} {}`, `{}]`,
		`{"cost":1,"cost":2}`, `{"costs":{"a":1,"A":2}}`} {
		s.ask("POST", "/v1/permits/fast/calls", body, 400)
	}
	for _, header := range []string{"Penstock-Deadline: 1h", "Penstock-Not-Before: 1h",
		"Penstock-Unique: a", "Penstock-Forward-A: b", "Penstock-Wait: 1s", "Idempotency-Key: a"} {
		s.ask("POST", "/v1/permits/fast/calls", "", 400, header)
	}
	s.ask("POST", "/v1/permits/signup/a", "", 409)
	s.ask("POST", "/v1/pause/fast/calls", "", 200)
	s.ask("POST", "/v1/permits/fast/calls", "", 429)
	s.ask("POST", "/v1/resume/fast/calls", "", 200)
	s.ask("POST", "/v1/permits/none/a", "", 404)
	s.ask("PUT", "/v1/permits/fast/calls?permit=x", `{"status":"done"}`, 204)
	s.ask("PUT", "/v1/permits/fast/calls?permit=x",
		`{"status":429,"retry_after_ms":1,"used":{"tokens":830}}`, 204)
	for _, body := range []string{"", `{`, `{"status":"lost"}`, `{"status":99}`, `{"status":200.5}`,
		`{"status":"done","bogus":1}`, `{"status":"done","used":{"tokens":"x"}}`,
		`{"status":"done","retry_after_ms":-1}`, `{"status":"done","used":{"tokens":-1}}`} {
		s.ask("PUT", "/v1/permits/fast/calls?permit=x", body, 400)
	}
	s.ask("DELETE", "/v1/permits/fast/calls?permit=x", "", 204)
	s.ask("DELETE", "/v1/permits/fast/calls", "", 400)
}

func (s *server) keys() {
	const acme = "/v1/policies/fast/keys/acme"
	s.ask("PUT", acme+"?dry_run=1", `{"outflow":"5/s"}`, 200)
	s.ask("PUT", acme, `{"outflow":"5/s","peak":"6/s","burst":2,"concurrency":2}`, 200)
	s.ask("PUT", acme, `{"outflow":"5/s"}`, 412, `If-Match: "1"`)
	s.ask("PUT", "/v1/policies/signup/keys/a", `{"outflow":"5/s"}`, 409)
	s.ask("PATCH", "/v1/policies/signup/keys/a", `{"outflow":"5/s"}`, 409)
	s.ask("PATCH", acme, `{"burst":null}`, 200)
	s.ask("PUT", "/v1/policies/none/keys/acme", `{"burst":3}`, 404)
	s.ask("PATCH", "/v1/policies/none/keys/acme", `{"burst":3}`, 404)
	s.ask("PATCH", acme, `{"burst":3}`, 412, `If-Match: "1"`)
	s.ask("PATCH", acme, `[]`, 415, "Content-Type: text/plain")
	r, _ := s.send("GET", acme, "")
	s.ask("GET", acme, "", 304, "If-None-Match: "+r.Header.Get("ETag"))
	s.ask("GET", acme, "", 200)
	s.ask("GET", "/v1/policies/none/keys/acme", "", 404)
	s.ask("PUT", "/v1/policies/fast/keys/", `{"concurrency":1}`, 200)
	s.ask("GET", "/v1/policies/fast/keys?limit=1", "", 200)
	s.ask("GET", "/v1/policies/none/keys", "", 404)
	s.ask("DELETE", acme, "", 412, `If-Match: "1"`)
	s.ask("DELETE", acme, "", 200)
	s.ask("DELETE", "/v1/policies/none/keys/acme", "", 404)
}

func (s *server) buckets() {
	s.ask("GET", "/v1/buckets?limit=1", "", 200)
	s.ask("GET", "/v1/buckets?limit=0", "", 400)
	s.ask("GET", "/v1/buckets?by=refused", "", 200)
	s.ask("GET", "/v1/buckets?by=age", "", 200)
	s.ask("GET", "/v1/buckets/slow?limit=1", "", 200)
	s.ask("GET", "/v1/buckets/none", "", 404)
	s.ask("GET", "/v1/buckets/slow/a/b", "", 200)
	s.ask("GET", "/v1/buckets/none/a", "", 404)
	s.ask("POST", "/v1/purge/other/a", "", 200)
	s.ask("POST", "/v1/purge/none/a", "", 404)
}

func (s *server) deadLetters() {
	s.ask("GET", "/v1/dead", "", 200)
	s.ask("GET", "/v1/dead?limit=1", "", 400)
	s.ask("GET", "/v1/minutes/fast", "", 200)
	s.ask("GET", "/v1/minutes/none", "", 404)
	s.ask("GET", "/v1/dead/fast?limit=1", "", 200)
	s.ask("GET", "/v1/dead/none", "", 404)
	s.ask("GET", "/v1/history/fast?limit=1", "", 200)
	s.ask("GET", "/v1/history/fast/b?before=9", "", 200)
	s.ask("GET", "/v1/history/fast?before=x", "", 400)
	s.ask("GET", "/v1/history/none", "", 404)
	s.ask("GET", "/v1/history/none/a", "", 404)
	s.ask("DELETE", "/v1/dead/none", "", 404)
	s.ask("GET", "/v1/audit?limit=5", "", 200)
	s.ask("GET", "/v1/audit?before=x", "", 400)
	s.ask("GET", "/v1/audit/fast", "", 200)
	s.ask("GET", "/v1/audit/NONE", "", 404)
	s.ask("GET", "/v1/dead/fast/1", "", 200)
	s.ask("GET", "/v1/dead/fast/99", "", 404)
	s.ask("POST", "/v1/dead/fast/1/replay", "", 202)
	s.ask("POST", "/v1/dead/fast/99/replay", "", 404)
	s.until("/v1/dead/fast", `"id":3`)
	s.ask("POST", "/v1/dead/fast/replay", "", 200)
	s.ask("POST", "/v1/dead/none/replay", "", 404)
	s.until("/v1/dead/fast", `"id":5`)

	s.ask("PUT", "/v1/policies/full", `{"algorithm":"leaking_bucket","outflow":"1000/s",`+
		`"capacity":1}`, 201)
	s.ask("POST", "/v1/jobs/full/a", "", 202, "Penstock-Deadline: 1ms")
	s.until("/v1/dead/full", `"id":1`)
	s.until("/v1/buckets/full/a", `"depth":0`)
	s.ask("POST", "/v1/jobs/full/a", "", 202)
	s.ask("POST", "/v1/dead/full/1/replay", "", 429)
	s.ask("DELETE", "/v1/policies/full?purge=1", "", 200)
	s.ask("POST", "/v1/dead/full/1/replay", "", 409)
	s.ask("POST", "/v1/dead/full/replay", "", 409)

	s.ask("POST", "/v1/dead/fast/replay?reason=attempts&before=1d", "", 200)
	s.ask("POST", "/v1/dead/fast/replay?reason=nope", "", 400)
	s.ask("DELETE", "/v1/dead/fast?reason=deadline&key=b&since=2026-01-01T00:00:00Z", "", 200)
	s.ask("DELETE", "/v1/dead/fast?before=soon", "", 400)
	s.ask("DELETE", "/v1/dead/fast/5", "", 200)
	s.ask("DELETE", "/v1/dead/fast/99", "", 404)
	s.ask("DELETE", "/v1/dead/fast?through=1", "", 200)
	s.ask("DELETE", "/v1/dead/fast?through=0", "", 400)
}

func (s *server) happenings() {
	s.ask("GET", "/v1/stats", "", 200)
	published := make(chan struct{})
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-published:
				return
			case <-tick.C:
				s.send("POST", "/v1/jobs/fast/c", "")
			}
		}
	}()
	s.ask("GET", "/v1/events?policy=fast&type=started,done", "", 200)
	close(published)
	s.ask("GET", "/v1/events?type=nope", "", 400)
	s.until("/v1/stats", `"rate"`)
	s.ask("POST", "/v1/check/signup/hot", "", 200)
	s.until("/v1/stats?keys=1", `"keys":[{"key":"hot"`)
	s.ask("GET", "/v1/stats?keys=1", "", 200)
	s.ask("GET", "/v1/drainers", "", 200)
	s.ask("GET", "/v1/client", "", 200)
	s.ask("GET", "/healthz", "", 200)
	s.ask("GET", "/readyz", "", 200)
	s.ask("GET", "/readyz?verbose", "", 200)
	s.ask("GET", "/readyz?verbose", "", 200, "Accept: application/json")
	s.ask("GET", "/metrics", "", 200)
	s.ask("GET", "/openapi.yaml", "", 200)
}

func (s *server) deletion() {
	s.ask("DELETE", "/v1/policies/slow", "", 412, `If-Match: "1"`)
	s.ask("DELETE", "/v1/policies/slow", "", 202)
	s.ask("DELETE", "/v1/policies/slow?purge=1", "", 200)
	s.ask("DELETE", "/v1/policies/fast?purge=1", "", 202)
	s.ask("DELETE", "/v1/policies/none", "", 404)
	s.ask("DELETE", "/v1/policies/filed", "", 409)
}

func (s *server) wrong() {
	for _, p := range s.d.paths {
		for method, o := range p.item.Operations() {
			path := request(s.t, method, p.template).URL.Path
			if open := o.Security != nil && len(*o.Security) == 0; open {
				s.wrongMethod(path)
				continue
			}
			s.unfit(method, path)
		}
	}
	s.ask("POST", "/v1/jobs/fast/a", strings.Repeat("x", 1<<20+1), 413)
}

// unavailable calls the operations that need NATS, without a NATS server. Each one waits, so they
// run concurrently.
func (s *server) unavailable() {
	var asking sync.WaitGroup
	defer asking.Wait()
	s.ask("GET", "/readyz?verbose", "", 503)
	s.ask("GET", "/readyz?verbose", "", 503, "Accept: application/json")
	for _, p := range s.d.paths {
		for method, o := range p.item.Operations() {
			if _, described := response(o, 503); described == nil ||
				o.OperationID == "listenToEvents" {
				continue
			}
			body := ""
			if o.RequestBody != nil && strings.Contains(p.template, "policies") {
				body = `{}`
			}
			path := request(s.t, method, p.template).URL.Path
			asking.Go(func() { s.ask(method, path, body, 0) })
		}
	}
}

func (d *description) check(t *testing.T, name, text string) {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Errorf("%s: %v: %s", name, err, text)
		return
	}
	if err := fits(d.model.Components.Schemas[name], value); err != nil {
		t.Errorf("openapi.yaml: not a %s: %v\n%s", name, err, text)
	}
}
