package core

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Starts during a renewed epoch are only in the checkpoint, earlier ones perhaps only in the
// record.
func TestStartsDuringARenewedEpochAreKnown(t *testing.T) {
	p := leaky("api", "10/s")
	c := coreBench(t, p)
	now := c.run(origin, 2*second, nil)
	s := c.shares.all["api.0"]
	c.Handle(Arrived{Part: s.part.Partition, Epoch: s.part.Epoch,
		Jobs: []job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}},
		now)
	c.out = actions{}
	c.take(s, now)
	claim := c.out.puts[0]
	before := checkpointed(s.part, now, simulatedLease)
	c.valves.all["api"].Advance(now, pace.Never)
	after := checkpointed(s.part, now, simulatedLease)
	if len(before.Running) != 0 || len(after.Running) != 1 {
		t.Fatalf("running %v, then %v", before.Running, after.Running)
	}
	var r record.Owner
	if err := record.Decode(claim.value, &r); err != nil {
		t.Fatal(err)
	}
	after.At = r.At
	next := coreBench(t, p)
	successor := &share{policy: "api",
		before: ownership{exists: true, record: r, revision: s.revision + 1}}
	in := next.inheritance(successor, Opened{
		Checkpoint: record.Checkpoint{V: record.Version, Owner: r.Owner, Epoch: s.part.Epoch,
			Handover: after},
	}, now)
	if len(in.Handover.Running) != 1 {
		t.Errorf("inherited %+v, want what started after the claim was written",
			in.Handover.Running)
	}
	r.Running, before.At = after.Running, r.At-1
	successor.before.record = r
	in = next.inheritance(successor, Opened{
		Checkpoint: record.Checkpoint{V: record.Version, Owner: r.Owner, Epoch: s.part.Epoch,
			Handover: before},
	}, now)
	if len(in.Handover.Running) != 1 {
		t.Errorf(
			"inherited %+v, want what started before the claim was written and was not noted yet",
			in.Handover.Running)
	}
}

// An owner that crashes before its first checkpoint leaves what the record told that it replaced.
func TestATakingRepeatsWhatItsRecordTold(t *testing.T) {
	p := leaky("api", "10/s")
	c := coreBench(t, p)
	now := c.run(origin, 2*second, nil)
	s := &share{policy: "api", ownership: ownership{exists: true, stored: originWall,
		record: record.Owner{Released: true, Handover: record.Handover{Ended: []uint64{7}}}}}
	c.take(s, now)
	var r record.Owner
	puts := c.out.puts
	if err := record.Decode(puts[len(puts)-1].value, &r); err != nil {
		t.Fatal(err)
	}
	s.before = ownership{exists: true, record: r, revision: 9}
	in := coreBench(t, p).inheritance(s, Opened{Checkpoint: record.Checkpoint{
		Handover: record.Handover{Ended: []uint64{5}}}}, now)
	if !in.Crashed || !slices.Equal(in.Handover.Ended, []uint64{5, 7}) {
		t.Errorf("inherited %v", in.Handover.Ended)
	}
}

// checkpointed returns a checkpoint's record, with clocks later than within from now.
func checkpointed(p *partition, now pace.Instant, within time.Duration) record.Handover {
	g := p.Gather()
	g.Some(p.Buckets(), now, now.Add(within))
	h := p.HandoverBut(now)
	h.Clocks = append(h.Clocks, g.Records(now, h)...)
	return h
}
