package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/proctest"
)

const misnamed = `
outbound:
  - listen: '127.0.0.1:0'
    routes:
      - {prefix: /pay, upstream: 'http://127.0.0.1:1', policy: stripee}
      - {prefix: /llm, upstream: 'http://127.0.0.1:1', policy: llm, tokens: tokns}
policies:
  - {name: stripe, algorithm: leaking_bucket, outflow: 100/s, capacity: 10}
  - {name: llm, algorithm: leaking_bucket, outflow: 100/s, capacity: 10, limits: [{name: budget,
     algorithm: sliding_log, limit: 1000, window: 1m, cost: tokens}]}
`

// A policy may come later, so the route stays valid.
func TestARouteWithoutItsPolicyIsReportedUntilThePolicyComes(t *testing.T) {
	t.Parallel()
	file := configure(t, misnamed)
	const want = `until there is a policy "stripee"; did you mean stripe?`
	text, err := exec.Command(proctest.Program("admitter"), "validate", file).CombinedOutput()
	for _, want := range []string{"warning: outbound[0].routes[0].policy: requests get 502 " + want,
		`warning: outbound[0].routes[1].tokens: no limit of policy llm has the cost "tokns"`,
		"did you mean tokens?", "the configuration is valid"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v\n%s\nwant %s", err, text, want)
		}
	}
	p := launch(t, "--drain", "--config", file).ready()
	const metric = `penstock_outbound_route_faults{fault="policy",policy="stripee"} 1`
	p.says(metric)
	p.says(`penstock_outbound_route_faults{fault="cost",policy="llm"} 1`)
	eventually(t, "/readyz is no, or does not name the policy", func() bool {
		status, body := p.get("/readyz?verbose")
		return status == 200 && strings.Contains(body, want)
	})
	p.logs(1, "a route of the proxy does not fit the policies")
	r := p.ask("PUT", "/v1/policies/stripee", `{"algorithm":"leaking_bucket","outflow":"1/s",
		"capacity":5}`)
	if r.status != 201 {
		t.Fatal(fmt.Sprint(r))
	}
	eventually(t, "the metric says that the policy is missing", func() bool {
		_, text := p.get("/metrics")
		return !strings.Contains(text, metric)
	})
	if _, body := p.get("/readyz?verbose"); strings.Contains(body, want) {
		t.Errorf("the policy exists, and /readyz: %s", body)
	}
	p.stop()
	if text := p.Log.String(); !strings.Contains(text, "the route fits the policies") {
		t.Errorf("the end of the fault is not logged:\n%s", text)
	}
}
