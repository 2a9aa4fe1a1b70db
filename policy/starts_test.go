package policy_test

import (
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/policy"
)

func TestLimitsOnStartsAreRefusedWithAReason(t *testing.T) {
	for limits, reason := range map[string]string{
		`{"name":"a","algorithm":"sliding_log","limit":5,"window":"1s","key":"all"}`:     "{key}, or global",
		`{"name":"a","algorithm":"leaking_bucket","outflow":"5/s","capacity":7}`:         "policy",
		`{"name":"a","algorithm":"leaking_bucket"}`:                                      "required",
		`{"name":"a","algorithm":"sliding_log","limit":5,"window":"1ms"}`:                "8ms",
		`{"name":"a","algorithm":"sliding_log","limit":5,"window":"1s","count":"all"}`:   "accepted",
		`{"name":"a","algorithm":"sliding_log","limit":5,"window":"1s","cost":"Tokens"}`: "a-z",
		`{"name":"a","algorithm":"sliding_log","limit":5,"window":"1s","zone":"UTC"}`:    "fixed_window",
		`{"name":"a","algorithm":"fixed_window","limit":5,"window":"1h","zone":"UTC"}`:   "whole days",
		`{"name":"a","algorithm":"fixed_window","limit":5,"window":"1d","zone":"berlin"}`: "did you " +
			"mean Europe/Berlin?",
		`{"name":"a","algorithm":"sliding_log","limit":5,"window":"1mo"}`: "use days, such as 31d",
		`{"shared":"account"}`: "a file defines it under shared_limits",
		`{"shared":"account","name":"a","algorithm":"sliding_log","limit":5,"window":"1s"}`: "must " +
			"be omitted, or be account as the shared limit",
		`{"shared":"account","key":"{key}","algorithm":"sliding_log","limit":5,"window":"1s"}`: "global",
		`{"shared":"Account","algorithm":"sliding_log","limit":5,"window":"1s"}`:               "a-z",
		`{"name":"a","algorithm":"sliding_log","limit":5,"window":"1s","shadow":true,` +
			`"key":"global"}`: "per key",
	} {
		_, err := policy.Read([]byte(`{"name":"p","algorithm":"leaking_bucket","capacity":9,` +
			`"limits":[` + limits + `]}`))
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", limits, err)
		}
	}
	for fields, reason := range map[string]string{
		`"partitions":2,"limits":[{"algorithm":"sliding_log","limit":5,"window":"1s",` +
			`"key":"global"}]`: "must be 1 because limits[0] has key: global",
		`"window_margin":"10ms"`: "applies only to limits on starts",
		`"queue":false,"limits":[{"algorithm":"sliding_log","limit":5,"window":"1s"}]`:        "queue: false",
		`"window_margin":"1s","limits":[{"algorithm":"sliding_log","limit":5,"window":"1s"}]`: "1ms to 125ms",
		`"shadow":true,"outflow":"5/s"`:                                            "set it in one of the limits",
		`"burst":2,"limits":[{"algorithm":"sliding_log","limit":5,"window":"1s"}]`: "an outflow",
	} {
		_, err := policy.Read([]byte(`{"name":"p","algorithm":"leaking_bucket","capacity":9,` +
			fields + `}`))
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", fields, err)
		}
	}
}
