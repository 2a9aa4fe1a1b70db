package envoy_test

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/internal/server/envoy"
)

// internal/envoytest compares these with envoyproxy/ratelimit's own answers.
const like = `
domain: edge
descriptors:
- {key: mid, value: bar*b, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: mid, value: foo*bar*baz, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: twice, value: x*ab*ab*y, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: ends, value: aba*aba, rate_limit: {unit: day, requests_per_unit: 1}}
- key: shared
  value: /api*v1
  share_threshold: true
  value_to_metric: true
  rate_limit: {unit: day, requests_per_unit: 2}
- {key: one, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}, metadata: {a: [1]}}
- {key: two, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: hard, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: ten, rate_limit: {unit: day, requests_per_unit: 10}}
- {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 10}}
- {key: closed, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: detailed, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 9}}
- key: valued
  value_to_metric: true
  descriptors:
  - {key: plain, rate_limit: {unit: day, requests_per_unit: 9}}
`

func TestAWildcardMatchesInTheMiddle(t *testing.T) {
	s, _, _ := serve(t, envoy.Options{}, like)
	ask := asking(t, s)
	ask(1, []int64{0, 0, 0}, of("mid", "bar1b"), of("mid", "barb"), of("mid", "foobarbarbaz"))
	ask(1, []int64{-1, -1, -1}, of("mid", "bar1b"), of("mid", "barb"), of("mid", "foobarbarbaz"))
	ask(1, []int64{-2, -2, -2}, of("mid", "bar1"), of("mid", "foobaz"), of("mid", "foobazbar"))
	ask(1, []int64{-2, 0}, of("ends", "aba"), of("ends", "abaaba"))
	ask(1, []int64{-2, 0}, of("twice", "xab-y"), of("twice", "xabaaby"))
	ask(1, []int64{1, 0, -1}, of("shared", "/apiv1"), of("shared", "/api/2/v1"),
		of("shared", "/api3v1"))
}

// A request is over when all of its quota limits are, or another limit.
func TestQuotaLimitsRefuseTogether(t *testing.T) {
	s, _, _ := serve(t, envoy.Options{}, like)
	one, two, hard := of("one", ""), of("two", ""), of("hard", "")
	for i, c := range []struct {
		of   []*descriptor
		over bool
	}{
		{[]*descriptor{one, two}, false},
		{[]*descriptor{one, two}, false},
		{[]*descriptor{one, of("ten", ""), of("unknown", "")}, true},
		{[]*descriptor{two, of("ten", "")}, true},
		{[]*descriptor{of("two", "b"), hard}, false},
		{[]*descriptor{of("two", "b"), hard}, true},
	} {
		a, err := decide(t.Context(), s, 1, c.of...)
		if err != nil || (a.OverallCode == over) != c.over {
			t.Errorf("%d: %v, %v; want over %v", i, a, err, c.over)
		}
	}
}

func TestHitsAreCountedAsInTheReference(t *testing.T) {
	for text, c := range map[string]struct {
		key, value string
		hits       []uint32
		want       map[string]int64
	}{
		"across the limit": {"ten", "", []uint32{7, 5, 5}, map[string]int64{
			"envoy.edge.ten total_hits":   17,
			"envoy.edge.ten within_limit": 7, "envoy.edge.ten near_limit": 2,
			"envoy.edge.ten over_limit": 7}},
		"above at once": {"ten", "", []uint32{25}, map[string]int64{
			"envoy.edge.ten total_hits": 25,
			"envoy.edge.ten near_limit": 2, "envoy.edge.ten over_limit": 15}},
		"near": {"ten", "", []uint32{7, 2, 1}, map[string]int64{
			"envoy.edge.ten total_hits":   10,
			"envoy.edge.ten within_limit": 10, "envoy.edge.ten near_limit": 2}},
		"shadow_mode": {"shadow", "", []uint32{9, 2}, map[string]int64{
			"envoy.edge.shadow total_hits":   11,
			"envoy.edge.shadow within_limit": 9, "envoy.edge.shadow near_limit": 2,
			"envoy.edge.shadow over_limit": 1, "envoy.edge.shadow shadow_mode": 1}},
		"a limit of 0": {"closed", "", []uint32{3}, map[string]int64{
			"envoy.edge.closed total_hits": 3,
			"envoy.edge.closed over_limit": 3}},
		"detailed_metric": {"detailed", "x", []uint32{3}, map[string]int64{
			"envoy.edge.detailed_x total_hits": 3, "envoy.edge.detailed_x within_limit": 3}},
		"value_to_metric of a wildcard": {"shared", "/api2v1", []uint32{1}, map[string]int64{
			"envoy.edge.shared_/api*v1 total_hits":   1,
			"envoy.edge.shared_/api*v1 within_limit": 1}},
	} {
		s, _, heard := serve(t, envoy.Options{}, like)
		for _, n := range c.hits {
			if _, err := decide(t.Context(), s, n, of(c.key, c.value)); err != nil {
				t.Fatal(err)
			}
		}
		if !maps.Equal(heard.hits, c.want) {
			t.Errorf("%s: %v, want %v", text, heard.hits, c.want)
		}
	}
}

// Requests' values make at most a thousand names of hits, until the limit is gone.
func TestNamesOfHitsAreBounded(t *testing.T) {
	s, file, heard := serve(t, envoy.Options{}, like)
	ask := func(n int) {
		t.Helper()
		for i := range n {
			_, err := decide(t.Context(), s, 1, of("detailed", fmt.Sprint(i)))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	ask(1200)
	if n := heard.hits["envoy.edge.detailed total_hits"]; n != 200 {
		t.Errorf("%d hits are counted by the limit's own name, want 200", n)
	}
	write(t, "", file, "domain: edge")
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	write(t, "", file, like)
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	ask(1)
	if n := heard.hits["envoy.edge.detailed_0 total_hits"]; n != 2 {
		t.Errorf("%d hits are counted by their value, want 2", n)
	}
}

// Months have 30 days and years 365, since 1 January 1970.
func TestMonthsAndYearsBeginAsInTheReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 7, 6, 0, 0, 0, 0, time.UTC)))
		s, _, _ := serve(t, envoy.Options{}, "domain: edge\ndescriptors:\n"+
			"- {key: month, rate_limit: {unit: month, requests_per_unit: 1}}\n"+
			"- {key: year, rate_limit: {unit: year, requests_per_unit: 1}}\n"+
			"- {key: never, rate_limit: {unit: year, requests_per_unit: 0}}\n")
		a, err := decide(t.Context(), s, 1, of("month", ""), of("year", ""), of("never", ""))
		if err != nil {
			t.Fatal(err)
		}
		for i, days := range []time.Duration{30, 165, 165} {
			got := a.Statuses[i].DurationUntilReset.AsDuration()
			if want := days * 24 * time.Hour; got != want {
				t.Errorf("%d: the window ends in %s, want %s", i, got, want)
			}
		}
	})
}
