package core

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
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
	if c.stamped(origin, stored, now); c.Open(now) {
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
