package memstore

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestClockTellsTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		for range 20 {
			if got, want := c.now(), time.Now(); !got.Equal(want) {
				t.Errorf("%v, want %v", got, want)
			}
			time.Sleep(maxAge * 3 / 10)
		}
	})
}

func TestClockIsAtMostAMillisecondOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.now()
		first := c.both.Load()
		time.Sleep(maxAge - time.Nanosecond)
		if c.now(); c.both.Load() != first {
			t.Error("both clocks were read again too early")
		}
		time.Sleep(time.Nanosecond)
		if c.now(); c.both.Load() == first {
			t.Error("the wall clock was not read again")
		}
	})
}
