package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// attempt is a forbidden request. It is refused, or its answer reveals no data of others.
type attempt struct {
	as, method, path, body string
	header                 []string
	status                 int
}

// attempts are over HTTP, by tokens with their clients' names: red's clients with blue ones, and
// clients of red's tenant "mine" with the tenant "other".
var attempts = []attempt{
	{as: "", method: "GET", path: "/v1/policies", status: 401},
	{as: "guessed", method: "GET", path: "/v1/policies", status: 401},
	{as: "", method: "GET", path: "/v1/policies?token=red", status: 401},
	{as: "", method: "GET", path: "/v1/events", status: 401},
	{as: "", method: "GET", path: "/metrics", status: 401},
	{as: "", method: "POST", path: "/v1/jobs:batch", body: `{"policy":"red","key":"mine.1"}`,
		status: 401},
	{as: "", method: "POST", path: "/v1/jobs/red/mine.1?wait=1s", status: 401},
	{as: "", method: "GET", path: "/v1/policies", status: 401,
		header: []string{"Authorization", "Basic cmVkOnJlZA=="}},
	{as: "", method: "GET", path: "/v1/policies", status: 401,
		header: []string{"Authorization", "Bearer"}},
	{as: "", method: "GET", path: "/v1/policies", status: 401,
		header: []string{"X-Forwarded-User", "root"}},
	{as: "", method: "GET", path: "/console/main.js", status: 200},

	// With the right to submit for the tenant "mine".
	{as: "submits", method: "POST", path: "/v1/jobs/blue/acme", status: 403},
	{as: "submits", method: "POST", path: "/v1/jobs/red/other", status: 403},
	{as: "submits", method: "POST", path: "/v1/jobs/red/mine", status: 403},
	{as: "submits", method: "POST", path: "/v1/jobs/red/../blue/acme"},
	{as: "submits", method: "POST", path: "/v1/jobs/red/..%2fblue%2facme", status: 403},
	{as: "submits", method: "POST", path: "/v1/jobs//red/mine.1"},
	{as: "submits", method: "POST", path: "/v1/jobs/RED/mine.1", status: 403},
	{as: "submits", method: "POST", path: "/v1/jobs/red/%2A", status: 403},
	{as: "submits", method: "POST", path: "/v1/jobs/red/%3E", status: 403},
	{as: "submits", method: "POST", path: "/v1/jobs/blue/acme?wait=5s", status: 403},
	{as: "submits", method: "POST", path: "/v1/jobs:batch", status: 200,
		body: `{"policy":"blue","key":"acme"}` + "\n" + `{"policy":"red","key":"other"}` + "\n" +
			`{"policy":"red-hooks","key":"mine.1"}`},
	{as: "submits", method: "GET", path: "/v1/jobs/red/mine.1", status: 403},
	{as: "submits", method: "GET", path: "/v1/jobs/red:1?body=1", status: 403},
	{as: "submits", method: "GET", path: "/v1/buckets/red/mine.1", status: 403},
	{as: "submits", method: "GET", path: "/v1/events", status: 403},
	{as: "submits", method: "GET", path: "/v1/stats", status: 403},
	{as: "submits", method: "GET", path: "/v1/history/red/mine.1", status: 403},
	{as: "submits", method: "GET", path: "/v1/dead/red", status: 403},
	{as: "submits", method: "POST", path: "/v1/check/door/mine.1", status: 403},
	{as: "submits", method: "DELETE", path: "/v1/jobs/red:2", status: 403},
	{as: "submits", method: "PATCH", path: "/v1/jobs/red:2?run=1", status: 403},
	{as: "submits", method: "PATCH", path: "/v1/jobs/red:2?front=1", status: 403},
	{as: "submits", method: "PATCH", path: "/v1/jobs/red:2?priority=9", status: 403},
	{as: "submits", method: "POST", path: "/v1/cancel/red/mine.1?tag=t", status: 403},
	{as: "submits", method: "PUT", path: "/v1/policies/red", status: 403},
	{as: "submits", method: "POST", path: "/v1/schedules/red/other?name=x", status: 403},
	{as: "submits", method: "POST", path: "/v1/schedules/blue/acme?name=x", status: 403},
	{as: "submits", method: "PATCH", path: "/v1/schedules/red/mine.1?name=x&paused=1", status: 403},
	{as: "submits", method: "DELETE", path: "/v1/schedules/red/mine.1?name=x", status: 403},
	{as: "submits", method: "GET", path: "/v1/schedules/red", status: 403},
	{as: "submits", method: "GET", path: "/v1/schedules", status: 403},
	{as: "submits", method: "POST", path: "/v1/run/red/mine.1?name=x", status: 403},

	// Job headers that drainers act on.
	{as: "submits", method: "POST", path: "/v1/jobs/red-hooks/mine.1", status: 409},
	{as: "submits", method: "POST", path: "/v1/schedules/red-hooks/mine.1", body: "x",
		header: []string{"Penstock-Schedule", "@every 1s", "Penstock-Schedule-Name", "x"}},
	calls("http://127.0.0.1:1/"), calls("http://localhost/"), calls("http://a.localhost/"),
	calls("http://[::1]/"), calls("http://0.0.0.0/"), calls("http://[::ffff:127.0.0.1]/"),
	calls("http://169.254.169.254/latest/meta-data"), calls("http://[::ffff:169.254.169.254]/"),
	calls("http://[fe80::1]/"), calls("http://[fd00:ec2::254]/"), calls("http://a:b@target.test/"),
	calls("file:///etc/passwd"), calls("gopher://target.test/"), calls("//target.test/"),
	calls("http:///"), calls("nats://127.0.0.1:4222/"),
	asks("Penstock-Path", "http://target.test/"), asks("Penstock-Path", "//target.test/"),
	asks("Penstock-Path", "/v1/../admin"), asks("Penstock-Path", "/admin"),
	asks("Penstock-Method", "DELETE"), asks("Penstock-Forward-Authorization", "Bearer x"),
	asks("Penstock-Forward-Host", "target.test"), asks("Penstock-Wait", "1000h"),
	asks("Penstock-Tag", strings.Repeat("t", 65)),

	// With the right to check.
	{as: "checks", method: "POST", path: "/v1/check/door/other", status: 403},
	{as: "checks", method: "DELETE", path: "/v1/check/door/other", status: 403},
	{as: "checks", method: "GET", path: "/v1/check/blue/acme", status: 403},
	{as: "checks", method: "POST", path: "/v1/jobs/door/mine.1", status: 403},
	{as: "checks", method: "GET", path: "/v1/policies", status: 403},

	// With the right to read for the tenant.
	{as: "reads", method: "GET", path: "/v1/jobs/red/other", status: 403},
	{as: "reads", method: "GET", path: "/v1/jobs/red/other?tag=t", status: 403},
	{as: "reads", method: "GET", path: "/v1/jobs/red:2?body=1", status: 403},
	{as: "reads", method: "GET", path: "/v1/jobs/blue:2?body=1", status: 403},
	{as: "reads", method: "GET", path: "/v1/dead/red", status: 403},
	{as: "reads", method: "GET", path: "/v1/dead/red/1", status: 403},
	{as: "reads", method: "GET", path: "/v1/dead/blue/1", status: 403},
	{as: "reads", method: "GET", path: "/v1/history/red", status: 403},
	{as: "reads", method: "GET", path: "/v1/history/red/other", status: 403},
	{as: "reads", method: "GET", path: "/v1/buckets/red", status: 403},
	{as: "reads", method: "GET", path: "/v1/buckets/blue/acme", status: 403},
	{as: "reads", method: "GET", path: "/v1/policies/red/keys", status: 403},
	{as: "reads", method: "GET", path: "/v1/policies/blue", status: 403},
	{as: "reads", method: "GET", path: "/v1/schedules/red", status: 403},
	{as: "reads", method: "GET", path: "/v1/drainers", status: 403},
	{as: "reads", method: "GET", path: "/metrics", status: 403},
	{as: "reads", method: "GET", path: "/v1/buckets", status: 200},
	{as: "reads", method: "GET", path: "/v1/policies", status: 200},
	{as: "reads", method: "GET", path: "/v1/stats?keys=10", status: 200},
	{as: "reads", method: "POST", path: "/v1/jobs/red/mine.1", status: 403},
	{as: "reads", method: "DELETE", path: "/v1/jobs/red:2", status: 403},
	{as: "reads", method: "PATCH", path: "/v1/jobs/red:2?run=1", status: 403},

	// With the right to operate for the tenant.
	{as: "operates", method: "DELETE", path: "/v1/jobs/red:2", status: 403},
	{as: "operates", method: "DELETE", path: "/v1/jobs/blue:2", status: 403},
	{as: "operates", method: "PATCH", path: "/v1/jobs/red:2?run=1", status: 403},
	{as: "operates", method: "PATCH", path: "/v1/jobs/blue:2?front=1", status: 403},
	{as: "operates", method: "PATCH", path: "/v1/jobs/blue:2?deadline=1s", status: 403},
	{as: "operates", method: "POST", path: "/v1/cancel/red?tag=t", status: 403},
	{as: "operates", method: "POST", path: "/v1/cancel/red/other?tag=t", status: 403},
	{as: "operates", method: "POST", path: "/v1/cancel/blue?tag=t", status: 403},
	{as: "operates", method: "POST", path: "/v1/purge/red/other", status: 403},
	{as: "operates", method: "POST", path: "/v1/purge/blue/acme", status: 403},
	{as: "operates", method: "POST", path: "/v1/pause/red", status: 403},
	{as: "operates", method: "POST", path: "/v1/pause/red/other", status: 403},
	{as: "operates", method: "POST", path: "/v1/resume/blue", status: 403},
	{as: "operates", method: "PUT", path: "/v1/policies/red/keys/other", body: `{"outflow":"1/s"}`,
		status: 403},
	{as: "operates", method: "PATCH", path: "/v1/policies/blue/keys/acme", status: 403},
	{as: "operates", method: "DELETE", path: "/v1/dead/red?key=other", status: 403},
	{as: "operates", method: "DELETE", path: "/v1/dead/red?through=9", status: 403},
	{as: "operates", method: "POST", path: "/v1/dead/red/replay?reason=permanent", status: 403},
	{as: "operates", method: "POST", path: "/v1/dead/blue/replay", status: 403},
	{as: "operates", method: "POST", path: "/v1/dead/red/1/replay", status: 403},
	{as: "operates", method: "DELETE", path: "/v1/dead/blue/1", status: 403},
	{as: "operates", method: "DELETE", path: "/v1/schedules/blue/acme?name=nightly", status: 403},
	{as: "operates", method: "PATCH", path: "/v1/schedules/blue/acme?name=nightly&paused=1",
		status: 403},
	{as: "operates", method: "POST", path: "/v1/run/blue/acme?name=nightly", status: 403},
	{as: "operates", method: "GET", path: "/v1/jobs/red/mine.1", status: 403},
	{as: "operates", method: "PUT", path: "/v1/policies/red", status: 403},

	// With admin rights for red.
	{as: "admins", method: "PUT", path: "/v1/policies/blue", body: aims("http://target.test"),
		status: 403},
	{as: "admins", method: "DELETE", path: "/v1/policies/blue?purge=1", status: 403},
	{as: "admins", method: "PUT", path: "/v1/policies/green", body: aims("http://target.test"),
		status: 403},
	{as: "admins", method: "GET", path: "/v1/policies/red", status: 403},
	{as: "admins", method: "GET", path: "/v1/dead/red/1", status: 403},
	writes(aims("http://127.0.0.1:1")), writes(aims("http://localhost:4222")),
	writes(aims("http://169.254.169.254")), writes(aims("http://[fd00:ec2::254]")),
	writes(aims("file:///etc/passwd")), writes(aims("http://a:b@target.test")),
	writes(`{"algorithm":"leaking_bucket","outflow":"1/s","capacity":9,"target":{"nats":` +
		`{"subject":"penstock.jobs.blue.acme"}}}`),
	writes(`{"algorithm":"leaking_bucket","outflow":"1/s","capacity":9,"target":{"http":{"url":` +
		`"http://target.test","headers":{"X":{"file":"/etc/passwd"}}}}}`),
	writes(`{"algorithm":"leaking_bucket","outflow":"1/s","capacity":9,"target":{"http":{"url":` +
		`"http://target.test","sign":{"hmac_file":"/etc/passwd"}}}}`),
	// outcomes of red's target, signed as blue's
	writes(`{"algorithm":"leaking_bucket","outflow":"1/s","capacity":9,"callbacks":"blue-hooks"}`),

	// Another site's page in an operator's browser.
	page("Sec-Fetch-Site", "cross-site"), page("Sec-Fetch-Site", "same-site"),
	page("Origin", "https://evil.test"), page("Origin", "null"),
	{as: "root", method: "GET", path: "/v1/policies", status: 421,
		header: []string{"Host", "evil.test"}},
}

func calls(url string) attempt { return asks("Penstock-Callback", url) }

func asks(name, value string) attempt {
	return attempt{as: "submits", method: "POST", path: "/v1/jobs/red/mine.1", body: "x",
		header: []string{name, value}, status: 400}
}

func writes(policy string) attempt {
	return attempt{as: "admins", method: "PUT", path: "/v1/policies/red-new", body: policy,
		status: 400}
}

func aims(url string) string {
	return fmt.Sprintf(`{"algorithm":"leaking_bucket","outflow":"1/s","capacity":9,`+
		`"target":{"http":{"url":%q}}}`, url)
}

func page(header ...string) attempt {
	return attempt{as: "root", method: "POST", path: "/v1/purge/blue/acme", header: header,
		status: 403}
}

func TestAttemptsToReachInsideFail(t *testing.T) {
	var asked atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer target.Close()
	const policies = `
policies:
  - name: red
    algorithm: leaking_bucket
    outflow: 1/d
    capacity: 10
    callbacks: red-hooks
    result_retention: 1h
    target: {http: {url: %[1]q, path_prefix: /v1, methods: [POST], forward: [Accept]}}
  - {name: blue, algorithm: leaking_bucket, outflow: 1/d, capacity: 10, target: {http: {url: %[1]q}}}
  - {name: red-hooks, algorithm: leaking_bucket, outflow: 1/s, capacity: 9, target: {http: {url: "{callback}"}}}
  - {name: blue-hooks, algorithm: leaking_bucket, outflow: 1/s, capacity: 9, target: {http: {url: "{callback}"}}}
  - {name: door, algorithm: token_bucket, capacity: 1, refill: 1/d}
`
	file := clients(t, "root rights: [submit, check, read, operate, admin], policies: ['*']",
		"submits rights: [submit], policies: ['red*'], keys: ['mine.*']",
		"checks rights: [check], policies: [door], keys: ['mine.*']",
		"reads rights: [read], policies: [red], keys: ['mine.*']",
		"operates rights: [operate], policies: [red], keys: ['mine.*']",
		"admins rights: [admin], policies: ['red*']")
	p := launch(t, "--config", configure(t, fmt.Sprintf(policies, target.URL)), "--drain",
		"--http-tokens", file).ready()
	root := []string{"Authorization", "Bearer root"}
	for _, where := range []string{"blue/acme", "red/other"} {
		for range 2 {
			p.sends("POST", "/v1/jobs/"+where, "secret-of-others", 202,
				append([]string{"Penstock-Tag", "t", "Penstock-Path", "/v1"}, root...)...)
		}
	}
	p.sends("POST", "/v1/schedules/blue/acme", "secret-of-others", 201, append([]string{
		"Penstock-Schedule", "@yearly", "Penstock-Schedule-Name", "nightly"}, root...)...)
	stands := map[string]string{ // by path, the expected state before and after
		"/v1/buckets/blue/acme":  `"depth":1`,
		"/v1/buckets/red/other":  `"depth":1`,
		"/v1/jobs/blue:2?body=1": `"priority":0`,
		"/v1/jobs/red:2?body=1":  `"state":"waiting"`,
		"/v1/dead/blue":          `"reason":"permanent"`,
		"/v1/dead/red":           `"reason":"permanent"`,
		"/v1/schedules/blue":     `"nightly"`,
		"/v1/policies/blue":      `"paused":false`,
		"/v1/policies/red":       `"paused":false`,
		"/v1/policies/blue/keys": `"overrides":[]`,
		"/v1/policies/red/keys":  `"overrides":[]`,
		"/v1/buckets/red-hooks":  `"buckets":[]`,
		"/v1/check/door/other":   `"remaining":1`,
	}
	as := func(client, method, path, body string, header ...string) reply {
		if client != "" {
			header = append([]string{"Authorization", "Bearer " + client}, header...)
		}
		return p.ask(method, path, body, header...)
	}
	for path, says := range stands {
		waittest.Until(t, path+" has "+says, func() bool {
			return strings.Contains(as("root", "GET", path, "").body, says)
		})
	}
	before, listed := asked.Load(), as("root", "GET", "/v1/policies", "").body
	for _, a := range attempts {
		r := as(a.as, a.method, a.path, a.body, a.header...)
		what := fmt.Sprintf("%s %s as %q with %q", a.method, a.path, a.as, a.header)
		if refused := r.status >= 400 && r.status < 500; !refused && a.status == 0 ||
			a.status != 0 && r.status != a.status {
			t.Errorf("%s: %d %.300s, want %d", what, r.status, r.body, a.status)
		}
		through := strings.Contains(r.body, `"status":202`) || strings.Contains(r.body, `"job":`)
		if strings.Contains(r.body, "secret-of-others") || r.status == 200 && (through ||
			strings.Contains(r.body, "acme") && a.method == "GET") {
			t.Errorf("%s: gets %.300s", what, r.body)
		}
	}
	t.Logf("%d attempts", len(attempts))
	for path, says := range stands {
		if r := as("root", "GET", path, ""); !strings.Contains(r.body, says) {
			t.Errorf("%s has lost %s: %s", path, says, r.body)
		}
	}
	if now := as("root", "GET", "/v1/policies", "").body; now != listed {
		t.Errorf("the policies were\n%s\nand are\n%s", listed, now)
	}
	if after := asked.Load(); after != before {
		t.Errorf("the target was asked %d times", after-before)
	}
}
