//go:build unix

package e2e

import (
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

func TestPoliciesShareALimit(t *testing.T) {
	const jobs = 120
	target := &limited{jobs: map[string]bool{}}
	server := httptest.NewServer(target)
	defer server.Close()
	c := newCluster(t, `  - name: import
    algorithm: leaking_bucket
    capacity: 1000
    window_margin: 250ms # a busy machine is as a slow network
    target: {http: {url: "`+server.URL+`"}}
    limits: [{shared: account}]
  - name: mail
    algorithm: leaking_bucket
    outflow: 50/s
    capacity: 1000
    window_margin: 250ms
    target: {http: {url: "`+server.URL+`"}}
    limits: [{shared: account}]
shared_limits:
  - {name: account, algorithm: sliding_log, limit: 20, window: 2s}`)
	c.admitter()
	js, err := c.connect().JetStream(nats.MaxWait(waittest.Patience()))
	if err != nil {
		t.Fatal(err)
	}
	for range jobs / 2 {
		for _, policy := range []string{"import", "mail"} {
			if _, err := js.Publish("penstock.jobs."+policy+".key", nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	auditor := c.auditor()
	first, second := c.drainer(), c.drainer()
	for i, owner := range []interface{ Kill() }{first, second} {
		c.until("some jobs are done", func() bool { return target.done() > (i+1)*jobs/4 })
		owner.Kill()
		c.drainer()
	}
	for n := target.done(); n < jobs; n = target.done() {
		c.until("more jobs are done", func() bool { return target.done() > n })
	}

	for _, b := range auditor.Breaches() {
		t.Errorf("%s, key %s: %s", b.Policy, b.Key.Raw(), b)
	}
	// Their turns are equal, so each alone would have about ten.
	seen, known := auditor.Bucket("import", "key")
	if !known || len(seen.Worst) != 1 || seen.Worst[0].Units < 15 {
		t.Errorf("the auditor saw %+v: want most of 20 starts of both policies", seen)
	}
	slices.SortFunc(target.arrivals, func(a, b arrival) int { return a.at.Compare(b.at) })
	one := func(arrival) int { return 1 }
	if v := target.violations(2*time.Second, 20, one); v != 0 {
		t.Errorf("%d violations", v)
	}
}
