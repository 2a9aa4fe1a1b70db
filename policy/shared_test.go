package policy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/policy"
)

func TestSharedLimitsAreLimitsOnStartsWithAName(t *testing.T) {
	for text, reason := range map[string]string{
		`{"name":"account","algorithm":"sliding_log","limit":5,"window":"1s"}`: "",

		`{"name":"account","algorithm":"sliding_log","limit":5,"window":"1s","count_from":"answer"}`: "",
		`{"name":"account","algorithm":"sliding_log","limit":5,"window":"1s","count_from":"end"}`:    "count_from: end requires a cost",

		`{"name":"account","algorithm":"sliding_counter","limit":5,"window":"1s","count_from":"start"}`: "",

		`{"algorithm":"sliding_log","limit":5,"window":"1s"}`:                "name: is required",
		`{"name":"a","algorithm":"sliding_log"}`:                             "limit: is required",
		`{"name":"a","algorithm":"sliding_log","window":"1s","shadow":true}`: "shadow",
		`{"name":"a","key":"global","algorithm":"token_bucket"}`:             "key: does not apply",
	} {
		var l policy.Limit
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		err := policy.Invalid(l.CheckAsShared())
		if (err == nil) != (reason == "") || err != nil && !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, want %q", text, err, reason)
		}
	}
}

func TestASharedLimitIsTheSameForAllPolicies(t *testing.T) {
	sharing := func(name, limits string) policy.Policy {
		p, err := policy.Read([]byte(`{"name":"` + name +
			`","algorithm":"leaking_bucket","capacity":9,"limits":[` + limits + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const account = `{"shared":"account","algorithm":"sliding_log","limit":5,"window":"1s"}`
	a := sharing("a", account)
	for limits, agree := range map[string]bool{
		account: true,
		`{"name":"own","algorithm":"sliding_log","limit":7,"window":"1s"},` + account: true,
		`{"shared":"other","algorithm":"sliding_log","limit":6,"window":"1s"}`:        true,
		`{"shared":"account","algorithm":"sliding_log","limit":6,"window":"1s"}`:      false,
		`{"shared":"account","algorithm":"token_bucket","capacity":6,"refill":"1/s"}`: false,
		strings.Replace(account, "}", `,"count_from":"start"}`, 1):                    true,
		strings.Replace(account, "}", `,"count_from":"answer"}`, 1):                   false,
	} {
		if err := a.CheckShared(sharing("b", limits)); (err == nil) != agree {
			t.Errorf("%s: %v", limits, err)
		}
	}
	err := a.CheckShared(sharing("b", strings.Replace(account, "5", "6", 1)))
	if err == nil || !strings.Contains(err.Error(), "limits[0]: the shared limit account of "+
		"policy b is ") {
		t.Error(err)
	}
	err = a.CheckShared(sharing("b", strings.Replace(account, "}", `,"count_from":"answer"}`, 1)))
	if err == nil || !strings.Contains(err.Error(), `policy b is {"count_from":"answer",`) {
		t.Error(err)
	}
	if err := a.CheckShared(sharing("a", strings.Replace(account, "5", "6", 1))); err != nil {
		t.Errorf("it does not change its own: %v", err)
	}
	partitioned := a
	partitioned.Partitions = 2
	if policy.Invalid(partitioned.Validate()) == nil {
		t.Error("a policy that shares a limit has two partitions")
	}
}
