package valve

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func TestReturnedJobsKeepTheirOrder(t *testing.T) {
	b := newValveBench(t, leaky("api", "2000/s"))
	b.arrive("a")
	b.v.Advance(b.now, pace.Never)
	b.at(500*time.Microsecond).arrive("a", priority(1))
	b.v.Advance(b.now, pace.Never)
	b.at(ms).arrive("a")
	b.v.Advance(b.now, pace.Never)
	runs := append([]Run(nil), b.out.Starts...)
	b.out.Starts = nil
	if len(runs) != 3 {
		t.Fatalf("started %s", b.seqs(runs))
	}
	closed := func() (fence, now pace.Instant) { return 0, b.now }
	open := func() (fence, now pace.Instant) { return pace.Never, b.now }
	if _, passed := runs[0].Decide(closed, nil); passed {
		t.Fatal("job 1 starts behind the fence")
	}
	if _, passed := runs[1].Decide(open, nil); !passed {
		t.Error("job 2, of a higher priority, does not start")
	}
	if _, passed := runs[2].Decide(open, nil); passed {
		t.Error("job 3 starts before job 1, of the same bucket and priority, which came back")
	}
	for _, i := range []int{2, 0} {
		b.end(runs[i], record.Outcome{Kind: record.OutcomeReturned})
	}
	b.done(runs[1])
	b.arrive("a")
	var order []uint64
	b.until(second, func(r Run) {
		order = append(order, r.Seq)
		b.done(r)
	})
	if len(order) != 3 || order[0] != 1 || order[1] != 3 || order[2] != 4 {
		t.Errorf("afterwards start %v, want 1, 3 and 4", order)
	}
}
