package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func slowBuckets(t *testing.T, buckets int) (*Core, *partition, pace.Instant) {
	c := coreBench(t, leaky("slow", "10/h"))
	left := record.Owner{V: record.Version, Owner: "before", Released: true}
	for i := range buckets {
		next := record.Micros(6*time.Minute - time.Duration(i)*ms)
		left.Clocks = append(left.Clocks, record.Clock{Key: slowKey(i), Due: next, Tat: next})
	}
	c.Handle(Watched{TablePartitions, "slow.0",
		Record{Exists: true, Value: record.Encode(left), Revision: 8, Stored: originWall}}, origin)
	part, now := takeOver(c, Opened{Taken: originWall})
	part.gathering = nil
	part.Checkpoints.Replace(part.Checkpoints.Revision)
	c.out = actions{}
	return c, part, max(now, part.checkpointDue())
}

func slowKey(i int) queue.Key { return queue.Key(fmt.Sprintf("tenant.%06d", i)) }

func TestACheckpointOfManyBucketsIsGatheredInTurns(t *testing.T) {
	const buckets = 5*mostGathered + 7
	const before, after = buckets - mostGathered + 100, buckets / 2
	c, part, now := slowBuckets(t, buckets)
	turns := 0
	var noted record.Checkpoint
	for ; noted.V == 0; now = now.Add(ms) {
		turns++
		c.Checkpoint(now)
		for _, w := range c.out.puts {
			if err := record.Decode(w.Bytes(), &noted); err != nil {
				t.Fatal(err)
			}
			c.Handle(Written{w, 99}, now)
		}
		c.out = actions{}
		switch turns {
		case 1:
			faster := leaky("", "1/s").Outflow
			for _, i := range []int{before, after} {
				c.Handle(Overridden{"slow", slowKey(i), inforce.Override{Outflow: &faster}}, now)
			}
			part.Checkpoints.Changed = true
		case 2:
			if at := c.Wake(now); at > now {
				t.Errorf("the next turn comes in %v", at.Since(now))
			}
		}
	}
	if turns != 6 {
		t.Errorf("it took %d turns, want 6", turns)
	}
	if n := len(noted.Clocks); !noted.Partial || n < 7000 {
		t.Errorf("it lists %d clocks, partial: %v", n, noted.Partial)
	}
	wait := func(key queue.Key) int64 {
		i := slices.IndexFunc(noted.Clocks, func(c record.Clock) bool { return c.Key == key })
		if i < 0 {
			return 0
		}
		return noted.Clocks[i].Due / 1_000_000
	}
	if next := wait(slowKey(after)); next > 1 {
		t.Errorf("the next start of a bucket that was looked at after it became fast is in %d s",
			next)
	}
	if next := wait(slowKey(before)); next < 300 {
		t.Errorf("that of one that was looked at before is in %d s", next)
	}
	if due := part.checkpointDue(); due == pace.Never {
		t.Error("no other checkpoint is due, though jobs started meanwhile")
	}
}

func TestACheckpointOfALostPartitionIsNotWritten(t *testing.T) {
	c, part, now := slowBuckets(t, 2*mostGathered)
	c.Checkpoint(now)
	if part.gathering == nil {
		t.Fatal("it is not under way")
	}
	c.dropShare(c.shares.all["slow.0"])
	for range 3 {
		c.Checkpoint(now)
	}
	if len(c.out.puts) > 0 {
		t.Errorf("%d records are written", len(c.out.puts))
	}
}

func TestAnswersToEarlierCheckpointsAreIgnored(t *testing.T) {
	c, part, now := slowBuckets(t, 10)
	c.Checkpoint(now)
	before := c.out.puts[0]
	c.out = actions{}
	s := c.shares.all["slow.0"]
	c.dropShare(s)
	c.run(now, 10*time.Second, nil)
	if s.part == nil || s.part == part || !s.part.Owned() {
		t.Fatalf("it is not owned again: %+v", s)
	}
	written := func() bool { // and not answered
		s.part.Checkpoints.Changed = true
		return s.part.checkpointDue() == pace.Never
	}
	written()
	now = s.part.checkpointDue()
	if c.Checkpoint(now); len(c.out.puts) != 1 {
		t.Fatalf("%d checkpoints are written", len(c.out.puts))
	}
	for _, answer := range []Event{Written{before, 9999}, Written{before, 0},
		Found{before, Record{Revision: 9999}}} {
		if c.Handle(answer, now); !written() || s.part.Checkpoints.Revision == 9999 ||
			len(c.out.reads) > 0 {
			t.Errorf("%T counts for the one that is written now", answer)
		}
	}
	if c.Handle(Written{c.out.puts[0], 9999}, now); written() {
		t.Error("the answer to that counts for nothing")
	}
}

func BenchmarkCheckpoint(b *testing.B) {
	c, part, now := slowBuckets(&testing.T{}, 100_000)
	var s, outside stalls
	for b.Loop() {
		part.Checkpoints = inheritance.Checkpoints{Changed: true}
		s.measure(func() bool { c.Checkpoint(now); return len(c.out.puts) > 0 })
		s.round()
		outside.measure(func() bool { c.out.puts[0].Bytes(); return true })
		outside.round()
		c.out = actions{}
	}
	s.report(b)
	b.ReportMetric(float64(outside.bestAll.Microseconds()), "µs-outside")
}
