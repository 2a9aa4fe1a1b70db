package policy_test

import (
	"strings"
	"testing"
	"time"

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
		`{"name":"a","algorithm":"sliding_log","limit":5,"window":"1s","count_from":"answr"}`: "did " +
			"you mean answer?",
		`{"name":"a","algorithm":"sliding_log","limit":5,"window":"1s","count_from":"end"}`: "end " +
			"requires a cost",
		`{"name":"a","algorithm":"sliding_counter","limit":5,"window":"1s","count_from":"answer"}`: "must " +
			"be start: a sliding counter takes",
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
		`"window_margin":"10ms"`:           "applies only to limits on starts",
		`"outflow":"1/s","max_delay":"2s"`: "applies only with a limit that has count_from: answer or end",
		`"max_delay":"2s","limits":[{"algorithm":"sliding_log","limit":5,"window":"1s"}]`: "applies " +
			"only with a limit that has count_from: answer or end",
		`"max_delay":"2m",` + fromAnswer: "must be 1ms to 1m, not 2m",

		`"window_margin":"1s",` + fromAnswer:                                                  "must be 0s to 125ms",
		`"queue":false,"limits":[{"algorithm":"sliding_log","limit":5,"window":"1s"}]`:        "queue: false",
		`"window_margin":"1s","limits":[{"algorithm":"sliding_log","limit":5,"window":"1s"}]`: "1ms to 125ms",
		`"shadow":true,"outflow":"5/s"`:                                                       "set it in one of the limits",
		`"burst":2,"limits":[{"algorithm":"sliding_log","limit":5,"window":"1s"}]`:            "an outflow",
	} {
		_, err := policy.Read([]byte(`{"name":"p","algorithm":"leaking_bucket","capacity":9,` +
			fields + `}`))
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", fields, err)
		}
	}
}

const fromAnswer = `"limits":[{"algorithm":"sliding_log","limit":5,"window":"1s","count_from":"answer"}]`

func TestALimitThatCountsFromTheAnswer(t *testing.T) {
	for limits, want := range map[string]struct{ maxDelay, margin policy.Duration }{
		fromAnswer:                       {policy.Duration(time.Second), 0},
		`"max_delay":"3s",` + fromAnswer: {policy.Duration(3 * time.Second), 0},
		strings.ReplaceAll(fromAnswer, "sliding_log", "fixed_window"): {
			policy.Duration(time.Second), policy.Duration(50 * time.Millisecond)},
		strings.ReplaceAll(fromAnswer, "answer", "start"): {
			0, policy.Duration(50 * time.Millisecond)},
		strings.ReplaceAll(fromAnswer, `"answer"`, `"end","cost":"tokens"`): {
			policy.Duration(time.Second), 0},
	} {
		p, err := policy.Read([]byte(`{"name":"p","algorithm":"leaking_bucket","capacity":9,` +
			limits + `}`))
		if err != nil || p.MaxDelay != want.maxDelay || p.WindowMargin != want.margin {
			t.Errorf("%s: max_delay %v, window_margin %v, %v", limits, p.MaxDelay, p.WindowMargin,
				err)
		}
	}
}

func TestADoorPolicyCannotCountFromTheAnswer(t *testing.T) {
	for text, reason := range map[string]string{
		`"limits":[{"name":"a","key":"{key}","algorithm":"sliding_log","limit":5,"window":"1s",` +
			`"count_from":"answer"}]`: "limits[0].count_from: applies only to limits on starts",
		`"algorithm":"sliding_log","limit":5,"window":"1s","max_delay":"2s"`: "max_delay: applies only",
	} {
		_, err := policy.Read([]byte(`{"name":"p",` + text + `}`))
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
