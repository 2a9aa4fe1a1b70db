package store

import (
	"testing"
	"time"
)

func TestCallsWithAllPoliciesTakeAThirdOfTheTime(t *testing.T) {
	for call, want := range map[time.Duration]time.Duration{0: 0,
		10 * time.Millisecond: 20 * time.Millisecond, time.Minute: time.Second} {
		if got := pauseAfter(call); got != want {
			t.Errorf("after a call of %v comes a pause of %v, want %v", call, got, want)
		}
	}
}
