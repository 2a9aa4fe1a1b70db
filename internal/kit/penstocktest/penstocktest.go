// Package penstocktest opens, runs and asks a [penstock.Penstock] in tests.
package penstocktest

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
)

// Paced returns a policy whose jobs start at a rate per second and key.
func Paced(name string, perSecond, capacity int64) policy.Policy {
	return policy.Policy{Name: name,
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: capacity,
			Outflow: algorithms.Rate{Count: perSecond, Per: time.Second}}}
}

// Door returns a policy that decides only: two units a day and key.
func Door(name string) policy.Policy {
	return policy.Policy{Name: name, Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 2,
		Window: policy.Duration(24 * time.Hour)}}
}

// Open opens a [penstock.Penstock] on an embedded server in a directory of the test, unless the
// options name another, and closes it with the test.
func Open(t *testing.T, o penstock.Options) *penstock.Penstock {
	t.Helper()
	if o.URL == "" && o.Server.Dir == "" {
		o.Server.Dir = t.TempDir()
	}
	p, err := penstock.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Run runs p until the test ends or stop is called, which returns what Run returned.
func Run(t *testing.T, p *penstock.Penstock) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(cancel)
	select {
	case <-p.Ready():
	case err := <-ended:
		t.Fatalf("Run returned %v", err)
	case <-time.After(waittest.Patience()):
		t.Fatal("not ready in time")
	}
	return func() error {
		cancel()
		return waittest.Receive(t, ended)
	}
}

// Ask sends a request to p's handler, with headers as pairs of name and value.
func Ask(t *testing.T, p *penstock.Penstock, method, path, body string,
	header ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}
