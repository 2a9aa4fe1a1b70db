package valve

import (
	"testing"
)

func TestARecordHasTheLastSequence(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	b.p.highest, b.p.last = 5, 9
	if h := b.p.Handover(b.now); h.Last != 9 {
		t.Errorf("told %d, want 9", h.Last)
	}
	b.p.highest = 12
	if h := checkpointed(b.p, b.now, second); h.Last != 12 {
		t.Errorf("told %d, want 12", h.Last)
	}
}
