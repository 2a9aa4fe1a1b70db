package alarm

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// The loop sets its alarm for the past while it has work, and must wake up each time.
func TestAnAlarmThatHasRungRingsAgainForTheSameInstant(t *testing.T) {
	a, err := New()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.Run()
	}()
	for turn := range 100 {
		if err := a.Set(0, func() pace.Instant { return pace.Instant(time.Hour) }); err != nil {
			t.Fatal(err)
		}
		select {
		case <-a.Rings:
			if a.Rang(); a.at == 0 {
				t.Fatal("it counts as set for an instant at which it has rung")
			}
		case <-time.After(waittest.Patience()):
			t.Fatalf("it does not ring in turn %d", turn)
		}
	}
	a.Stop()
	<-ended
}
