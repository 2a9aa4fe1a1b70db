package workers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
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
	starts := b.until(3*time.Hour, func(run) {})
	if len(starts) != 1 || starts[0] < interval || starts[0] > interval+ms {
		t.Errorf("the next job started at %v, want %v after the one before the crash", starts, interval)
	}
}

// A bucket that the crashed owner may have started just before its end waits one interval, also when the partition is
// handed on meanwhile.
func TestCrashIsRememberedOverAPlannedHandover(t *testing.T) {
	p := leaky("slow", "10/d")
	second := unownedValve(t, p).inheritFrom(inheritance{crashed: true, owner: "first"})
	h := second.at(time.Minute).v.surrender(second.p, second.now)

	third := unownedValve(t, p).at(2 * time.Minute).inheritFrom(inheritance{owner: "second", elapsed: time.Minute, handover: h})
	third.arrive("never seen by the second")
	starts := third.until(4*time.Hour, func(run) {})
	if len(starts) != 1 || starts[0] < p.Outflow.Interval() || starts[0] > p.Outflow.Interval()+time.Second {
		t.Errorf("started at %v, want about %v after the crash", starts, p.Outflow.Interval())
	}
}

func TestHandoverFitsAMessage(t *testing.T) {
	const fits = 1<<20 - 64<<10 // the largest message of a NATS server with default settings, less some headers
	p := leaky("slow", "10/h")
	b := newValveBench(t, p)
	for i := range 100_000 {
		key := queue.Key(fmt.Sprintf("tenant.%06d", i))
		bucket := b.v.bucket(b.p, key, b.now)
		bucket.pace.take(&bucket.clock, b.now.add(-time.Duration(i)*ms), 1)
	}
	for i := range 60_000 { // running, and finished but not confirmed
		j := b.arrive(fmt.Sprintf("tenant.%06d", i))
		b.v.detach(j)
		if j.enter(stageRunning); i%2 == 0 {
			j.enter(stageAcking)
		}
	}
	h := b.v.handover(b.p, b.now, 0)
	if h.fit(mostRecordBytes); len(encode(ownerRecord{V: version, handover: h})) > fits {
		t.Errorf("a claim or checkpoint has %d bytes", len(encode(ownerRecord{V: version, handover: h})))
	}
	h = b.v.surrender(b.p, b.now)
	h.fit(mostRecordBytes)
	if size := len(encode(ownerRecord{V: version, handover: h})); size > fits || !h.Partial {
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
		bucket := b.v.bucket(b.p, queue.Key(fmt.Sprintf("tenant.%06d", i)), b.now)
		bucket.pace.take(&bucket.clock, b.now, 1)
	}
	costly := b.v.bucket(b.p, "costly", b.now)
	costly.pace.take(&costly.clock, b.now, 100)
	cooling := b.v.bucket(b.p, "cooling", b.now)
	b.v.throttle(cooling, time.Hour, b.now)
	h := b.v.handover(b.p, b.now, 0)
	h.fit(mostRecordBytes)
	found := map[queue.Key]bool{}
	for _, c := range h.Clocks {
		found[c.Key] = true
	}
	if !found["costly"] || !found["cooling"] {
		t.Errorf("left out: costly %v, cooling %v", !found["costly"], !found["cooling"])
	}
}

// A holder whose lease ended before the partition was opened will never report.
func TestRunsOfAGoneHolderCountAsCrashed(t *testing.T) {
	p := leaky("api", "10/s")
	p.Partitions = 1
	c := coreBench(t, p)
	gone := leaseRecord{V: version, Tombstone: true}
	c.watched(tableDrainers, "holder", record{exists: true, value: encode(gone), revision: 7}, origin)
	left := ownerRecord{V: version, Owner: "before", Released: true, handover: handover{Running: []runRecord{{3, "holder"}}}}
	c.watched(tablePartitions, "api.0", record{exists: true, value: encode(left), revision: 8, stored: originWall}, origin)
	part, now := takeOver(c, opened{last: 100})
	c.arrived(part, part.epoch, []queue.Arrived{{Seq: 3, Key: "a", Cost: 1, Stored: originWall}}, now)
	if j := part.jobs[3]; j.stage != stageSaving || j.crashes != 1 {
		t.Errorf("stage %d, crashes %d; want the crash to be recorded", j.stage, j.crashes)
	}
}

// What a record says is applied by when it was stored. One that this process wrote itself tells no time before the watch
// does, which may be long after a server came back: it is read before it is claimed.
func TestARecordOfUnknownAgeIsReadBeforeItIsClaimed(t *testing.T) {
	p := leaky("api", "10/s")
	p.Partitions = 1
	c := coreBench(t, p)
	left := ownerRecord{V: version, Owner: "before", Released: true, handover: handover{Running: []runRecord{{3, "holder"}}}}
	found := record{exists: true, value: encode(left), revision: 8}
	c.watched(tablePartitions, "api.0", found, origin)
	now := origin.add(2 * favouriteFirst)
	c.advance(now)
	if len(c.out.reads) != 1 || slices.ContainsFunc(c.out.puts, func(p put) bool { return p.why == whyClaim }) {
		t.Fatalf("%d reads; wrote %v", len(c.out.reads), c.out.puts)
	}
	asked := c.out.reads[0].put
	found.stored = originWall
	c.read(asked, found, now)
	part, now := takeOver(c, opened{last: 100, created: originWall.Add(-time.Hour)})
	c.arrived(part, part.epoch, []queue.Arrived{{Seq: 3, Key: "a", Cost: 1, Stored: originWall}}, now)
	if j := part.jobs[3]; j.stage != stageRunning || j.holder != "holder" {
		t.Errorf("stage %d, holder %q; want it to run where it ran", j.stage, j.holder)
	}
}

// While a crash is being recorded, a handover must not make an attempt of it.
func TestHandoverWaitsForCrashesToBeRecorded(t *testing.T) {
	p := leaky("api", "10/s")
	p.Partitions = 1
	c := coreBench(t, p)
	now := c.run(origin, 2*time.Second, nil)
	s := c.shares["api.0"]
	s.part.inherited[1] = &inheritedJob{crashed: "dead"}
	c.arrived(s.part, s.part.epoch, []queue.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}, now)
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
	j := old.arrive("a", func(a *queue.Arrived) { a.Deadline = originWall.Add(time.Second) })
	old.until(500*ms, func(r run) { old.end(r, outcome{Kind: outcomeThrottled, RetryAfter: time.Minute}) })
	old.at(2*second).v.advance(old.now, true)
	if old.reasons() != "[deadline]" || j.stage != stageBurying {
		t.Fatal(old.reasons())
	}
	h := old.v.surrender(old.p, old.now)
	b := unownedValve(t, leaky("api", "10/s")).at(3 * second).inheritFrom(inheritance{owner: "old", handover: h})
	b.deliver(1, "a", func(a *queue.Arrived) { a.Deadline = originWall.Add(time.Second) })
	for _, r := range old.out.reports {
		b.v.reported(b.p, r.outcome, b.now)
	}
	b.v.advance(b.now, true)
	if b.reasons() != "[deadline]" {
		t.Errorf("buried for %s", b.reasons())
	}
}

// Streams that are made anew count from 1 again: what was noted of the old one's sequences says nothing about them.
func TestRecordsOfAFormerStreamAreNotApplied(t *testing.T) {
	p := leaky("api", "10/s")
	p.Partitions = 1
	c := coreBench(t, p)
	left := ownerRecord{V: version, Owner: "before", Released: true,
		handover: handover{Done: []uint64{1}, Running: []runRecord{{2, "before"}}}}
	c.watched(tablePartitions, "api.0", record{exists: true, value: encode(left), revision: 8, stored: originWall}, origin)
	part, now := takeOver(c, opened{
		last: 100, claimed: originWall.Add(time.Hour), created: originWall.Add(time.Minute),
		attempts: map[uint64]storedAttempt{3: {attemptRecord{V: version, Attempts: 4}, originWall, 0}},
	})
	jobs := []queue.Arrived{{Seq: 1, Key: "a", Cost: 1}, {Seq: 2, Key: "b", Cost: 1}, {Seq: 3, Key: "c", Cost: 1}}
	for i := range jobs {
		jobs[i].Stored = originWall.Add(2 * time.Minute)
	}
	c.arrived(part, part.epoch, jobs, now)
	if len(c.out.acks) > 0 {
		t.Errorf("acknowledged %v, which never ran", c.out.acks)
	}
	for _, seq := range []uint64{1, 2, 3} {
		if j := part.jobs[seq]; j == nil || j.stage != stageWaiting || j.attempts != 0 {
			t.Errorf("job %d: %+v", seq, j)
		}
	}
}

// The same when the owner lives on: what it holds is of the old stream.
func TestAStreamMadeAnewUnderItsOwner(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Partitions = 1
	c := coreBench(t, p)
	now := c.run(origin, 2*time.Second, nil)
	part := c.shares["api.0"].part
	part.created = originWall
	job := func(seq uint64, body string) queue.Arrived {
		return queue.Arrived{Seq: seq, Key: "a", Cost: 1, Stored: originWall, Body: []byte(body)}
	}
	c.arrived(part, part.epoch, []queue.Arrived{job(1, "old"), job(2, "old")}, now)
	c.advance(now)
	first := c.out.starts[0]
	if _, passed := first.decide(whenever, nil); !passed {
		t.Fatal("not started")
	}
	c.out = actions{}
	part.broken = true
	opens := 0
	for range 20 {
		now = now.add(100 * ms)
		c.advance(now)
		c.out.starts = nil
		answerPuts(c, now)
		for _, o := range c.out.opens {
			opens++
			c.opened(o, part.epoch, opened{last: 100, created: originWall.Add(time.Minute)}, now)
		}
		c.out.opens = nil
		if opens > 0 {
			break
		}
	}
	c.finished(first, outcome{Seq: 1, Kind: outcomeDone}, now)
	c.arrived(part, part.epoch, []queue.Arrived{job(1, "new"), job(2, "new")}, now)
	if len(c.out.acks) > 0 {
		t.Errorf("acknowledged %d jobs of the new stream", len(c.out.acks))
	}
	for _, seq := range []uint64{1, 2} {
		if j := part.jobs[seq]; j == nil || string(j.Body) != "new" {
			t.Errorf("job %d is %+v", seq, j)
		}
	}
}

// Jobs that run elsewhere hold their concurrency from the first moment, also before they have been delivered again.
func TestInheritedRunsHoldConcurrency(t *testing.T) {
	p := leaky("api", "100/s")
	p.Concurrency = 1
	b := unownedValve(t, p).inheritFrom(inheritance{
		owner: "old", handover: handover{Running: []runRecord{{2, "old"}}},
	})
	b.deliver(1, "a") // was backing off
	if runs := b.at(100 * ms).start(); len(runs) > 0 {
		t.Fatalf("started %s while job 2 runs", b.seqs(runs))
	}
	b.deliver(2, "a")
	if runs := b.at(200 * ms).start(); len(runs) > 0 {
		t.Fatalf("started %s while job 2 runs", b.seqs(runs))
	}
	b.v.reported(b.p, outcome{Seq: 2, Kind: outcomeDone}, b.now)
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
	count := map[queue.Key]int{}
	b.until(time.Second-ms, func(r run) { count[r.Key]++; b.done(r) })
	if count["fast"] != 5 || count["other"] != 1 {
		t.Errorf("starts in the first second: %v", count)
	}
}
