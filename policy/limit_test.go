package policy_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

const twoLimits = `{"name":"api","on_store_error":"local","limits":[
	{"name":"per-user","key":"{key}","algorithm":"token_bucket","capacity":2,"refill":"2/s"},
	{"name":"all","key":"global","algorithm":"sliding_counter","limit":10000,"window":"1s"}]}`

func TestLimitsAreRead(t *testing.T) {
	p, err := policy.Read([]byte(twoLimits))
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Limits{
		{Name: "per-user", Key: "{key}",
			Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 2,
				Refill: algorithms.Rate{Count: 2, Per: time.Second}}},
		{Name: "all", Key: "global",
			Rule: policy.Rule{Algorithm: policy.SlidingCounter, Limit: 10000,
				Window: policy.Duration(time.Second)}},
	}
	if !reflect.DeepEqual(p.AllLimits(), want) {
		t.Errorf("read %+v", p.AllLimits())
	}
	if !p.Door() || p.HasQueue() || p.Paced() || p.Meter() || p.OnStoreError != policy.Local {
		t.Errorf("%+v", p)
	}
	written, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := policy.Read(written); err != nil || !reflect.DeepEqual(again, p) {
		t.Errorf("read again: %+v, %v", again, err)
	}
}

func TestAPolicyOfOneAlgorithmHasOneRule(t *testing.T) {
	p, err := policy.Read([]byte(`{"name":"a","algorithm":"sliding_log","limit":5,"window":"1m"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Limits{{Name: "a", Key: "{key}",
		Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 5,
			Window: policy.Duration(time.Minute), Count: policy.CountAll}}}
	if !reflect.DeepEqual(p.AllLimits(), want) {
		t.Errorf("rules %+v", p.AllLimits())
	}
}

func TestMistakesInLimits(t *testing.T) {
	limit := func(fields string) string {
		return `{"name":"a","limits":[{"name":"first","key":"global","algorithm":"fixed_window","limit":1,"window":"1s"},{"name":"second",` + fields + `}]}`
	}
	const counter = `"algorithm":"fixed_window","limit":1,"window":"1s"`
	for text, want := range map[string]string{
		limit(`"key":"{user}",` +
			counter): `limits[1].key: "{user}": the only placeholders are {key} and {ip}`,
		limit(`"key":"{key",` +
			counter): `limits[1].key: "{key": the only`,
		limit(counter): `limits[1].key: is required`,
		limit(`"key":"` + strings.Repeat("x", 257) + `",` +
			counter): `limits[1].key: must have at most 256 bytes`,
		limit(
			`"key":"a"`): `limits[1].algorithm: is required`,
		limit(
			`"key":"a","algorithm":"leaky"`): `limits[1].algorithm: "leaky": want token_bucket`,
		limit(
			`"key":"a","algorithm":"token_bucket","limit":3`): `limits[1].capacity: is required by token_bucket; limits[1].refill: is required by token_bucket; limits[1].limit: applies only to`,
		limit(
			`"key":"a","algorithm":"sliding_log","limit":3,"window":"1s","count":"all"`): `limits[1].count: must be accepted with several limits`,
		limit(`"key":"a","keys":1,` +
			counter): `limits[1].keys: unknown field`,
		limit(
			`"key":"a","algorithm":"token_bucket","capacity":"x","refill":"1"`): `limits[1].capacity: "x": want a whole number; limits[1].refill: "1": want a rate`,
		`{"name":"a","limits":{}}`:  `limits: want a list, not fields`,
		`{"name":"a","limits":[]}`:  `algorithm: is required`,
		`{"name":"a","limits":[7]}`: `limits[0]: want fields, not a number`,
		`{"name":"a","limit":1,"algorithm":"fixed_window","limits":[{"key":"a",` + counter +
			`}]}`: `algorithm: cannot be combined with limits: set it in one of them; limit: cannot be combined with limits`,
		`{"name":"a","limits":[` +
			strings.TrimSuffix(strings.Repeat(`{"key":"a",`+counter+`},`, 9), ",") +
			`]}`: `limits: must have at most 8 entries, not 9`,
		`{"name":"a","on_store_error":"never",` + counter +
			`}`: `on_store_error: "never": want open, closed or local`,
		`{"name":"a","on_store_error":"open","algorithm":"leaking_bucket","outflow":"1/s","capacity":1}`: `on_store_error: applies only to policies that check a limit`,
		`{"name":"a","limits":[{"name":"x","key":"a",` + counter + `},{"name":"x","key":"b",` +
			counter + `}]}`: `limits[1].name: "x" is already the name of limits[0]`,
		`{"name":"a","limits":[{"name":"x","key":"a",` + counter + `},{"key":"b",` + counter +
			`}]}`: `limits[1].name: is required with several limits`,
		`{"name":"a","limits":[{"name":"Über","key":"a",` + counter +
			`}]}`: `limits[0].name: "Über": want 1 to 32`,
	} {
		if _, err := policy.Read([]byte(text)); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// The mistake is named alone, without what would follow from it.
func TestLimitsWithoutTheAlgorithmOfAQueue(t *testing.T) {
	const limits = `,"capacity":9,"limits":[{"algorithm":"sliding_log","limit":3,"window":"1s"}]}`
	for text, want := range map[string]string{
		`{"name":"a","algorithm":"leaky_bucket"` + limits: `algorithm: "leaky_bucket": want ` +
			"token_bucket, leaking_bucket, fixed_window, sliding_log or sliding_counter; did you " +
			"mean leaking_bucket?",
		`{"name":"a"` + limits: "algorithm: is required: leaking_bucket makes a queue whose " +
			"starts obey the limits; without one they answer checks, and have no capacity or " +
			"outflow",
	} {
		if _, err := policy.Read([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestExpand(t *testing.T) {
	for template, want := range map[string]string{
		"{key}": "tenant.1", "{ip}": "10.0.0.1", "global": "global",
		"{key}/{ip}": "tenant.1/10.0.0.1", "all of {ip}": "all of 10.0.0.1",
	} {
		r := policy.Limit{Key: template}
		if got := r.Expand("tenant.1", "10.0.0.1"); got != want {
			t.Errorf("%s: %q, want %q", template, got, want)
		}
		if got := r.ByIP(); got != strings.Contains(template, "ip") {
			t.Errorf("%s: needs the address: %v", template, got)
		}
	}
}

// Callers choose keys, so placeholders in them are not expanded.
func TestExpandIsNotRepeated(t *testing.T) {
	r := policy.Limit{Key: "{key}/{ip}"}
	if got := r.Expand("{ip}", "{key}"); got != "{ip}/{key}" {
		t.Errorf("expanded to %q", got)
	}
}

func TestShare(t *testing.T) {
	for _, r := range []policy.Rule{
		{Algorithm: policy.TokenBucket, Capacity: 10,
			Refill: algorithms.Rate{Count: 7, Per: 3 * time.Second}},
		{Algorithm: policy.LeakingBucket, Capacity: 10, Burst: 9,
			Outflow: algorithms.Rate{Count: 1, Per: 366 * 24 * time.Hour}},
		{Algorithm: policy.LeakingBucket, Capacity: 1, Burst: 1,
			Outflow: algorithms.Rate{Count: 100, Per: 300 * 24 * time.Hour}},
		{Algorithm: policy.LeakingBucket, Capacity: 299, Burst: 2,
			Outflow: algorithms.Rate{Count: 3, Per: 366 * 24 * time.Hour}},
		{Algorithm: policy.TokenBucket, Capacity: 100,
			Refill: algorithms.Rate{Count: 1, Per: 365 * 24 * time.Hour}},
		{Algorithm: policy.FixedWindow, Limit: 10, Window: policy.Duration(time.Minute)},
		{Algorithm: policy.SlidingLog, Limit: 2, Window: policy.Duration(time.Minute),
			Count: policy.CountAccepted},
	} {
		for _, n := range []int{1, 2, 3, 7, 1000} {
			got := policy.Limit{Rule: r}.Share(n)
			whole := policy.Policy{Name: "p", Limits: policy.Limits{got}}
			whole.Limits[0].Key = "global"
			if problems := whole.Validate(); len(problems) > 0 {
				t.Errorf("%+v of %d is not valid: %v", got, n, problems)
			}
			if units, most := (got.Capacity+got.Limit)*int64(n), r.Capacity+r.Limit; units > most &&
				got.Capacity+got.Limit > 1 {
				t.Errorf("%d shares of %d units make %d", n, most, units)
			}
			for _, rates := range [][2]algorithms.Rate{{got.Refill, r.Refill},
				{got.Outflow, r.Outflow}} {
				if rates[1].IsZero() {
					continue
				}
				if share, rate := rates[0].PerSecond()*float64(n), rates[1].PerSecond(); share >
					rate*(1+1e-12) && rates[0].Count > 1 {
					t.Errorf("%d shares of %v at %v make %v/s", n, rates[1], rates[0], share)
				}
			}
		}
	}
}

func TestDaysOfAZoneAreNotKeptInRedis(t *testing.T) {
	for text, want := range map[string]string{
		`{"name":"a","algorithm":"fixed_window","limit":5,"window":"1d"}`:                     "",
		`{"name":"a","algorithm":"fixed_window","limit":5,"window":"1w","zone":"UTC"}`:        "",
		`{"name":"a","algorithm":"fixed_window","limit":5,"window":"1mo"}`:                    "window",
		`{"name":"a","algorithm":"fixed_window","limit":5,"window":"1d","zone":"Asia/Tokyo"}`: "zone",
		`{"name":"a","limits":[{"key":"all","algorithm":"fixed_window","limit":5,"window":"1mo",` +
			`"zone":"Asia/Tokyo"}]}`: "limits[0].zone",
		`{"name":"a","algorithm":"leaking_bucket","capacity":1,"limits":[{` +
			`"algorithm":"fixed_window","limit":5,"window":"1mo"}]}`: "",
	} {
		p, err := policy.Read([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var fields []string
		for _, problem := range p.OnRedis() {
			fields = append(fields, problem.Field)
		}
		if got := strings.Join(fields, " "); got != want {
			t.Errorf("%s: problems of %q, want %q", text, got, want)
		}
	}
}

func TestAMonthRoundTrips(t *testing.T) {
	p, err := policy.Read([]byte(`{"name":"a","algorithm":"fixed_window","limit":5,` +
		`"window":"1mo","zone":"Europe/Berlin"}`))
	if err != nil || p.Window.String() != "1mo" || p.Fixed().Zone.String() != "Europe/Berlin" {
		t.Errorf("%s in %v: %v", p.Window, p.Fixed().Zone, err)
	}
}
