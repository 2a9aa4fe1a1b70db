package workers

import (
	"testing"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/timepiece"
)

// A worker may make its last check before the loop sees a jump of the clock, so the core's count of
// jumps may differ.
func TestTheLastCheckNoticesAJump(t *testing.T) {
	g := gate{clock: timepiece.New()}
	g.set(pace.Never, g.clock.Jumps())
	if fence, now := g.check(); now >= fence {
		t.Fatalf("the fence %v is closed at %v", fence, now)
	}
	g.heard.Add(1)
	if fence, now := g.check(); now < fence {
		t.Error("the fence is open after a jump")
	}
	g.heard.Store(g.clock.Jumps())
	if fence, now := g.check(); now >= fence {
		t.Error("the fence is closed although the core has heard of the jump")
	}
}
