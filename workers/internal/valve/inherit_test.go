package valve

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func (b *valveBench) inheritFrom(in inheritance.State) *valveBench {
	b.own()
	b.p.inherit(in, b.now)
	b.p.GoLive(b.now)
	return b
}

func TestCheckpointKeepsSlowRatesExactAfterACrash(t *testing.T) {
	p := leaky("slow", "10/d")
	interval := p.Outflow.Interval()
	old := newValveBench(t, p)
	old.arrive("a")
	old.done(old.start()[0])
	h := checkpointed(old.at(time.Minute).p, old.now, aLease)

	b := unownedValve(t, p).at(time.Hour).inheritFrom(inheritance.State{
		Crashed: true, Owner: "old", Elapsed: 59 * time.Minute, Handover: h,
	})
	b.arrive("a")
	starts := b.until(3*time.Hour, func(Run) {})
	if len(starts) != 1 || starts[0] < interval || starts[0] > interval+ms {
		t.Errorf("the next job started at %v, want %v after the one before the crash", starts,
			interval)
	}
}

// A live owner that has not noticed the loss of its record may start jobs that are due before its
// fence.
func TestAClockDueBeforeTheFenceWaitsAnInterval(t *testing.T) {
	p := leaky("api", "6/m")
	old := newValveBench(t, p)
	old.arrive("a")
	old.done(old.start()[0])
	h := checkpointed(old.at(second).p, old.now, ms)

	b := unownedValve(t, p).at(8 * second).inheritFrom(inheritance.State{
		Crashed: true, Owner: "old", Elapsed: 7 * second, Age: 7 * second, Fence: 5 * second,
		Handover: h,
	})
	b.arrive("a")
	starts := b.until(time.Minute, b.done)
	if len(starts) != 1 || starts[0] < 23*second || starts[0] > 24*second {
		t.Errorf("the next job started at %v, want 10 s after the fence at 13 s", starts)
	}
}

// A bucket that the crashed owner may have started just before waits one interval, also after
// another handover.
func TestCrashIsRememberedOverAPlannedHandover(t *testing.T) {
	p := leaky("slow", "10/d")
	second := unownedValve(t, p).inheritFrom(inheritance.State{Crashed: true, Owner: "first"})
	h := second.at(time.Minute).p.Surrender(second.now)

	third := unownedValve(t,
		p).at(2 * time.Minute).
		inheritFrom(inheritance.State{Owner: "second", Elapsed: time.Minute, Handover: h})
	third.arrive("never seen by the second")
	starts := third.until(4*time.Hour, func(Run) {})
	if len(starts) != 1 || starts[0] < p.Outflow.Interval() ||
		starts[0] > p.Outflow.Interval()+time.Second {
		t.Errorf("started at %v, want about %v after the crash", starts, p.Outflow.Interval())
	}
}

func TestHandoverFitsAMessage(t *testing.T) {
	// the largest message of a NATS server with default settings, minus some headers
	const fits = 1<<20 - 64<<10
	p := leaky("slow", "10/h")
	b := newValveBench(t, p)
	for i := range 100_000 {
		key := queue.Key(fmt.Sprintf("tenant.%06d", i))
		bucket := b.p.bucket(key, b.now)
		bucket.pace.Take(&bucket.clock, b.now.Add(-time.Duration(i)*ms), 1)
	}
	for i := range 60_000 {
		j := b.arrive(fmt.Sprintf("tenant.%06d", i))
		b.v.stock.detach(j)
		if j.enter(stageRunning); i%2 == 0 {
			j.enter(stageAcking)
		}
	}
	h := b.p.Handover(b.now)
	if h.Fit(record.MostBytes); len(record.Encode(record.Owner{V: record.Version,
		Handover: h})) > fits {
		t.Errorf("a claim or checkpoint has %d bytes",
			len(record.Encode(record.Owner{V: record.Version, Handover: h})))
	}
	h = b.p.Surrender(b.now)
	h.Fit(record.MostBytes)
	if size := len(record.Encode(record.Owner{V: record.Version, Handover: h})); size > fits ||
		!h.Partial {
		t.Errorf("a handover has %d bytes; partial: %v", size, h.Partial)
	}
	listed := h.Clocks[len(h.Clocks)-1].Key
	if listed < "tenant.050000" {
		t.Errorf("the last clock listed is %s", listed)
	}
}

// Otherwise the successor would start too early.
func TestPartialHandoverKeepsLongWaits(t *testing.T) {
	p := leaky("slow", "10/h")
	b := newValveBench(t, p)
	for i := range 50_000 {
		bucket := b.p.bucket(queue.Key(fmt.Sprintf("tenant.%06d", i)), b.now)
		bucket.pace.Take(&bucket.clock, b.now, 1)
	}
	costly := b.p.bucket("costly", b.now)
	costly.pace.Take(&costly.clock, b.now, 100)
	cooling := b.p.bucket("cooling", b.now)
	b.v.coolDown(cooling, time.Hour, b.now)
	h := b.p.Handover(b.now)
	h.Fit(record.MostBytes)
	found := map[queue.Key]bool{}
	for _, c := range h.Clocks {
		found[c.Key] = true
	}
	if !found["costly"] || !found["cooling"] {
		t.Errorf("left out: costly %v, cooling %v", !found["costly"], !found["cooling"])
	}
}

// If even long waits are omitted, all unlisted buckets wait for the longest (law 2), also with a
// third owner, and after a crash.
func TestBucketsOmittedFromAHandoverWait(t *testing.T) {
	p := leaky("slow", "1/s")
	first := newValveBench(t, p)
	for key, cost := range map[queue.Key]int64{"a": 30, "b": 20, "c": 8, "d": 1} {
		bucket := first.p.bucket(key, first.now)
		bucket.pace.Take(&bucket.clock, first.now.Add(-5*second), 1)
		// late; the schedule alone would make up for it
		bucket.pace.Take(&bucket.clock, first.now, cost)
	}
	h := first.p.Surrender(first.now)
	h.Fit(2*record.ClockBytes + 10)
	if len(h.Clocks) != 2 {
		t.Fatalf("lists %d clocks, want a and b: %+v", len(h.Clocks), h.Clocks)
	}
	starts := func(in inheritance.State, at time.Duration) time.Duration {
		b := unownedValve(t, p).at(at).inheritFrom(in)
		b.arrive("c")
		return b.until(time.Minute, b.done)[0]
	}
	const after = 3 * second
	heir := unownedValve(t, p).inheritFrom(inheritance.State{Owner: "first", Handover: h}).at(after)
	next := heir.p.Surrender(heir.now)
	next.Fit(record.MostBytes)
	short := p.Outflow.Interval() * 550 / 551
	for name, at := range map[string]time.Duration{
		"at once": starts(inheritance.State{Owner: "first", Handover: h}, 0),
		"later": starts(inheritance.State{Owner: "first", Elapsed: after, Handover: h},
			after),
		"by a third": starts(inheritance.State{Owner: "second", Handover: next}, after),
		"after a crash, soon": starts(
			inheritance.State{Crashed: true, Owner: "first", Handover: h}, 0),
	} {
		if at < 8*short-ms || at > 8*p.Outflow.Interval()+mostSpread {
			t.Errorf("%s: starts after %v, want some 8 s", name, at)
		}
	}
}

func TestHandoverKeepsTheReasonOfADeadLetter(t *testing.T) {
	old := newValveBench(t, leaky("api", "10/s"))
	j := old.arrive("a", func(a *job.Arrived) { a.Deadline = originWall.Add(time.Second) })
	old.until(500*ms, func(r Run) {
		old.end(r, record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: time.Minute})
	})
	old.at(2*second).v.Advance(old.now, pace.Never)
	if old.reasons() != "[deadline]" || j.stage != stageBurying {
		t.Fatal(old.reasons())
	}
	h := old.p.Surrender(old.now)
	b := unownedValve(t,
		leaky("api", "10/s")).at(3 * second).inheritFrom(
		inheritance.State{Owner: "old", Handover: h})
	b.deliver(1, "a", func(a *job.Arrived) { a.Deadline = originWall.Add(time.Second) })
	for _, r := range old.out.Reports {
		b.p.Reported(r.Outcome, b.now)
	}
	b.v.Advance(b.now, pace.Never)
	if b.reasons() != "[deadline]" {
		t.Errorf("buried for %s", b.reasons())
	}
}

func TestInheritedRunsHoldConcurrency(t *testing.T) {
	p := leaky("api", "100/s")
	p.Concurrency = 1
	b := unownedValve(t, p).inheritFrom(inheritance.State{
		Owner: "old", Handover: record.Handover{Running: []record.Run{{Seq: 2, Holder: "old"}}},
	})
	b.deliver(1, "a")
	if runs := b.at(100 * ms).start(); len(runs) > 0 {
		t.Fatalf("started %s while job 2 runs", b.seqs(runs))
	}
	b.deliver(2, "a")
	if runs := b.at(200 * ms).start(); len(runs) > 0 {
		t.Fatalf("started %s while job 2 runs", b.seqs(runs))
	}
	b.p.Reported(record.Outcome{Seq: 2, Kind: record.OutcomeDone}, b.now)
	if runs := b.at(300 * ms).start(); b.seqs(runs) != "[1]" {
		t.Errorf("started %s, want job 1", b.seqs(runs))
	}
}

func TestPolicyOverridesAreNeededOnlyByTheirKey(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/s"))
	fast := leaky("", "10/s").Outflow
	b.v.SetOverride("fast", inforce.Override{Outflow: &fast}, b.now)
	for range 5 {
		b.arrive("fast")
		b.arrive("other")
	}
	count := map[queue.Key]int{}
	b.until(time.Second-ms, func(r Run) { count[r.Key]++; b.done(r) })
	if count["fast"] != 5 || count["other"] != 1 {
		t.Errorf("starts in the first second: %v", count)
	}
}

// checkpointed returns a checkpoint's record, with clocks later than within from now.
func checkpointed(p *Part, now pace.Instant, within time.Duration) record.Handover {
	g := p.Gather()
	g.Some(p.list.Len(), now, now.Add(within))
	h := p.HandoverBut(now)
	h.Clocks = append(h.Clocks, g.Records(now, h)...)
	return h
}
