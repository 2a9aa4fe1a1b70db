package algorithms_test

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

func at(t *testing.T, clock string) time.Time {
	t.Helper()
	parsed, err := time.Parse("2006-01-02 15:04:05.999999", "2026-03-02 "+clock)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// step is one request of a timeline: n units (0 means 1) at an instant, and the expected decision.
type step struct {
	at      string
	n       int64
	allowed bool
	retry   time.Duration
	delay   time.Duration
}

func timeline[S any](t *testing.T, rule algorithms.Rule[S], s S, steps []step) S {
	t.Helper()
	if err := rule.Validate(); err != nil {
		t.Fatal(err)
	}
	for i, want := range steps {
		var d algorithms.Decision
		s, d = rule.Take(s, at(t, want.at), max(1, want.n))
		if d.Allowed != want.allowed || d.RetryAfter != want.retry || d.Delay != want.delay {
			t.Errorf("step %d at %s: got allowed %t, retry after %s, delay %s; want %t, %s, %s",
				i, want.at, d.Allowed, d.RetryAfter, d.Delay, want.allowed, want.retry, want.delay)
		}
	}
	return s
}

// clone copies a state, because requests may change the original.
func clone[S any](s S) S {
	if log, ok := any(s).(algorithms.SlidingLogState); ok {
		return any(log.Clone()).(S)
	}
	return s
}

func perMinute(n int64) algorithms.Rate { return algorithms.Rate{Count: n, Per: time.Minute} }
func perSecond(n int64) algorithms.Rate { return algorithms.Rate{Count: n, Per: time.Second} }
