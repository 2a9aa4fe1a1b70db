package algorithms_test

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

func TestFixedWindowPassesTwiceTheLimitAcrossAnEdge(t *testing.T) {
	rule := algorithms.FixedWindow{Limit: 5, Window: time.Minute}
	timeline(t, rule, algorithms.FixedWindowState{}, []step{
		{at: "01:00:59.9", n: 5, allowed: true},
		{at: "01:00:59.999999", allowed: false, retry: time.Microsecond},
		{at: "01:01:00", n: 5, allowed: true},
		{at: "01:01:00", allowed: false, retry: time.Minute},
	})
}

func TestFixedWindowIsAlignedToTheClock(t *testing.T) {
	now := time.Date(2026, 3, 4, 15, 20, 30, 0, time.UTC)
	for _, test := range []struct {
		window time.Duration
		reset  time.Time
		epoch  bool
	}{
		{time.Second, time.Date(2026, 3, 4, 15, 20, 31, 0, time.UTC), false},
		{time.Minute, time.Date(2026, 3, 4, 15, 21, 0, 0, time.UTC), false},
		{time.Hour, time.Date(2026, 3, 4, 16, 0, 0, 0, time.UTC), false},
		{24 * time.Hour, time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC), false},
		{7 * 24 * time.Hour, time.Date(2026, 3, 9, 0, 0, 0, 0, time.UTC), false},
		{7 * 24 * time.Hour, time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC), true},
		{30 * 24 * time.Hour, time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC), false},
		{30 * 24 * time.Hour, time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC), true},
		{365 * 24 * time.Hour, time.Date(2026, 12, 18, 0, 0, 0, 0, time.UTC), true},
	} {
		_, d := algorithms.FixedWindow{Limit: 5, Window: test.window,
			SinceEpoch: test.epoch}.Take(algorithms.FixedWindowState{}, now, 1)
		if got := now.Add(d.ResetAfter); !got.Equal(test.reset) {
			t.Errorf("window %s: resets at %s, want %s", test.window, got, test.reset)
		}
	}
}

func TestFixedWindowSurvivesAClockThatSwingsAcrossAnEdge(t *testing.T) {
	rule := algorithms.FixedWindow{Limit: 2, Window: time.Minute}
	timeline(t, rule, algorithms.FixedWindowState{}, []step{
		{at: "01:00:59", n: 2, allowed: true},
		{at: "01:01:00", n: 2, allowed: true},
		{at: "01:00:59", allowed: false, retry: 61 * time.Second},
		{at: "01:01:00", allowed: false, retry: 60 * time.Second},
		{at: "01:02:00", allowed: true},
	})
}

func TestFixedWindowIsNotLockedByAClockThatStepsBackFar(t *testing.T) {
	rule := algorithms.FixedWindow{Limit: 2, Window: time.Minute}
	timeline(t, rule, algorithms.FixedWindowState{}, []step{
		{at: "05:00:30", n: 2, allowed: true},
		{at: "01:00:30", allowed: false, retry: 90 * time.Second},
		{at: "01:02:00", allowed: true},
	})
}
