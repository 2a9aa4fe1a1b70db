package main

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTheAPIAllowsItsLimitInAnySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{began: time.Now()}
		for i := range limit {
			if !a.take() {
				t.Fatalf("request %d of %d is refused", i+1, limit)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if a.take() {
			t.Error("another request is allowed in the same second")
		}
		time.Sleep(time.Second - limit*10*time.Millisecond)
		if !a.take() || a.take() {
			t.Error("want one place a second after the first request")
		}
		if a.refused != 2 || len(a.came) != limit+3 {
			t.Errorf("%d of %d requests are refused, want 2 of %d", a.refused, len(a.came), limit+3)
		}
	})
}
