package valve

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A leader that had been cut off had not applied the confirmed acknowledgement. Seconds later the
// reopened backlog delivered the job, and it ran again.
func TestAFinishedJobThatIsStillStoredIsKnownSecondsLater(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	b.arrive("a")
	r := b.start()[0]
	b.end(r, record.Outcome{Kind: record.OutcomeDone})
	b.p.Confirmed(r.Seq, b.now)
	b.now = b.now.Add(10 * second)
	if h := b.p.Handover(b.now); !slices.Equal(h.Done, []uint64{r.Seq}) {
		t.Errorf("hands over %v as finished, want job %d", h.Done, r.Seq)
	}
	b.p.Reopen(2)
	if j := b.deliver(r.Seq, "a"); j.stage != stageAcking {
		t.Errorf("delivered again, it is in stage %v, want it acknowledged", j.stage)
	}
	b.p.Confirmed(r.Seq, b.now)
	b.p.last = r.Seq
	b.p.Swept(b.now)
	b.now = b.now.Add(time.Minute)
	if h := b.p.Handover(b.now); len(h.Done) > 0 {
		t.Errorf("hands over %v as finished long after", h.Done)
	}
}
