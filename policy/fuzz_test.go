package policy_test

import (
	"cmp"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

func ruleOf(p policy.Limit, total algorithms.Rate) interface{ Validate() error } {
	window := time.Duration(p.Window)
	switch p.Algorithm {
	case policy.TokenBucket:
		return algorithms.TokenBucket{Capacity: p.Capacity, Refill: p.Refill}
	case policy.LeakingBucket:
		return algorithms.LeakingBucket{Capacity: p.Capacity, Outflow: cmp.Or(p.Outflow, total),
			Burst: p.Burst}
	case policy.FixedWindow:
		return algorithms.FixedWindow{Limit: p.Limit, Window: window}
	case policy.SlidingLog:
		return algorithms.SlidingLog{Limit: p.Limit, Window: window}
	default:
		return algorithms.SlidingCounter{Limit: p.Limit, Window: window}
	}
}

func FuzzParse(f *testing.F) {
	written, err := json.Marshal(full())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(written),
		twoLimits,
		`{"name":"a","algorithm":"token_bucket","capacity":2,"refill":"2/s"}`,
		`{"name":"b","algorithm":"sliding_log","limit":5,"window":"1w","count":"accepted","queue":false}`,
		`{"name":"c","algorithm":"fixed_window","limit":5,"window":"1d12h","queue":{"capacity":3}}`,
		`{"name":"d","algorithm":"leaking_bucket","outflow":"3/10s","capacity":1e3,"burst":2}`,
		`{"name":"e","algorithm":"leaking_bucket","outflow_total":"100/s","outflow":"2/s","capacity":10}`,
		`{"target":{"http":{"url":"http://a"}}}`,
		`{"target":{"nats":{"subject":"a.b"}}}`,
		`{"retry":{"backoff":null},"name":"\u0000","":[{}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := policy.Parse(data)
		if err != nil {
			if !reflect.DeepEqual(p, policy.Policy{}) {
				t.Fatalf("a policy beside the error %v", err)
			}
			return
		}
		if len(p.Validate()) > 0 {
			return
		}
		for _, r := range p.WithDefaults().AllLimits() {
			if err := ruleOf(r, p.OutflowTotal).Validate(); err != nil {
				t.Fatalf("%+v is valid, its rule is not: %v", p, err)
			}
		}
		for _, p := range []policy.Policy{p, p.WithDefaults()} {
			if problems := p.Validate(); len(problems) > 0 {
				t.Fatalf("defaults make it invalid: %v", problems)
			}
			written, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			again, err := policy.Parse(written)
			if err != nil {
				t.Fatalf("%s is not read again: %v", written, err)
			}
			if !reflect.DeepEqual(again, p) {
				t.Fatalf("%s\nread   %+v\nwanted %+v", written, again, p)
			}
		}
	})
}
