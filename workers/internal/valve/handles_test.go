package valve

import (
	"testing"

	"github.com/penstock-mq/penstock/workers/internal/record"
)

func TestAnOutcomeIsHeardOnce(t *testing.T) {
	p := leaky("api", "10/s")
	p.Workers = 2
	b := newValveBench(t, p)
	b.arrive("a")
	b.arrive("b")
	runs := b.start()
	b.p.restart()
	for range 2 {
		b.end(runs[0], record.Outcome{Kind: record.OutcomeDone})
	}
	if b.v.Crew.Busy != 1 || b.p.buckets["a"] != nil && b.p.buckets["a"].Running != 0 {
		t.Errorf("%d workers are busy, want the one of the other run", b.v.Crew.Busy)
	}
	if b.end(runs[1], record.Outcome{Kind: record.OutcomeDone}); b.v.Crew.Busy != 0 ||
		!b.v.Crew.Idle() {
		t.Errorf("%d workers are busy; no run is remembered: %t", b.v.Crew.Busy,
			b.v.Crew.Idle())
	}
}
