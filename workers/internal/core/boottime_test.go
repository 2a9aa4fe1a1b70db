package core

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// While this process's clocks stood still, others may have declared it dead, and an earlier renewal
// no longer counts.
func TestNothingStartsAfterAJumpBeforeARenewalIsAnswered(t *testing.T) {
	c := coreBench(t)
	now := origin.Add(c.options.Lease / 3)
	c.advance(now)
	sent := c.out.puts
	if c.out.puts = nil; len(sent) != 1 || !c.Open(now) {
		t.Fatalf("%d renewals are under way, open %v", len(sent), c.Open(now))
	}
	now = now.Add(ms)
	if c.Handle(Jumped{}, now); c.Open(now) {
		t.Error("open after a jump")
	}
	c.Handle(Written{sent[0], 7000}, now)
	if c.Open(now) {
		t.Error("open again by a renewal from before the jump")
	}
	c.advance(now)
	if len(c.out.puts) != 1 {
		t.Fatalf("%d renewals are sent, want one at once", len(c.out.puts))
	}
	if answerPuts(c, now.Add(ms)); !c.Open(now.Add(ms)) {
		t.Error("not open although a renewal was answered")
	}
}

func TestDeadlinesGoByJetStreamsClock(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	part, now := takeOver(c, Opened{Last: 100})
	stored := originWall.Add(now.Since(origin))
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch, Jobs: []job.Arrived{
		{Seq: 1, Key: "passed", Cost: 1, Stored: stored, Deadline: stored.Add(-second)},
		{Seq: 2, Key: "ahead", Cost: 1, Stored: stored, Deadline: stored.Add(second)},
		{Seq: 3, Key: "later", Cost: 1, Stored: stored, NotBefore: stored.Add(second)},
	}}, now)
	c.advance(now)
	if len(c.out.Burials) != 1 || c.out.Burials[0].Seq != 1 || len(c.out.Starts) != 1 ||
		c.out.Starts[0].Seq != 2 {
		t.Errorf("buried %d, started %d: want job 1 buried, job 2 started, job 3 later",
			len(c.out.Burials), len(c.out.Starts))
	}
}

// The host stopped this process and its clocks for a minute. Only JetStream's clock shows that, and
// no job starts before.
func TestDatesHoldAfterTheClocksStoodStill(t *testing.T) {
	c := coreBench(t, slowly())
	part, now := takeOver(c, Opened{Last: 100})
	c.server.least, c.server.most = c.server.least-int64(time.Minute), c.server.most-
		int64(time.Minute)
	stored := c.Wall(now)
	c.server.dated = c.Wall(0)
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch, Jobs: []job.Arrived{
		{Seq: 1, Key: "a", Cost: 1, Stored: stored, Body: []byte{}},
		{Seq: 2, Key: "a", Cost: 1, Stored: stored, Deadline: stored.Add(9 * second),
			Body: []byte{}},
		{Seq: 3, Key: "a", Cost: 1, Stored: stored, Deadline: stored.Add(2 * time.Minute),
			Body: []byte{}},
		{Seq: 4, Key: "b", Cost: 1, Stored: stored, NotBefore: stored.Add(second),
			Deadline: stored.Add(20 * second), Body: []byte{}},
		{Seq: 5, Key: "c", Cost: 1, Stored: stored, NotBefore: stored.Add(50 * second),
			Body: []byte{}},
		{Seq: 6, Key: "d", Cost: 1, Stored: stored, NotBefore: stored.Add(80 * second),
			Body: []byte{}},
	}}, now)
	c.advance(now)
	c.out = actions{}
	c.Handle(Jumped{}, now)
	c.advance(now)
	renewal := putFor(t, c, WhyRenew)
	c.out = actions{}
	if c.Handle(Written{renewal, 7000}, now); c.Open(now) {
		t.Error("open although nobody has told what time it is")
	}
	if c.stamped(c.Lease.sends[0].nonce, stored, now); c.Open(now) {
		t.Error("open by the stamp of a renewal that was sent before")
	}
	stamped := Record{Exists: true, Value: renewal.value, Revision: 7000,
		Stored: stored.Add(time.Minute)}
	c.Handle(Watched{TableDrainers, renewal.Key, stamped}, now)
	c.advance(now)
	var buried, started []uint64
	for _, u := range c.out.Burials {
		buried = append(buried, u.Seq)
	}
	for _, r := range c.out.Starts {
		started = append(started, r.Seq)
	}
	slices.Sort(buried)
	if !slices.Equal(buried, []uint64{2, 4}) || !slices.Equal(started, []uint64{5}) {
		t.Errorf(
			"buried %v, want 2 and 4, whose deadlines have passed; started %v, want 5, which was "+
				"not due before", buried, started)
	}
	c.out = actions{}
	at := map[uint64]time.Duration{}
	c.run(now, time.Minute, func(then pace.Instant, _ []Put) {
		for _, r := range c.out.Starts {
			at[r.Seq] = then.Since(now)
		}
	})
	if at[3] > 11*second || at[6] < 20*second || at[6] > 21*second {
		t.Errorf("job 3 starts after %v, want 10 s; job 6 after %v, want 20 s", at[3], at[6])
	}
}

// The clock lies between a renewal's sending and the sight of its stamp. A contradiction is another
// server's clock.
func TestTheServersClockIsKnownToAFewMilliseconds(t *testing.T) {
	c := coreBench(t)
	stamp := func(sent pace.Instant, by, seen time.Duration, stored time.Time) time.Duration {
		t.Helper()
		c.Lease.sends = []send{{nonce: 1, at: sent}}
		c.stamped(1, stored, sent.Add(seen))
		return c.Wall(sent.Add(by)).Sub(stored)
	}
	at := originWall
	for _, x := range []struct {
		name     string
		seen     time.Duration
		ahead    time.Duration
		from, to time.Duration
	}{
		{"prompt", 2 * ms, 0, -ms, ms},
		{"seen after a break", 20 * second, 0, -3 * ms, 3 * ms},
		{"a leader that is 12 s ahead", 2 * ms, 12 * second, -ms, ms},
		{"and back", 2 * ms, 0, -ms, ms},
		{"in the next century", 2 * ms, 40 * 365 * 24 * time.Hour, -ms, ms},
	} {
		at = at.Add(second)
		sent := origin.Add(at.Sub(originWall))
		if off := stamp(sent, ms, x.seen, at.Add(x.ahead+ms)); off < x.from || off > x.to {
			t.Errorf("%s: off by %v", x.name, off)
		}
	}
}

// A contradiction by drift alone changes the result by no more than the drift.
func TestAClockThatDriftsStaysKnown(t *testing.T) {
	for slow := range 40 {
		c := coreBench(t)
		for i := range slow + 1 {
			passed, seen := time.Duration(i)*2*second, ms
			sent := origin.Add(passed)
			stored := originWall.Add(passed - passed/10_000)
			if i > 0 && i == slow {
				seen = 190 * ms
			}
			c.Lease.sends = []send{{nonce: 1, at: sent}}
			c.stamped(1, stored, sent.Add(seen))
			if off := c.Wall(sent).Sub(stored).Abs(); off > 5*ms {
				t.Fatalf("off by %v at stamp %d, which took %v", off, i, seen)
			}
			for _, hour := range []time.Duration{-time.Hour, time.Hour} {
				if _, off := c.server.read(sent.Add(hour)); off < 700*ms {
					t.Fatalf("%v from stamp %d the clock is known within %v", hour, i, off)
				}
			}
		}
	}
}

// A stamp of a slow renewal is vague, so another is sent at once. The third is accepted.
func TestNothingStartsByAnUncertainClock(t *testing.T) {
	c := coreBench(t, slowly())
	_, now := takeOver(c, Opened{Last: 100})
	renewal := func(took time.Duration) (p Put) {
		t.Helper()
		c.advance(now)
		p = putFor(t, c, WhyRenew)
		c.out = actions{}
		now = now.Add(took)
		return p
	}
	stamp := func(p Put, stored time.Time) {
		seen := Record{Exists: true, Value: p.value, Revision: c.Lease.revision + 1, Stored: stored}
		c.Handle(Written{p, seen.Revision}, now)
		c.Handle(Watched{TableDrainers, p.Key, seen}, now)
	}
	slow, prompt := 900*ms, ms
	for _, x := range []struct {
		name string
		took []time.Duration
	}{
		{"a slow one, and a prompt one", []time.Duration{slow, prompt}},
		{"two slow ones, and a prompt one", []time.Duration{slow, slow, prompt}},
		{"slow ones only", []time.Duration{slow, slow, slow}},
		{"a prompt one", []time.Duration{prompt}},
	} {
		c.Handle(Jumped{}, now)
		for i, took := range x.took {
			if c.Open(now) {
				t.Errorf("%s: open before stamp %d", x.name, i)
			}
			stamp(renewal(took), originWall.Add(now.Since(origin)))
		}
		if !c.Open(now) {
			t.Errorf("%s: not open", x.name)
		}
		off := c.Wall(now).Sub(originWall.Add(now.Since(origin)))
		if _, most := c.server.read(now); off.Abs() > most || most > x.took[len(x.took)-1] {
			t.Errorf("%s: the clock is off by %v, and known within %v", x.name, off, most)
		}
	}
	now = now.Add(simulatedLease / 3)
	if stamp(renewal(slow), originWall.Add(now.Since(origin)+time.Hour)); c.Open(now) {
		t.Error("open by the first stamp of a clock that is an hour ahead, which was slow")
	}
	if stamp(renewal(prompt), originWall.Add(now.Since(origin)+time.Hour)); !c.Open(now) {
		t.Error("not open by its second stamp, which was prompt")
	}
}

func TestNothingIsClaimedBeforeTheServersClockIsKnown(t *testing.T) {
	p := leaky("api", "10/s")
	c := New(Options{Name: "me", Lease: simulatedLease, Random: func() float64 { return 0.5 }})
	c.Handle(Connected{Up: true}, origin)
	c.synced = true
	setPolicies(c, origin, []policy.Policy{p}...)
	c.advance(origin)
	renewal := c.out.puts[0]
	c.out = actions{}
	c.Handle(Written{renewal, 5}, origin)
	for now := origin; now < origin.Add(2*second); now = now.Add(20 * ms) {
		c.advance(now)
	}
	if n := len(c.out.puts); n != 1 || c.out.puts[0].Why != WhyRenew {
		t.Errorf("%d writes, want the next renewal alone", n)
	}
}
