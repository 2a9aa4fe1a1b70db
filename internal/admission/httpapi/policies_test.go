package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/policy"
)

func TestManagePolicies(t *testing.T) {
	var mu sync.Mutex
	waited := map[string]uint64{}
	i := install(t, manage.Options{Followed: func(_ context.Context, policy string,
		revision uint64) {
		mu.Lock()
		defer mu.Unlock()
		waited[policy] = max(waited[policy], revision)
	}})
	i.expect("GET", "/v1/policies", "", 200, `{"policies":[]}`)
	i.expect("GET", "/v1/policies/stripe", "", 404, `"detail":"unknown policy: \"stripe\""`)
	i.expect("PUT", "/v1/policies/stripe", stripe, 201, `"name":"stripe"`, `"timeout":"30s"`,
		`"source":"api"`,
		`"paused":false`, `"state":"live"`)
	i.publish("stripe", "acme", nil)
	i.expect("PUT", "/v1/policies/stripe", strings.Replace(stripe, "96", "50", 1), 200,
		`"outflow":"50/s"`)
	i.expect("PUT", "/v1/policies/signup",
		`{"name":"signup","algorithm":"fixed_window","limit":10,"window":"1d"}`, 201)
	i.expect("PUT", "/v1/policies/fair",
		`{"algorithm":"leaking_bucket","outflow_total":"100/s","capacity":50}`, 201,
		`"outflow_total":"100/s"`, `"partitions":1`)
	// A policy that omits its partitions keeps them.
	i.expect("PUT", "/v1/policies/stripe",
		`{"algorithm":"leaking_bucket","outflow":"50/s","capacity":2}`, 200, `"partitions":4`)
	list := i.expect("GET", "/v1/policies", "", 200)
	if fair, signup := strings.Index(list, `"fair"`), strings.Index(list, `"signup"`); fair < 0 ||
		signup < fair {
		t.Errorf("listed %s", list)
	}

	i.expect("PUT", "/v1/policies/bad",
		`{"algorithm":"leaking_bucket","capacity":-1,"timeout":"0s"}`, 400,
		`"field":"timeout"`, `"problems":[{"field":"timeout"`)
	i.expect("PUT", "/v1/policies/bad", `{"algorithm":"leaking_bucket","capacity":-1}`, 400,
		`{"field":"outflow","reason":"is required by leaking_bucket"}`, `"field":"capacity"`)
	i.expect("PUT", "/v1/policies/Bad.Name", stripe, 400, `"field":"name"`)
	i.expect("PUT", "/v1/policies/other", strings.Replace(stripe, `{`, `{"name":"stripe",`, 1), 400,
		`"field":"name"`)
	i.expect("PUT", "/v1/policies/bad", ``, 400, `is not JSON`)
	i.expect("PUT", "/v1/policies/bad", `[]`, 400, `want fields, not a list`)
	i.expect("PUT", "/v1/policies/bad", `{"algorithm":"abacus","sekret":1}`, 400,
		`"field":"sekret","reason":"unknown field"`)
	i.expect("PUT", "/v1/policies/bad", `{"name":"`+strings.Repeat("x", 64<<10)+`"}`, 413,
		`65536 bytes`)
	i.expect("PUT", "/v1/policies/stripe", strings.Replace(stripe, `":4`, `":8`, 1), 409,
		`"field":"partitions","reason":"cannot change from 4 to 8: give the policy a new name"`)
	i.expect("PUT", "/v1/policies/stripe", `{"algorithm":"fixed_window","limit":1,"window":"1s"}`,
		409, `"field":"algorithm"`,
		`"field":"queue"`)
	i.expect("PUT", "/v1/policies/stripe",
		`{"algorithm":"leaking_bucket","outflow_total":"100/s","capacity":2}`, 409,
		`"field":"partitions"`, `outflow_total requires a policy created with one partition`)
	i.expect("GET", "/v1/policies/bad", "", 404)

	// A capacity below the bucket's depth is refused, without loss or a write.
	i.publish("stripe", "acme", nil)
	i.expect("PUT", "/v1/policies/stripe", strings.Replace(stripe, `y":2`, `y":1`, 1), 409,
		`capacity 1 is too low: bucket \"acme\" holds 2 jobs`)
	i.expect("GET", "/v1/policies/stripe", "", 200, `"capacity":2`)
	if depth, err := i.broker.Depth(t.Context(), "stripe"); err != nil || depth != 2 {
		t.Errorf("depth %d, %v", depth, err)
	}

	i.expect("POST", "/v1/pause/stripe", "", 200, `"paused":true`)
	i.expect("PUT", "/v1/policies/stripe", strings.Replace(stripe, `y":2`, `y":3`, 1), 200,
		`"capacity":3`, `"paused":true`)
	i.expect("POST", "/v1/resume/stripe", "", 200, `"paused":false`)
	i.expect("POST", "/v1/resume/stripe", "", 200, `"paused":false`)
	i.expect("POST", "/v1/pause/nobody", "", 404)
	i.expect("POST", "/v1/pause/signup", "", 409, `has no queue`)

	var last manage.Policy
	if err := json.Unmarshal(
		[]byte(i.expect("GET", "/v1/policies/stripe", "", 200)), &last); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if waited["stripe"] != last.Revision || last.Revision == 0 {
		t.Errorf("waited for revision %d, want %d", waited["stripe"], last.Revision)
	}
}

func TestManageOverrides(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("GET", "/v1/policies/stripe/keys/acme", "", 404, `unknown policy`)
	i.expect("PUT", "/v1/policies/stripe/keys/acme", `{"paused":true}`, 404, `unknown policy`)
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	i.expect("PUT", "/v1/policies/signup", `{"algorithm":"fixed_window","limit":10,"window":"1d"}`,
		201)
	i.expect("GET", "/v1/policies/stripe/keys/acme", "", 404,
		`"detail":"not found: key \"acme\" has no limits of its own"`)
	i.expect("PUT", "/v1/policies/stripe/keys/acme", `{"outflow":"5/s","burst":2,"concurrency":0}`,
		200,
		`{"key":"acme","override":{"outflow":"5/s","burst":2,"concurrency":0}`)
	i.expect("POST", "/v1/pause/stripe/acme", "", 200, `"burst":2`, `"paused":true`)
	i.expect("GET", "/v1/policies/stripe/keys/acme", "", 200, `"paused":true`)
	i.expect("POST", "/v1/resume/stripe/acme", "", 200,
		`{"key":"acme","override":{"outflow":"5/s","burst":2,"concurrency":0},"unanswered":[`)

	// A key's override is removed with its pause if that was all.
	i.expect("POST", "/v1/pause/stripe/a%2Fb%3F/../%C3%A9", "", 200,
		`{"key":"a/b?/../é","override":{"paused":true}}`)
	i.expect("GET", "/v1/policies/stripe/keys/a%2Fb%3F/../%C3%A9", "", 200, `"paused":true`)
	i.expect("POST", "/v1/resume/stripe/a%2Fb%3F/../%C3%A9", "", 200, `"override":{}`)
	i.expect("GET", "/v1/policies/stripe/keys/a%2Fb%3F/../%C3%A9", "", 404)
	// the empty key
	i.expect("POST", "/v1/pause/stripe/", "", 200, `{"key":"","override":{"paused":true}}`)
	i.expect("GET", "/v1/policies/stripe", "", 200, `"paused":false`)

	i.expect("PUT", "/v1/policies/stripe/keys/b", `{"paused":true}`, 200)
	i.expect("GET", "/v1/policies/stripe/keys", "", 200,
		`{"overrides":[{"key":"","override":{"paused":true}},{"key":"acme"`)
	i.expect("GET", "/v1/policies/stripe/keys?limit=1", "", 200, `}],"next":""}`)
	i.expect("GET", "/v1/policies/stripe/keys?limit=1&after=", "", 200, `[{"key":"acme"`,
		`}],"next":"acme"}`)
	i.expect("GET", "/v1/policies/stripe/keys?after=acme", "", 200,
		`{"overrides":[{"key":"b","override":{"paused":true}}]}`)
	i.expect("DELETE", "/v1/policies/stripe/keys/acme", "", 200, `{"key":"acme","override":{}}`)
	i.expect("DELETE", "/v1/policies/stripe/keys/acme", "", 200)
	i.expect("GET", "/v1/policies/stripe/keys/acme", "", 404)

	for body, want := range map[string]string{
		``:                `is not JSON`,
		`{"weight":2}`:    `"field":"weight","reason":"requires an outflow_total`,
		`{"burst":3}`:     `must be at most the capacity (2), not 3`,
		`{"rate":"1/s"}`:  `"field":"rate","reason":"unknown field"`,
		`{"outflow":"5"}`: `"field":"outflow"`,
		`{"burst":0}`:     `must not be 0`,
	} {
		i.expect("PUT", "/v1/policies/stripe/keys/acme", body, 400, want)
	}
	i.expect("PUT", "/v1/policies/signup/keys/acme", `{"paused":true}`, 409, `has no queue`)
	i.expect("GET", "/v1/policies/stripe/keys/acme", "", 404)
}

func TestUnsupportedPoliciesAreRefused(t *testing.T) {
	i := install(t,
		manage.Options{Possible: func(_, p policy.Policy) []policy.Problem {
			return p.OnCluster()
		}})
	const limits = `{"limits":[{"name":"a","key":"{key}","algorithm":"token_bucket","capacity":2,"refill":"2/s"},
		{"name":"b","key":"%s","algorithm":"fixed_window","limit":9,"window":"1s"}]}`
	i.expect("PUT", "/v1/policies/api", fmt.Sprintf(limits, "global"), 400,
		`"field":"limits[1].key"`)
	i.expect("GET", "/v1/policies/api", "", 404)
	i.expect("PUT", "/v1/policies/api", fmt.Sprintf(limits, "{key}"), 201)
}
