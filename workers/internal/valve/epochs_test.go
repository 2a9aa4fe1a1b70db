package valve

import (
	"slices"
	"testing"

	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// After a sweep, jobs stored before the opening that did not arrive are gone, and their
// acknowledgements confirmed. Jobs that arrived, or may have been stored since, stay.
func TestASweepRemovesOnlyMissingJobs(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	for range 5 {
		b.arrive("a")
	}
	b.end(b.start()[0], record.Outcome{Kind: record.OutcomeDone})
	b.p.Reopen(2)
	b.p.legacy.Inherit(inheritance.State{Handover: record.Handover{Done: []uint64{9}}}, nil, 0,
		b.now)
	b.deliver(4, "a")
	b.p.last = 4
	b.p.Swept(b.now)
	if b.p.jobs[1] != nil {
		t.Error("the acknowledgement of job 1 is still waited for")
	}
	if !b.p.legacy.Finished(9, 0, false, b.now) {
		t.Error("that job 9 is finished is forgotten before it can have come")
	}
	var seqs []uint64
	b.until(second, func(r Run) { seqs = append(seqs, r.Seq); b.done(r) })
	if !slices.Equal(seqs, []uint64{4, 5}) || b.out.Vanished != 2 {
		t.Errorf("started %v, want 4 and 5; %d are told as gone, want 2", seqs, b.out.Vanished)
	}
}
