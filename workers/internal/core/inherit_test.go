package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// inheritFrom takes a partition over with what a predecessor left.
func (b *valveBench) inheritFrom(in inheritance) *valveBench {
	b.own()
	b.v.inherit(b.p, in, b.now)
	b.v.live(b.p, b.now)
	return b
}

func TestCheckpointKeepsSlowRatesExactAfterACrash(t *testing.T) {
	p := leaky("slow", "10/d")
	interval := p.Outflow.Interval()
	old := newValveBench(t, p)
	old.arrive("a")
	old.done(old.start()[0])
	h := old.at(time.Minute).v.handover(old.p, old.now, simulatedLease)

	b := unownedValve(t, p).at(time.Hour).inheritFrom(inheritance{
		crashed: true, owner: "old", elapsed: 59 * time.Minute, handover: h,
	})
	b.arrive("a")
	starts := b.until(3*time.Hour, func(Run) {})
	if len(starts) != 1 || starts[0] < interval || starts[0] > interval+ms {
		t.Errorf("the next job started at %v, want %v after the one before the crash", starts,
			interval)
	}
}

// A bucket that the crashed owner may have started just before its end waits one interval, also
// when the partition is handed on meanwhile.
func TestCrashIsRememberedOverAPlannedHandover(t *testing.T) {
	p := leaky("slow", "10/d")
	second := unownedValve(t, p).inheritFrom(inheritance{crashed: true, owner: "first"})
	h := second.at(time.Minute).v.surrender(second.p, second.now)

	third := unownedValve(t,
		p).at(2 * time.Minute).
		inheritFrom(inheritance{owner: "second", elapsed: time.Minute, handover: h})
	third.arrive("never seen by the second")
	starts := third.until(4*time.Hour, func(Run) {})
	if len(starts) != 1 || starts[0] < p.Outflow.Interval() ||
		starts[0] > p.Outflow.Interval()+time.Second {
		t.Errorf("started at %v, want about %v after the crash", starts, p.Outflow.Interval())
	}
}

func TestHandoverFitsAMessage(t *testing.T) {
	// the largest message of a NATS server with default settings, less some headers
	const fits = 1<<20 - 64<<10
	p := leaky("slow", "10/h")
	b := newValveBench(t, p)
	for i := range 100_000 {
		key := job.Key(fmt.Sprintf("tenant.%06d", i))
		bucket := b.v.bucket(b.p, key, b.now)
		bucket.pace.Take(&bucket.clock, b.now.Add(-time.Duration(i)*ms), 1)
	}
	for i := range 60_000 { // running, and finished but not confirmed
		j := b.arrive(fmt.Sprintf("tenant.%06d", i))
		b.v.detach(j)
		if j.enter(stageRunning); i%2 == 0 {
			j.enter(stageAcking)
		}
	}
	h := b.v.handover(b.p, b.now, 0)
	if h.Fit(record.MostBytes); len(record.Encode(record.Owner{V: record.Version,
		Handover: h})) > fits {
		t.Errorf("a claim or checkpoint has %d bytes",
			len(record.Encode(record.Owner{V: record.Version, Handover: h})))
	}
	h = b.v.surrender(b.p, b.now)
	h.Fit(record.MostBytes)
	if size := len(record.Encode(record.Owner{V: record.Version, Handover: h})); size > fits ||
		!h.Partial {
		t.Errorf("a handover has %d bytes; partial: %v", size, h.Partial)
	}
	// What is left out waits one interval more, so those must be listed that were due soonest.
	listed := h.Clocks[len(h.Clocks)-1].Key
	if listed < "tenant.050000" {
		t.Errorf("the last clock listed is %s", listed)
	}
}

// A clock further off than one interval must not be left out: the successor would start too early.
func TestPartialHandoverKeepsLongWaits(t *testing.T) {
	p := leaky("slow", "10/h")
	b := newValveBench(t, p)
	for i := range 50_000 {
		bucket := b.v.bucket(b.p, job.Key(fmt.Sprintf("tenant.%06d", i)), b.now)
		bucket.pace.Take(&bucket.clock, b.now, 1)
	}
	costly := b.v.bucket(b.p, "costly", b.now)
	costly.pace.Take(&costly.clock, b.now, 100)
	cooling := b.v.bucket(b.p, "cooling", b.now)
	b.v.throttle(cooling, time.Hour, b.now)
	h := b.v.handover(b.p, b.now, 0)
	h.Fit(record.MostBytes)
	found := map[job.Key]bool{}
	for _, c := range h.Clocks {
		found[c.Key] = true
	}
	if !found["costly"] || !found["cooling"] {
		t.Errorf("left out: costly %v, cooling %v", !found["costly"], !found["cooling"])
	}
}

// Where even long waits are left out, because there are so many, all that are left out wait for the
// longest of them: law 2 holds over a planned handover as well. So do those of a third owner, and
// after a crash.
func TestWhatAPartialHandoverLeavesOutWaitsLongEnough(t *testing.T) {
	p := leaky("slow", "1/s")
	first := newValveBench(t, p)
	for key, cost := range map[job.Key]int64{"a": 30, "b": 20, "c": 8, "d": 1} {
		bucket := first.v.bucket(first.p, key, first.now)
		bucket.pace.Take(&bucket.clock, first.now.Add(-5*second), 1)
		// late: the schedule alone would make it up
		bucket.pace.Take(&bucket.clock, first.now, cost)
	}
	h := first.v.surrender(first.p, first.now)
	h.Fit(2*record.ClockBytes + 10)
	if len(h.Clocks) != 2 {
		t.Fatalf("lists %d clocks, want a and b: %+v", len(h.Clocks), h.Clocks)
	}
	starts := func(in inheritance, at time.Duration) time.Duration {
		b := unownedValve(t, p).at(at).inheritFrom(in)
		b.arrive("c")
		return b.until(time.Minute, b.done)[0]
	}
	// so that the second does not tell any more that it began with unknown clocks
	const after = 3 * second
	heir := unownedValve(t, p).inheritFrom(inheritance{owner: "first", handover: h}).at(after)
	next := heir.v.surrender(heir.p, heir.now)
	next.Fit(record.MostBytes)
	short := p.Outflow.Interval() * 550 / 551
	for name, at := range map[string]time.Duration{
		"at once": starts(inheritance{owner: "first", handover: h}, 0),
		"later": starts(inheritance{owner: "first", elapsed: after, handover: h},
			after),
		"by a third":          starts(inheritance{owner: "second", handover: next}, after),
		"after a crash, soon": starts(inheritance{crashed: true, owner: "first", handover: h}, 0),
	} {
		if at < 8*short-ms || at > 8*p.Outflow.Interval()+mostSpread {
			t.Errorf("%s: starts after %v, want some 8 s", name, at)
		}
	}
}

// A holder whose lease ended before the partition was opened will never report.
func TestRunsOfAGoneHolderCountAsCrashed(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	gone := record.Lease{V: record.Version, Tombstone: true}
	c.Handle(Watched{TableDrainers, "holder",
		Record{Exists: true, Value: record.Encode(gone), Revision: 7}},
		origin)
	left := record.Owner{V: record.Version, Owner: "before", Released: true,
		Handover: record.Handover{Running: []record.Run{{Seq: 3, Holder: "holder"}}}}
	ownedBefore(c, left, 8)
	part, now := takeOver(c, Opened{Last: 100})
	c.Handle(Arrived{part.Partition, part.Epoch,
		[]job.Arrived{{Seq: 3, Key: "a", Cost: 1, Stored: originWall}}}, now)
	if j := part.jobs[3]; j.stage != stageSaving || j.crashes != 1 {
		t.Errorf("stage %d, crashes %d; want the crash to be recorded", j.stage, j.crashes)
	}
}

// What a record says is applied by when it was stored. One that this process wrote itself tells no
// time before the watch does, which may be long after a server came back: it is read before it is
// claimed.
func TestARecordOfUnknownAgeIsReadBeforeItIsClaimed(t *testing.T) {
	p := leaky("api", "10/s")
	c := coreBench(t, p)
	left := record.Owner{V: record.Version, Owner: "before", Released: true,
		Handover: record.Handover{Running: []record.Run{{Seq: 3, Holder: "holder"}}}}
	found := Record{Exists: true, Value: record.Encode(left), Revision: 8}
	c.Handle(Watched{TablePartitions, "api.0", found}, origin)
	now := origin.Add(2 * favouriteFirst)
	c.advance(now)
	if len(c.out.reads) != 1 ||
		slices.ContainsFunc(c.out.puts, func(p Put) bool { return p.Why == whyTake }) {
		t.Fatalf("%d reads; wrote %v", len(c.out.reads), c.out.puts)
	}
	asked := c.out.reads[0].Put
	found.Stored = originWall
	c.Handle(Found{asked, found}, now)
	part, now := takeOver(c, Opened{Last: 100, Created: originWall.Add(-time.Hour)})
	c.Handle(Arrived{part.Partition, part.Epoch,
		[]job.Arrived{{Seq: 3, Key: "a", Cost: 1, Stored: originWall}}}, now)
	if j := part.jobs[3]; j.stage != stageRunning || j.holder != "holder" {
		t.Errorf("stage %d, holder %q; want it to run where it ran", j.stage, j.holder)
	}
}

// While a crash is being recorded, a handover must not make an attempt of it.
func TestHandoverWaitsForCrashesToBeRecorded(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	now := c.run(origin, 2*time.Second, nil)
	s := c.shares["api.0"]
	s.part.inherited[1] = &inheritedJob{crashed: "dead"}
	c.Handle(Arrived{s.part.Partition, s.part.Epoch,
		[]job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}},
		now)
	part := s.part
	c.release(s, now)
	if len(c.out.reports) > 0 || s.state != shareOwned {
		t.Fatalf("handed over while a crash was being recorded; reports %+v", c.out.reports)
	}
	c.valves["api"].saved(part.jobs[1], now)
	c.release(s, now)
	if s.state != shareReleasing || len(c.out.reports) > 0 {
		t.Errorf("state %d, reports %+v", s.state, c.out.reports)
	}
}

// The successor must bury a job for the reason for which it was being buried.
func TestHandoverKeepsTheReasonOfADeadLetter(t *testing.T) {
	old := newValveBench(t, leaky("api", "10/s"))
	j := old.arrive("a", func(a *job.Arrived) { a.Deadline = originWall.Add(time.Second) })
	old.until(500*ms, func(r Run) {
		old.end(r, Outcome{Kind: OutcomeThrottled, RetryAfter: time.Minute})
	})
	old.at(2*second).v.advance(old.now, true)
	if old.reasons() != "[deadline]" || j.stage != stageBurying {
		t.Fatal(old.reasons())
	}
	h := old.v.surrender(old.p, old.now)
	b := unownedValve(t,
		leaky("api", "10/s")).at(3 * second).inheritFrom(inheritance{owner: "old", handover: h})
	b.deliver(1, "a", func(a *job.Arrived) { a.Deadline = originWall.Add(time.Second) })
	for _, r := range old.out.reports {
		b.v.reported(b.p, r.Outcome, b.now)
	}
	b.v.advance(b.now, true)
	if b.reasons() != "[deadline]" {
		t.Errorf("buried for %s", b.reasons())
	}
}

// Streams that are made anew count from 1 again: what was noted of the old one's sequences says
// nothing about them.
func TestRecordsOfAFormerStreamAreNotApplied(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	left := record.Owner{V: record.Version, Owner: "before", Released: true,
		Handover: record.Handover{Done: []uint64{1}, Running: []record.Run{{Seq: 2,
			Holder: "before"}}}}
	ownedBefore(c, left, 8)
	part, now := takeOver(c, Opened{
		Last: 100, Taken: originWall.Add(time.Hour), Created: originWall.Add(time.Minute),
		Attempts: map[uint64]StoredAttempt{3: {record.Attempt{V: record.Version, Attempts: 4},
			originWall,
			0}},
	})
	jobs := []job.Arrived{{Seq: 1, Key: "a", Cost: 1}, {Seq: 2, Key: "b", Cost: 1},
		{Seq: 3, Key: "c", Cost: 1}}
	for i := range jobs {
		jobs[i].Stored = originWall.Add(2 * time.Minute)
	}
	c.Handle(Arrived{part.Partition, part.Epoch, jobs}, now)
	if len(c.out.acks) > 0 {
		t.Errorf("acknowledged %v, which never ran", c.out.acks)
	}
	for _, seq := range []uint64{1, 2, 3} {
		if j := part.jobs[seq]; j == nil || j.stage != stageWaiting || j.Attempts != 0 {
			t.Errorf("job %d: %+v", seq, j)
		}
	}
}

// The same when the owner lives on: what it holds is of the old stream.
func TestAStreamMadeAnewUnderItsOwner(t *testing.T) {
	c := coreBench(t, leaky("api", "1000/s"))
	now := c.run(origin, 2*time.Second, nil)
	part := c.shares["api.0"].part
	part.created = originWall
	j := func(seq uint64, body string) job.Arrived {
		return job.Arrived{Seq: seq, Key: "a", Cost: 1, Stored: originWall, Body: []byte(body)}
	}
	c.Handle(Arrived{part.Partition, part.Epoch, []job.Arrived{j(1, "old"), j(2, "old")}}, now)
	c.advance(now)
	first := c.out.starts[0]
	if _, passed := first.Decide(first.atOnce, nil); !passed {
		t.Fatal("not started")
	}
	c.out = actions{}
	part.broken = true
	opens := 0
	for range 20 {
		now = now.Add(100 * ms)
		c.advance(now)
		c.out.starts = nil
		answerPuts(c, now)
		for _, o := range c.out.opens {
			opens++
			c.Handle(Opened{Opening: o, Last: 100, Created: originWall.Add(time.Minute)}, now)
		}
		c.out.opens = nil
		if opens > 0 {
			break
		}
	}
	c.Handle(first.Finished(Outcome{Seq: 1, Kind: OutcomeDone}), now)
	c.Handle(Arrived{part.Partition, part.Epoch, []job.Arrived{j(1, "new"), j(2, "new")}}, now)
	if len(c.out.acks) > 0 {
		t.Errorf("acknowledged %d jobs of the new stream", len(c.out.acks))
	}
	for _, seq := range []uint64{1, 2} {
		if j := part.jobs[seq]; j == nil || string(j.Body) != "new" {
			t.Errorf("job %d is %+v", seq, j)
		}
	}
}

// Jobs that run elsewhere hold their concurrency from the first moment, also before they have been
// delivered again.
func TestInheritedRunsHoldConcurrency(t *testing.T) {
	p := leaky("api", "100/s")
	p.Concurrency = 1
	b := unownedValve(t, p).inheritFrom(inheritance{
		owner: "old", handover: record.Handover{Running: []record.Run{{Seq: 2, Holder: "old"}}},
	})
	b.deliver(1, "a") // was backing off
	if runs := b.at(100 * ms).start(); len(runs) > 0 {
		t.Fatalf("started %s while job 2 runs", b.seqs(runs))
	}
	b.deliver(2, "a")
	if runs := b.at(200 * ms).start(); len(runs) > 0 {
		t.Fatalf("started %s while job 2 runs", b.seqs(runs))
	}
	b.v.reported(b.p, Outcome{Seq: 2, Kind: OutcomeDone}, b.now)
	if runs := b.at(300 * ms).start(); b.seqs(runs) != "[1]" {
		t.Errorf("started %s, want job 1", b.seqs(runs))
	}
}

func TestPolicyOverridesAreNeededOnlyByTheirKey(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/s"))
	fast := leaky("", "10/s").Outflow
	b.v.setOverride("fast", policy.Override{Outflow: &fast}, b.now)
	for range 5 {
		b.arrive("fast")
		b.arrive("other")
	}
	count := map[job.Key]int{}
	b.until(time.Second-ms, func(r Run) { count[r.Key]++; b.done(r) })
	if count["fast"] != 5 || count["other"] != 1 {
		t.Errorf("starts in the first second: %v", count)
	}
}
