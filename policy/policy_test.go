package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

func Example() {
	p, err := policy.Read(
		[]byte(
			`{"name":"stripe", "algorithm":"leaking_bucket", "outflow":"96/s", "capacity":5000}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Outflow, p.QueueCapacity(), p.Paced(), p.Timeout, p.Retry.MaxAttempts)

	_, err = policy.Read(
		[]byte(`{"name":"Stripe", "algorithm":"leaking_bucket", "outflow":"96", "refill":"1/s"}`))
	if invalid, ok := errors.AsType[*policy.InvalidError](err); ok {
		for _, problem := range invalid.Problems {
			fmt.Println(problem)
		}
	}
	// Output:
	// 96/s 5000 true 30s 25
	// outflow: "96": want a rate such as 96/s, 10/m or 3/10s
	// name: "Stripe": want 1 to 32 characters of a-z, 0-9 and -
	// capacity: is required by leaking_bucket
	// refill: applies only to token_bucket, not to leaking_bucket
}

func full() policy.Policy {
	return policy.Policy{
		Name: "stripe", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
			Outflow: algorithms.Rate{Count: 96, Per: time.Second}, Burst: 2, Capacity: 5000},
		Concurrency: 20, Workers: 32, Partitions: 4,
		Timeout: policy.Duration(10 * time.Second), MaxAge: policy.Duration(24 * time.Hour),
		DuplicateWindow: policy.Duration(time.Hour),
		Target:          &policy.Target{HTTP: &policy.HTTPTarget{URL: "https://api.stripe.com"}},
		Retry: policy.Retry{MaxAttempts: 3, Backoff: policy.Duration(2 * time.Second),
			MaxBackoff:  policy.Duration(time.Minute),
			MaxCooldown: policy.Duration(30 * time.Minute)},
		MaxJobs: 2_000_000, MaxBytes: 64 * policy.MiB,
		Dead: policy.Dead{MaxBytes: 5 * policy.MiB, Bodies: new(bool)},
	}
}

func TestJSONRoundTrip(t *testing.T) {
	minute := policy.Duration(time.Minute)
	for _, p := range []policy.Policy{
		full(),
		{Name: "meter",
			Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: algorithms.Rate{Count: 3,
				Per: 10 * time.Second},
				Capacity: 20}, Queue: &policy.Queue{Off: true}},
		{Name: "total",
			Rule:         policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 20},
			OutflowTotal: algorithms.Rate{Count: 100, Per: time.Second}},
		{Name: "token", Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 2,
			Refill: algorithms.Rate{Count: 2, Per: time.Minute}}},
		{Name: "fixed",
			Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 10,
				Window: policy.Duration(24 * time.Hour)}},
		{Name: "log",
			Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 5, Window: minute,
				Count: policy.CountAccepted}},
		{Name: "counter",
			Rule:  policy.Rule{Algorithm: policy.SlidingCounter, Limit: 100, Window: minute},
			Queue: &policy.Queue{Capacity: 1000}},
	} {
		for _, p := range []policy.Policy{p, p.WithDefaults()} {
			if problems := p.Validate(); len(problems) > 0 {
				t.Errorf("%s is refused: %v", p.Name, problems)
			}
			written, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			read, err := policy.Parse(written)
			if err != nil {
				t.Fatalf("%s: %v", written, err)
			}
			if !reflect.DeepEqual(read, p) {
				t.Errorf("%s\nread   %+v\nwanted %+v", written, read, p)
			}
			// Go's decoder, which reads policies inside other values, gives the same.
			var plain policy.Policy
			if err := json.Unmarshal(written, &plain); err != nil || !reflect.DeepEqual(plain, p) {
				t.Errorf("json.Unmarshal(%s) = %+v, %v", written, plain, err)
			}
		}
	}
}

func TestParseKnowsEveryField(t *testing.T) {
	var walk func(prefix, suffix string, of reflect.Type)
	walk = func(prefix, suffix string, of reflect.Type) {
		for field := range of.Fields() {
			if field.Anonymous {
				walk(prefix, suffix, field.Type)
				continue
			}
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			of := field.Type
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			if name != "-" {
				_, err := policy.Parse([]byte(prefix + `"` + name + `":null` + suffix))
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if of.Kind() == reflect.Struct && of != reflect.TypeFor[algorithms.Rate]() {
				walk(prefix+`"`+name+`":{`, "}"+suffix, of)
			}
		}
	}
	walk("{", "}", reflect.TypeFor[policy.Policy]())
}

// What is missing in a document that cannot be read at all is no problem of its own.
func TestAnUnreadableDocumentIsOneProblem(t *testing.T) {
	for _, text := range []string{``, `{"name":"a"`, `null`, `[]`} {
		var invalid *policy.InvalidError
		if _, err := policy.Read([]byte(text)); !errors.As(err, &invalid) ||
			len(invalid.Problems) != 1 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ json, want string }{
		{``, "is not JSON: unexpected end"},
		{`{`, "is not JSON: "},
		{`{"name":"a"`, "is not JSON: "},
		{`{"name":"a",}`, "is not JSON: "},
		{`[]`, "want fields, not a list"},
		{`"stripe"`, "want fields, not text"},
		{`null`, "want fields, not null"},
		{`{"name":"a"} {}`, "is not JSON: invalid character"},
		{`{"name":"a"} x`, "is not JSON: invalid character"},
		{`{"Name":"a"}`, "Name: unknown field"},
		{`{"nmae":"a","name":"b"}`, "nmae: unknown field"},
		{`{"name":"a","name":"b"}`, "name: is given twice"},
		{`{"name":5}`, "name: 5: want text"},
		{`{"outflow":96}`, "outflow: 96: want a rate such as 96/s, 10/m or 3/10s"},
		{`{"outflow":"10/x"}`, `outflow: "10/x": want a rate`},
		{`{"outflow":"NaN/s"}`, `outflow: "NaN/s": "NaN" is not a whole number`},
		{`{"outflow":"-1/s"}`, `outflow: "-1/s": the rate must be positive`},
		{`{"outflow":"0/s"}`, `outflow: "0/s": the rate must be positive`},
		{`{"outflow":"99999999999999999999/s"}`, "is not a whole number"},
		{`{"outflow":"2000000/s"}`, "at most 1000000/s"},
		{`{"capacity":2.5}`, "capacity: 2.5: want a whole number"},
		{`{"capacity":"2"}`, `capacity: "2": want a whole number`},
		{`{"capacity":99999999999999999999}`, "capacity: 99999999999999999999: is too large"},
		{`{"capacity":1e30}`, "capacity: 1e30: want a whole number"},
		{`{"capacity":0}`, "capacity: must be positive"},
		{`{"limit":0,"window":"0s"}`, "limit: must be positive; window: must be positive"},
		{`{"queue":{"capacity":0}}`, "queue.capacity: must be positive"},
		{`{"burst":0}`, "burst: must not be 0"},
		{`{"timeout":30}`, "timeout: 30: want a duration with a unit, such as 250ms, 30s, 5m, 1d or 1w"},
		{`{"timeout":"30"}`, `timeout: "30": want a duration with a unit`},
		{`{"timeout":"99999999999h"}`, `timeout: "99999999999h": is longer than 292 years`},
		{`{"timeout":"0s"}`, `timeout: must not be "0s"`},
		{`{"queue":true}`, "queue: true: want false or {capacity: N}"},
		{`{"queue":5}`, "queue: 5: want false or {capacity: N}"},
		{`{"queue":[]}`, "queue: []: want false or {capacity: N}"},
		{`{"retry":{"attempts":3}}`, "retry.attempts: unknown field; did you mean max_attempts?"},
		{`{"queue":{"size":5}}`, "queue.size: unknown field"},
		{`{"queue":{"capacity":"5"}}`, `queue.capacity: "5": want a whole number`},
		{`{"target":"http://x"}`, "target: want fields, not text"},
		{`{"target":{"grpc":{}}}`, "target.grpc: unknown field"},
		{`{"target":{"http":{"url":"http://x","verb":"GET"}}}`, "target.http.verb: unknown field"},
		{`{"target":{"nats":{"subject":"a","queue":"b"}}}`, "target.nats.queue: unknown field"},
		{`{"target":{"nats":{"subject":5}}}`, "target.nats.subject: 5: want text"},
		{`{"retry":{"backoff":1}}`, "retry.backoff: 1: want a duration with a unit"},
		{`{"retry":[]}`, "retry: want fields, not a list"},
	} {
		p, err := policy.Parse([]byte(test.json))
		if err == nil {
			t.Errorf("%s is accepted", test.json)
		} else if !strings.HasPrefix(err.Error(), test.want) &&
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s\nsays   %v\nwanted %s", test.json, err, test.want)
		}
		if !reflect.DeepEqual(p, policy.Policy{}) {
			t.Errorf("%s: a policy beside the error", test.json)
		}
		if _, ok := errors.AsType[*policy.InvalidError](err); !ok {
			t.Errorf("%s: %T, want *InvalidError", test.json, err)
		}
	}
}

func TestConcurrencyMayBeZero(t *testing.T) {
	if p, err := policy.Parse([]byte(`{"concurrency":0}`)); err != nil || p.Concurrency != 0 {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestRatesRoundTrip(t *testing.T) {
	for _, text := range []string{
		"3/10s", "3/15s", "1/1m30s", "1/100ms", "1/h", "1/d", "1/w", "1/10d", "1/12h", "7/1.5s",
	} {
		p, err := policy.Parse([]byte(`{"outflow":"` + text + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		written, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := policy.Parse(written); err != nil || again.Outflow != p.Outflow {
			t.Errorf("%s is written as %s, read as %+v, %v", text, written, again.Outflow, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	leaking := policy.Policy{Name: "a",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 10,
			Outflow: algorithms.Rate{Count: 1, Per: time.Second}}}
	want := leaking
	want.Burst, want.Workers, want.Partitions = 1, 64, 1
	want.Timeout, want.MaxAge = policy.Duration(30*time.Second), policy.Duration(14*24*time.Hour)
	want.DuplicateWindow = policy.Duration(10 * time.Minute)
	want.Retry = policy.Retry{MaxAttempts: 25, Backoff: policy.Duration(time.Second),
		MaxBackoff: policy.Duration(time.Hour), MaxCooldown: policy.Duration(time.Hour)}
	if got := leaking.WithDefaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("leaking bucket: %+v", got)
	}
	if got := want.WithDefaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("applied again: %+v", got)
	}
	log := policy.Policy{Name: "b",
		Rule: policy.Rule{Algorithm: policy.SlidingLog}, Queue: &policy.Queue{Off: true}}
	want = policy.Policy{Name: "b",
		Rule:         policy.Rule{Algorithm: policy.SlidingLog, Count: policy.CountAll},
		OnStoreError: policy.Closed}
	if got := log.WithDefaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("door policy: %+v", got)
	}
	if log.Queue == nil {
		t.Error("WithDefaults changed the original")
	}
	if got := full().WithDefaults(); !reflect.DeepEqual(got, full()) {
		t.Errorf("what was given is overwritten: %+v", got)
	}
}

func TestKinds(t *testing.T) {
	for _, test := range []struct {
		algorithm                 policy.Algorithm
		queue                     *policy.Queue
		has, paced, meter, isDoor bool
		capacity                  int64
	}{
		{policy.LeakingBucket, nil, true, true, false, false, 7},
		{policy.LeakingBucket, &policy.Queue{Off: true}, false, false, true, false, 0},
		{policy.TokenBucket, nil, false, false, false, true, 0},
		{policy.TokenBucket, &policy.Queue{Off: true}, false, false, false, true, 0},
		{policy.SlidingCounter, &policy.Queue{Capacity: 9}, true, false, false, true, 9},
	} {
		p := policy.Policy{Rule: policy.Rule{Algorithm: test.algorithm, Capacity: 7},
			Queue: test.queue}
		if p.HasQueue() != test.has || p.Paced() != test.paced || p.Meter() != test.meter ||
			p.Door() != test.isDoor ||
			p.QueueCapacity() != test.capacity {
			t.Errorf("%s with queue %+v: has %v, paced %v, meter %v, door %v, capacity %d",
				test.algorithm, test.queue,
				p.HasQueue(), p.Paced(), p.Meter(), p.Door(), p.QueueCapacity())
		}
	}
}
