package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

const misnamed = `
outbound:
  - listen: '127.0.0.1:0'
    routes:
      - {prefix: /pay, upstream: 'http://127.0.0.1:1', policy: stripee}
      - {prefix: /llm, upstream: 'http://127.0.0.1:1', policy: llm, tokens: tokns}
      - {prefix: /own, upstream: 'https://127.0.0.1:1', policy: stripe, tls: {ca: '%s'}}
policies:
  - {name: stripe, algorithm: leaking_bucket, outflow: 100/s, capacity: 10}
  - {name: llm, algorithm: leaking_bucket, outflow: 100/s, capacity: 10, limits: [{name: budget,
     algorithm: sliding_log, limit: 1000, window: 1m, cost: tokens}]}
`

// Policies and files may come later, so the routes stay valid.
func TestARouteIsReportedUntilItsPolicyAndItsFilesAreThere(t *testing.T) {
	t.Parallel()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	file := configure(t, fmt.Sprintf(misnamed, ca))
	const want = `until there is a policy "stripee"; did you mean stripe?`
	text, err := exec.Command(proctest.Program("admitter"), "validate", file).CombinedOutput()
	for _, want := range []string{"warning: outbound[0].routes[0].policy: requests get 502 " + want,
		`warning: outbound[0].routes[1].tokens: no limit of policy llm has the cost "tokns"`,
		"did you mean tokens?", "the configuration is valid",
		"warning: outbound[0].routes[2].tls: requests get 502 until its files can be read: open " +
			ca} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v\n%s\nwant %s", err, text, want)
		}
	}
	p := launch(t, "--drain", "--config", file).ready()
	const metric = `penstock_outbound_route_faults{fault="policy",policy="stripee"} 1`
	p.says(metric)
	p.says(`penstock_outbound_route_faults{fault="cost",policy="llm"} 1`)
	const unread = `penstock_outbound_route_faults{fault="tls",policy="stripe"} 1`
	p.says(unread)
	eventually(t, "/readyz is no, or does not name the policy and the file", func() bool {
		status, body := p.get("/readyz?verbose")
		return status == 200 && strings.Contains(body, want) && strings.Contains(body, ca)
	})
	p.logs(3, "a route of the proxy cannot work as configured")
	if err := os.Link(certtest.New(t).File, ca); err != nil {
		t.Fatal(err)
	}
	r := p.ask("PUT", "/v1/policies/stripee", `{"algorithm":"leaking_bucket","outflow":"1/s",
		"capacity":5}`)
	if r.status != 201 {
		t.Fatal(fmt.Sprint(r))
	}
	eventually(t, "the metric says that the policy or the file is missing", func() bool {
		_, text := p.get("/metrics")
		return !strings.Contains(text, metric) && !strings.Contains(text, unread)
	})
	if _, body := p.get("/readyz?verbose"); strings.Contains(body, want) ||
		strings.Contains(body, ca) {
		t.Errorf("the policy and the file exist, and /readyz: %s", body)
	}
	p.stop()
	if text := p.Log.String(); !strings.Contains(text, "the route works as configured") {
		t.Errorf("the end of the fault is not logged:\n%s", text)
	}
}
