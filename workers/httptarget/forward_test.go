package httptarget

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

// Plain NATS publishers, and jobs accepted before a change of the policy, bypass the admitter's
// check.
func TestAJobThatAsksForMoreThanItsPolicyAllowsIsNotSent(t *testing.T) {
	var served atomic.Int64
	var method atomic.Value
	base := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		served.Add(1)
		method.Store(r.Method)
	})
	prefix := "/v1"
	handle, err := New(
		Options{
			Client: Client()})(
		inforce.Entry{Policy: policy.Policy{Name: "api",
			Target: &policy.Target{HTTP: &policy.HTTPTarget{
				URL: base, Forward: policy.Forward{"X-Tenant"}, Methods: []string{"PUT", "POST"},
				PathPrefix: &prefix}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Penstock-Forward-Host": "internal", "Penstock-Forward-Nats-Rollup": "all",
		"Penstock-Forward-X-Forwarded-For": "10.0.0.1",
		"Penstock-Forward-Authorization":   "Bearer t", "Penstock-Forward-Connection": "x-tenant",
		"Penstock-Method": "DELETE",
		"Penstock-Path":   "/admin", "penstock-path": "/v1/..;/admin",
	} {
		if err := handle(within(t),
			workers.Job{Header: nats.Header{name: {value}}}); verdict(err) != "permanent" {
			t.Errorf("%s: %s: %v", name, value, err)
		}
	}
	if served.Load() > 0 {
		t.Errorf("%d requests were sent", served.Load())
	}
	allowed := nats.Header{"penstock-forward-x-tenant": {"a"}, "Penstock-Path": {"/v1/x"}}
	if err := handle(within(t), workers.Job{Header: allowed}); err != nil ||
		method.Load() != "PUT" {
		t.Errorf("what the policy allows: %v, %v", method.Load(), err)
	}
}

// Targets need the encoding to read the body.
func TestATargetGetsTheTypeAndTheEncodingOfTheBody(t *testing.T) {
	got := make(chan http.Header, 1)
	base := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r.Header
	})
	for _, c := range []struct {
		header         nats.Header
		body           string
		kind, encoding string
	}{
		{nil, `{"amount":5}`, "application/json", ""},
		{nil, "plain", "", ""},
		{nats.Header{"Content-Type": {"text/csv"}, "content-encoding": {"gzip"}}, `{}`, "text/csv",
			"gzip"},
		{nats.Header{"Penstock-Forward-Content-Type": {"text/csv"}}, `{}`, "text/csv", ""},
	} {
		if err := handlerFor(t, base)(within(t),
			workers.Job{Header: c.header, Body: []byte(c.body)}); err != nil {
			t.Fatal(err)
		}
		if h := <-got; h.Get("Content-Type") != c.kind || h.Get("Content-Encoding") != c.encoding {
			t.Errorf("%q with %v arrived with %v", c.body, c.header, h)
		}
	}
}
