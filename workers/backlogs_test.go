package workers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestASlowOpeningGivesUpItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bs := &backlogs{places: make(chan struct{}, 1)}
		slow := bs.enter(t.Context())
		began := time.Now()
		next := bs.enter(t.Context())
		if waited := time.Since(began); waited != openPatience {
			t.Errorf("the next one waited %v", waited)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		bs.enter(over)()
		slow()
		next()
		if n := len(bs.places); n != 0 {
			t.Errorf("%d places are taken in the end", n)
		}
	})
}
