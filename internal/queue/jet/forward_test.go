package jet

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

// "Penstock-Forward-Nats-Rollup: all" once emptied a target's stream.
func TestForbiddenForwardsMakeAJobMalformed(t *testing.T) {
	for _, name := range []string{"Nats-Rollup", "nats-msg-id", "Penstock-Job", "Status", "Host",
		"Connection", "x-forwarded-for",
		"Proxy-Authorization", "Transfer-Encoding"} {
		if a := job.ParseHeader(nats.Header{"Penstock-Forward-" + name: {"x"}},
			time.Now()); a.Malformed == nil {
			t.Errorf("%s is forwarded", name)
		}
	}
	for _, method := range []string{"CONNECT", "connect"} {
		if a := job.ParseHeader(nats.Header{"Penstock-Method": {method}},
			time.Now()); a.Malformed == nil {
			t.Errorf("%s is a job's method", method)
		}
	}
}

// Servers and proxies may interpret such paths as parent directories or cut them.
func TestAmbiguousPaths(t *testing.T) {
	for _, path := range []string{
		`/a\..\b`, `/a%5c..%5Cb`, "/a/..;/b", "/a/..;x=1/b", "/a/.;/b", "/a/%2e%2e%3b/b", "/a%00",
		"/a%00.png", "/a%0d%0ab", "/a%7f",
		"/a/%252e%252e/b", "/a/..%252fb", "/a%255c..%255cb", "/a/.. /b", "/a/..%20/b", "/a/.%09./b",
		"/a#b", "/#",
	} {
		if _, err := job.ParsePath(path); err == nil {
			t.Errorf("%q is a path", path)
		}
	}
	for _, path := range []string{"/a;v=1/b", "/projects/group%2Fproject", "/a..b;c", "/100%25",
		"/%25zz", "/a%20b?x=%00&y=..;/"} {
		if _, err := job.ParsePath(path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestTheTargetOfAPolicyLimitsRequests(t *testing.T) {
	prefix := "/v1"
	http := &policy.Target{HTTP: &policy.HTTPTarget{Forward: policy.Forward{"X-Tenant"},
		Methods: []string{"POST"}, PathPrefix: &prefix}}
	narrowed := &policy.Target{HTTP: &policy.HTTPTarget{Methods: []string{"POST"}}}
	wide := &policy.Target{HTTP: &policy.HTTPTarget{}}
	listed := &policy.Target{HTTP: &policy.HTTPTarget{PathPrefix: &prefix,
		Forward: policy.Forward{"X-Original-URL"}}}
	nothing := &policy.Target{NATS: &policy.NATSTarget{Forward: policy.Forward{}}}
	for _, c := range []struct {
		target      *policy.Target
		name, value string
		refused     bool
	}{
		{http, "penstock-forward-x-tenant", "a", false},
		{http, "Penstock-Forward-Authorization", "a", true},
		{http, "penstock-method", "post", false},
		{http, "Penstock-Method", "DELETE", true},
		{http, "Penstock-Path", "/v1/a", false},
		{http, "Penstock-Path", "/v2", true},
		{http, "Content-Type", "a", false},
		{narrowed, "Penstock-Forward-X-HTTP-Method-Override", "DELETE", true},
		{narrowed, "Penstock-Forward-X_Original_Url", "/admin", true},
		{narrowed, "Penstock-Forward-X-Tenant", "a", false},
		{wide, "Penstock-Forward-X-HTTP-Method-Override", "DELETE", false},
		{listed, "Penstock-Forward-X-Original-URL", "/v1/a", false},
		{nothing, "Penstock-Forward-X-Tenant", "a", true},
		{nothing, "Penstock-Method", "DELETE", false},
		{nil, "Penstock-Forward-X-Tenant", "a", false},
		{nil, "Penstock-Forward-Nats-Rollup", "all", true},
	} {
		err := job.CheckTarget(c.target, nats.Header{c.name: {c.value}})
		if (err != nil) != c.refused {
			t.Errorf("%s: %s: %v", c.name, c.value, err)
		}
	}
	if err := job.CheckTarget(http, nil); err != nil {
		t.Errorf("a job that asks for nothing: %v", err)
	}
}
