package inforce_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
)

func TestLevers(t *testing.T) {
	p, err := policy.Read([]byte(`{"name":"billing","algorithm":"leaking_bucket","outflow":"96/s",` +
		`"peak":"100/s","burst":5,"capacity":10,"adaptive_rate":{"min":"5/s"}}`))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	expires := now.Add(time.Hour)
	var levers inforce.Levers
	pull := func(patch string, l inforce.Lever) {
		t.Helper()
		l.At = now
		if levers, err = levers.Patch([]byte(patch), l); err != nil {
			t.Fatal(err)
		}
	}
	says := func(at time.Time, want ...string) inforce.Entry {
		t.Helper()
		e := inforce.Entry{Written: p, Levers: levers.At(at), Source: inforce.SourceFile}
		e.InForce()
		if got := e.Overridden(at); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if problems := e.Policy.Validate(); len(problems) > 0 {
			t.Error(problems)
		}
		return e
	}
	pull(`{"outflow":"2/s"}`, inforce.Lever{By: "ann", Because: "their incident", Expires: &expires})
	pull(`{"paused":true,"burst":7}`, inforce.Lever{By: "bob"})
	e := says(now.Add(37*time.Minute), "file: 96/s, now 2/s by ann, 23m left: their incident",
		"file: burst 5, running, now burst 7, paused by bob")
	if e.Policy.Outflow.Count != 2 || !e.Policy.Peak.IsZero() || !e.Paused || e.Policy.Burst != 7 ||
		e.Policy.AdaptiveRate.Min.Count != 2 {
		t.Errorf("in force: %+v, paused %t", e.Policy, e.Paused)
	}
	says(expires.Add(-time.Second), "file: 96/s, now 2/s by ann, 1s left: their incident",
		"file: burst 5, running, now burst 7, paused by bob")
	if e := says(expires, "file: burst 5, running, now burst 7, paused by bob"); !e.Paused {
		t.Error("one lever's end ends another's pause")
	}
	pull(`{"burst":null,"outflow":"3/s"}`, inforce.Lever{})
	says(now, "file: running, now paused by bob", "file: 96/s, now 3/s")
	pull(`{"paused":false,"outflow":null}`, inforce.Lever{})
	if e := says(now); len(levers) > 0 || e.Paused || e.Policy.Outflow.Count != 96 {
		t.Errorf("left: %+v", levers)
	}

	// What the file then says may leave no room for the override.
	p.Capacity, p.Burst, p.Outflow.Count, p.Peak.Count = 4, 1, 200, 300
	pull(`{"burst":9,"peak":"100/s","capacity":3}`, inforce.Lever{})
	e = says(now, "file: peak 300/s, burst 1, capacity 4, now peak 100/s, burst 9, capacity 3")
	if e.Policy.Burst != 4 || e.Policy.Capacity != 4 {
		t.Errorf("in force: %+v", e.Policy)
	}
	for patch, field := range map[string]string{`{"capacity":3}`: "capacity", `{"burst":9}`: "burst",
		`{"peak":"1/s"}`: "peak", `{"weight":2000}`: "weight"} {
		levers = nil
		pull(patch, inforce.Lever{})
		problems := levers.Override().ValidateAll(p)
		if len(problems) != 1 || problems[0].Field != field {
			t.Errorf("%s: %v", patch, problems)
		}
	}
}

func TestOverridesOfWhatAPolicyHasNot(t *testing.T) {
	for text, patches := range map[string]map[string]string{
		`{"name":"a","algorithm":"token_bucket","capacity":2,"refill":"1/s"}`: {
			`{"outflow":"1/s"}`: "outflow", `{"capacity":4}`: "capacity", `{"paused":true}`: "paused"},
		`{"name":"a","algorithm":"leaking_bucket","outflow":"2/s","capacity":2,"queue":false}`: {
			`{"outflow":"1/s"}`: "", `{"concurrency":1}`: "concurrency"},
	} {
		p, err := policy.Read([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for patch, field := range patches {
			levers, err := inforce.Levers{}.Patch([]byte(patch), inforce.Lever{})
			if err != nil {
				t.Fatal(err)
			}
			problems := levers.Override().ValidateAll(p)
			if field == "" && len(problems) > 0 ||
				field != "" && (len(problems) != 1 || problems[0].Field != field) {
				t.Errorf("%s of %s: %v", patch, text, problems)
			}
		}
	}
}
