package inforce_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
)

func ExampleParseOverride() {
	p, err := policy.Read(
		[]byte(`{"name":"stripe", "algorithm":"leaking_bucket", "outflow":"96/s", "capacity":500}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	o, err := inforce.ParseOverride([]byte(`{"outflow":"5/s", "weight":3}`))
	fmt.Println(o.Outflow, err)
	for _, problem := range o.Validate(p) {
		fmt.Println(problem)
	}
	// Output:
	// 5/s <nil>
	// weight: requires an outflow_total or a limit for all keys in the policy
}

func TestParseOverride(t *testing.T) {
	for _, text := range []string{
		`{}`, `{"outflow":"3/10s"}`, `{"burst":2,"concurrency":0}`, `{"weight":1000,"paused":true}`,
		`{"outflow":"1/s","peak":"2/s","burst":1,"concurrency":5,"weight":1}`,
	} {
		o, err := inforce.ParseOverride([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		written, err := json.Marshal(o)
		if err != nil || string(written) != text {
			t.Errorf("%s is written as %s, %v", text, written, err)
		}
		if o.IsZero() != (text == `{}`) {
			t.Errorf("%s: IsZero is %v", text, o.IsZero())
		}
	}
	for text, want := range map[string]string{
		``:                        "is not JSON: unexpected end",
		`[]`:                      "want fields, not a list",
		`{"limit":5}`:             "limit: unknown field",
		`{"outflow":5}`:           "outflow: 5: want a rate",
		`{"outflow":"0/s"}`:       `outflow: "0/s": the rate must be positive`,
		`{"burst":0}`:             "burst: must not be 0",
		`{"weight":0}`:            "weight: must not be 0",
		`{"weight":1.5}`:          "weight: 1.5: want a whole number",
		`{"concurrency":"2"}`:     `concurrency: "2": want a whole number`,
		`{"paused":1}`:            "paused: 1: want true or false",
		`{"paused":"yes"}`:        `paused: "yes": want true or false`,
		`{"burst":1,"burst":2}`:   "burst: is given twice",
		`{"burst":1} {"burst":1}`: "is not JSON: invalid character",
	} {
		o, err := inforce.ParseOverride([]byte(text))
		if _, ok := errors.AsType[*policy.InvalidError](err); !ok ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s says %v, want %s", text, err, want)
		}
		if !o.IsZero() {
			t.Errorf("%s: an override beside the error", text)
		}
	}
	if o, err := inforce.ParseOverride([]byte(`{"outflow":null,"paused":null}`)); err != nil ||
		!o.IsZero() {
		t.Errorf("nulls: %+v, %v", o, err)
	}
}

func TestOverrideValidate(t *testing.T) {
	paced := policy.Policy{Name: "a",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 10,
			Outflow: algorithms.Rate{Count: 1, Per: time.Second}}}
	total := paced
	total.Outflow, total.OutflowTotal = algorithms.Rate{}, paced.Outflow
	door := policy.Policy{Name: "b",
		Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 5,
			Window: policy.Duration(time.Minute)},
		Queue: &policy.Queue{Capacity: 5}}
	check := door
	check.Queue = nil
	n := func(n int64) *int64 { return &n }
	none, slow := 0, algorithms.Rate{Count: 1, Per: 365 * 24 * time.Hour}
	twice := algorithms.Rate{Count: 2, Per: time.Second}
	negative, huge := -1, 1_000_000+1
	for name, test := range map[string]struct {
		policy   policy.Policy
		override inforce.Override
		want     []string
	}{
		"nothing": {paced, inforce.Override{}, nil},
		"all that paces": {paced,
			inforce.Override{Outflow: &slow, Burst: n(10), Concurrency: &none, Paused: true}, nil},
		"peak":            {paced, inforce.Override{Peak: &twice}, nil},
		"peak of its own": {total, inforce.Override{Outflow: &slow, Peak: &slow}, nil},
		"peak below": {paced, inforce.Override{Peak: &slow},
			[]string{"peak: must be at least"}},
		"peak under total": {total, inforce.Override{Peak: &twice},
			[]string{"peak: requires an outflow"}},
		"peak of a door": {door, inforce.Override{Peak: &twice},
			[]string{"peak: applies only to leaking_bucket"}},
		"weight":             {total, inforce.Override{Weight: n(1000)}, nil},
		"a pace under total": {total, inforce.Override{Outflow: &paced.Outflow, Burst: n(2)}, nil},
		"door":               {door, inforce.Override{Concurrency: &none, Paused: true}, nil},
		"without a queue": {check, inforce.Override{Paused: true},
			[]string{"policy b has no queue"}},
		"weight without": {paced, inforce.Override{Weight: n(2)},
			[]string{"weight: requires an outflow_total"}},
		"weight too large": {total, inforce.Override{Weight: n(1001)},
			[]string{"weight: must be 1 to 1000, not 1001"}},
		"negative weight": {total, inforce.Override{Weight: n(-1)},
			[]string{"weight: must be 1 to 1000, not -1"}},
		"burst under total": {total, inforce.Override{Burst: n(2)},
			[]string{"burst: requires an outflow"}},
		"burst over capacity": {paced, inforce.Override{Burst: n(11)},
			[]string{"burst: must be at most the capacity (10), not 11"}},
		"pace of a door": {door, inforce.Override{Outflow: &slow, Burst: n(1)}, []string{
			"outflow: applies only to leaking_bucket, not to sliding_log",
			"burst: applies only to leaking_bucket",
		}},
		"rate from Go": {paced, inforce.Override{Outflow: &algorithms.Rate{}},
			[]string{"outflow: is required"}},
		"bad rate from Go": {paced, inforce.Override{Outflow: &algorithms.Rate{Count: -1}},
			[]string{"outflow: -1/0s: "}},
		"negative concurrency": {paced, inforce.Override{Concurrency: &negative},
			[]string{"concurrency: must be 1 to"}},
		"huge concurrency": {paced, inforce.Override{Concurrency: &huge},
			[]string{"concurrency: must be 1 to"}},
	} {
		got := test.override.Validate(test.policy)
		if len(got) != len(test.want) {
			t.Errorf("%s: found %q, want %q", name, got, test.want)
			continue
		}
		for i, problem := range got {
			if !strings.HasPrefix(problem.String(), test.want[i]) {
				t.Errorf("%s: found %q, want %q", name, problem, test.want[i])
			}
		}
	}
	deep := paced
	deep.Capacity = 1000
	if got := (inforce.Override{Outflow: &slow}).Validate(deep); len(got) != 1 ||
		!strings.Contains(got[0].Reason, "100 years") {
		t.Errorf("a bucket that never empties: %q", got)
	}
}

func TestParseOverrideKnowsEveryField(t *testing.T) {
	for field := range reflect.TypeFor[inforce.Override]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if _, err := inforce.ParseOverride([]byte(`{"` + name + `":null}`)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A key with another outflow keeps the ratio of the policy's peak, unless it has a peak too.
func TestPeaksAreAboveTheirOutflows(t *testing.T) {
	rate := func(n int64) algorithms.Rate { return algorithms.Rate{Count: n, Per: time.Second} }
	fast, peak := rate(500), rate(600)
	p := policy.Policy{Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: rate(100)},
		OutflowTotal: rate(1000)}
	named := p
	named.Peak, named.PeakTotal = rate(104), rate(1000)
	faster := p
	faster.Outflow = rate(900)
	for name, c := range map[string]struct{ got, want float64 }{
		"none":                 {p.PeakRatio(), policy.DefaultPeak},
		"none in total":        {p.PeakTotalRatio(), policy.DefaultPeak},
		"of an unpaced policy": {policy.Policy{}.PeakRatio(), policy.DefaultPeak},
		"named":                {named.PeakRatio(), 1.04},
		"named in total":       {named.PeakTotalRatio(), 1},
		"of a faster key":      {inforce.Override{Outflow: &fast}.PeakRatio(named), 1.04},
		"of its own": {inforce.Override{Outflow: &fast, Peak: &peak}.PeakRatio(named),
			1.2},
		"above the policy's rate":  {inforce.Override{Peak: &peak}.PeakRatio(named), 6},
		"overtaken by the outflow": {inforce.Override{Peak: &fast}.PeakRatio(faster), 1},
	} {
		if math.Abs(c.got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}
