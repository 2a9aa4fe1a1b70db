package natsconn

import (
	"testing"
	"time"
)

func TestThePauseBetweenMovesDoublesUntilTheyStop(t *testing.T) {
	var m moves
	now := time.Now()
	step := func(want time.Duration) {
		t.Helper()
		if !m.may(now) {
			t.Fatal("it may not move")
		}
		m.made(now)
		if m.may(now.Add(want - time.Millisecond)) {
			t.Errorf("it may move again within %v", want)
		}
		if now = now.Add(want); !m.may(now) {
			t.Errorf("it may not move again after %v", want)
		}
	}
	for _, want := range []time.Duration{6, 12, 24, 48, 60, 60} {
		step(want * time.Second)
	}
	now = now.Add(2 * moveLast)
	step(moveAgain)
}
