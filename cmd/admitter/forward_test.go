package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// Producers cannot set Host, X-Forwarded-For, or another job's Nats-Msg-Id, which once lost a job
// between chained policies.
func TestProducersCannotSetHeadersOfNATSTargets(t *testing.T) {
	arrived := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived <- fmt.Sprintf("%s %s %s %s", r.Method, r.URL.Path, r.Header.Get("Content-Type"),
			body)
	}))
	defer server.Close()
	p := launch(t, "--drain", "--config", configure(t, fmt.Sprintf(`
drain: {lease: 1s}
policies:
  - {name: first, algorithm: leaking_bucket, outflow: 100/s, capacity: 30, target: {nats: {subject: penstock.jobs.last.k}}}
  - {name: last, algorithm: leaking_bucket, outflow: 100/s, capacity: 30, target: {http: {url: %q}}}
  - {name: narrow, algorithm: leaking_bucket, outflow: 100/s, capacity: 30, target: {http: {url: %q, forward: [X-Tenant], methods: [PUT], path_prefix: /v1}}}
`, server.URL, server.URL))).ready()
	nc, err := nats.Connect(p.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()

	const form = "application/x-www-form-urlencoded"
	for path, header := range map[string][2]string{
		"/v1/jobs/first/a":  {"Penstock-Forward-Nats-Msg-Id", "k order-1"},
		"/v1/jobs/first/b":  {"Penstock-Forward-Penstock-Key", "x"},
		"/v1/jobs/last/a":   {"Penstock-Forward-Host", "internal"},
		"/v1/jobs/last/b":   {"Penstock-Forward-X-Forwarded-For", "10.0.0.1"},
		"/v1/jobs/last/c":   {"Penstock-Path", "/v1/..;/admin"},
		"/v1/jobs/narrow/a": {"Penstock-Forward-Authorization", "Bearer t"},
		"/v1/jobs/narrow/b": {"Penstock-Path", "/admin"},
		"/v1/jobs/narrow/c": {"Penstock-Method", "DELETE"},
	} {
		if got := p.send("POST", path, "x", header[0], header[1]); got.status != 400 {
			t.Errorf("%s with %v: %+v", path, header, got)
		}
	}

	// Plain NATS publishers bypass the admitter's checks.
	for _, m := range []*nats.Msg{
		{Subject: "penstock.jobs.first.a",
			Header: nats.Header{"Penstock-Forward-Nats-Msg-Id": {"k order-1"}}, Data: []byte("x")},
		{Subject: "penstock.jobs.narrow.a", Header: nats.Header{"Penstock-Path": {"/admin"}},
			Data: []byte("x")},
	} {
		if _, err := nc.RequestMsg(m, waittest.Patience()); err != nil {
			t.Fatal(err)
		}
	}
	for policy, reason := range map[string]string{"first": "malformed", "narrow": "permanent"} {
		eventually(t, "it is a dead letter", func() bool {
			_, body := p.get("/v1/dead/" + policy)
			var page struct{ Letters []struct{ Reason string } }
			return json.Unmarshal([]byte(body), &page) == nil && len(page.Letters) == 1 &&
				page.Letters[0].Reason == reason
		})
	}

	// Only permitted headers arrive.
	p.send("POST", "/v1/jobs/first/a", `{"amount":1}`, "Content-Type", form)
	if got := <-arrived; got != `POST / application/json {"amount":1}` {
		t.Errorf("the chained job arrived as %q", got)
	}
	p.send("POST", "/v1/jobs/narrow/a", "a=1", "Content-Type", form, "Penstock-Forward-X-Tenant",
		"a", "Penstock-Path", "/v1/x")
	if got := <-arrived; got != "PUT /v1/x "+form+" a=1" {
		t.Errorf("the job of the narrow policy arrived as %q", got)
	}

	// No policy may target Penstock's own subjects.
	put :=
		`{"name":"sly","algorithm":"leaking_bucket","outflow":"1/s","capacity":1,"target":{"nats":{"subject":"penstock.admitted.last.k"}}}`
	if got := p.send("PUT", "/v1/policies/sly", put, "Content-Type",
		"application/json"); got.status != 400 {
		t.Errorf("a policy that sends its jobs past a door: %+v", got)
	}
}
