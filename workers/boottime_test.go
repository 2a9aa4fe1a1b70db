package workers

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// slept makes a timepiece remember the clocks as they were before this machine slept.
func (c *timepiece) slept(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.booted -= d
	c.ahead.Add(-int64(d))
}

// stepped makes it remember the wall clock as it was before it was set.
func (c *timepiece) stepped(d time.Duration) { c.ahead.Add(-int64(d)) }

func TestInstantsGoOnWhileTheMachineSleeps(t *testing.T) {
	c := newTimepiece()
	before := c.now()
	c.slept(time.Minute)
	after := c.now()
	if passed := after.since(before); passed < time.Minute || passed > 2*time.Minute {
		t.Errorf("a minute asleep: %v passed", passed)
	}
	if c.now() < after || c.jumps.Load() != 0 {
		t.Errorf("then %v passed, and the clocks jumped %d times", c.now().since(after), c.jumps.Load())
	}
}

func TestAStepOfTheWallClockIsAJumpAndPassesNoTime(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, 2 * jump, -2 * jump} {
		c := newTimepiece()
		before := c.now()
		c.stepped(step)
		if passed := c.now().since(before); passed < 0 || passed > time.Minute {
			t.Errorf("a step of %v: %v passed", step, passed)
		}
		if n := c.jumps.Load(); n != 1 {
			t.Errorf("a step of %v: %d jumps", step, n)
		}
	}
}

// TestASleepAndAStepAtOnceAreBothSeen: a machine that wakes up asks NTP for the time.
func TestASleepAndAStepAtOnceAreBothSeen(t *testing.T) {
	c := newTimepiece()
	before := c.now()
	c.slept(time.Minute)
	c.stepped(-time.Second)
	if passed := c.now().since(before); passed < time.Minute || c.jumps.Load() != 1 {
		t.Errorf("%v passed, %d jumps", passed, c.jumps.Load())
	}
}

// TestInstantsNeverGoBack for anybody who reads them, while the machine sleeps and its wall clock is set to and fro.
func TestInstantsNeverGoBack(t *testing.T) {
	c := newTimepiece()
	const sleeps = 200
	began := c.now()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for last := began; last.since(began) < sleeps*time.Second; {
				now := c.now()
				if now < last {
					t.Errorf("an instant %v before the last", last.since(now))
					return
				}
				last = now
			}
		})
	}
	for i := range sleeps {
		c.slept(time.Second)
		c.stepped(time.Duration(i%3-1) * 20 * ms)
		c.now()
	}
	readers.Wait()
}

// TestNothingStartsAfterAJumpBeforeARenewalIsAnswered: others may have taken this process for dead while its clocks stood
// still, and a renewal that was sent before says nothing about that.
func TestNothingStartsAfterAJumpBeforeARenewalIsAnswered(t *testing.T) {
	c := coreBench(t)
	now := origin.add(c.options.lease / 3)
	c.advance(now) // the next renewal is sent
	sent := c.out.puts
	if c.out.puts = nil; len(sent) != 1 || !c.open(now) {
		t.Fatalf("%d renewals are under way, open %v", len(sent), c.open(now))
	}
	now = now.add(ms)
	if c.jumped(now); c.open(now) {
		t.Error("open after a jump")
	}
	c.put(sent[0], putOK, 7000, now)
	if c.open(now) {
		t.Error("open again by a renewal from before the jump")
	}
	c.advance(now)
	if len(c.out.puts) != 1 {
		t.Fatalf("%d renewals are sent, want one at once", len(c.out.puts))
	}
	if answerPuts(c, now.add(ms)); !c.open(now.add(ms)) {
		t.Error("not open although a renewal was answered")
	}
}

// TestTheLastCheckNoticesAJump: a worker may come to its last check before the loop has looked at the clock again.
func TestTheLastCheckNoticesAJump(t *testing.T) {
	d, err := New(&nats.Conn{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	d.fence.Store(int64(never))
	if fence, now := d.gate(); now >= fence {
		t.Fatalf("the fence %v is closed at %v", fence, now)
	}
	d.clock.stepped(time.Minute)
	if fence, now := d.gate(); now < fence {
		t.Error("the fence is open after a jump")
	}
	d.heard.Store(1)
	if fence, now := d.gate(); now >= fence {
		t.Error("the fence is closed although the core has heard of the jump")
	}
}

// TestDeadlinesGoByJetStreamsClock: the host of this drainer is in another year, which is nowhere to be seen.
func TestDeadlinesGoByJetStreamsClock(t *testing.T) {
	p := leaky("api", "10/s")
	p.Partitions = 1
	c := coreBench(t, p)
	part, now := takeOver(c, opened{last: 100})
	stored := originWall.Add(now.since(origin))
	c.arrived(part, part.epoch, []queue.Arrived{
		{Seq: 1, Key: "passed", Cost: 1, Stored: stored, Deadline: stored.Add(-second)},
		{Seq: 2, Key: "ahead", Cost: 1, Stored: stored, Deadline: stored.Add(second)},
		{Seq: 3, Key: "later", Cost: 1, Stored: stored, NotBefore: stored.Add(second)},
	}, now)
	c.advance(now)
	if len(c.out.burials) != 1 || c.out.burials[0].Seq != 1 || len(c.out.starts) != 1 || c.out.starts[0].Seq != 2 {
		t.Errorf("buried %d, started %d: want job 1 buried, job 2 started, job 3 later", len(c.out.burials), len(c.out.starts))
	}
}

// TestDatesHoldAfterTheClocksStoodStill: the host of this process stopped it with its clocks for a minute, of which JetStream's
// clock tells. Nothing starts before, for what is told as a date may have come meanwhile.
func TestDatesHoldAfterTheClocksStoodStill(t *testing.T) {
	c := coreBench(t, slowly())
	part, now := takeOver(c, opened{last: 100})
	c.server.least, c.server.most = c.server.least-int64(time.Minute), c.server.most-int64(time.Minute)
	stored := c.wall(now)
	c.server.dated = c.wall(0)
	c.arrived(part, part.epoch, []queue.Arrived{
		{Seq: 1, Key: "a", Cost: 1, Stored: stored, Body: []byte{}},
		{Seq: 2, Key: "a", Cost: 1, Stored: stored, Deadline: stored.Add(9 * second), Body: []byte{}},
		{Seq: 3, Key: "a", Cost: 1, Stored: stored, Deadline: stored.Add(2 * time.Minute), Body: []byte{}},
		{Seq: 4, Key: "b", Cost: 1, Stored: stored, NotBefore: stored.Add(second), Deadline: stored.Add(20 * second), Body: []byte{}},
		{Seq: 5, Key: "c", Cost: 1, Stored: stored, NotBefore: stored.Add(50 * second), Body: []byte{}},
		{Seq: 6, Key: "d", Cost: 1, Stored: stored, NotBefore: stored.Add(80 * second), Body: []byte{}},
	}, now)
	c.advance(now)
	c.out = actions{}
	c.jumped(now)
	c.advance(now)
	renewal := putFor(t, c, whyRenew)
	c.out = actions{}
	if c.put(renewal, putOK, 7000, now); c.open(now) {
		t.Error("open although nobody has told what time it is")
	}
	if c.stamped(c.lease.sends[0].nonce, stored, now); c.open(now) {
		t.Error("open by the stamp of a renewal that was sent before")
	}
	stamped := record{exists: true, value: renewal.value, revision: 7000, stored: stored.Add(time.Minute)}
	c.watched(tableDrainers, renewal.key, stamped, now)
	c.advance(now)
	var buried, started []uint64
	for _, u := range c.out.burials {
		buried = append(buried, u.Seq)
	}
	for _, r := range c.out.starts {
		started = append(started, r.Seq)
	}
	slices.Sort(buried)
	if !slices.Equal(buried, []uint64{2, 4}) || !slices.Equal(started, []uint64{5}) {
		t.Errorf("buried %v, want 2 and 4, whose deadlines have passed; started %v, want 5, which was not due before", buried, started)
	}
	c.out = actions{}
	at := map[uint64]time.Duration{}
	c.run(now, time.Minute, func(then instant, _ []put) {
		for _, r := range c.out.starts {
			at[r.Seq] = then.since(now)
		}
	})
	if at[3] > 11*second || at[6] < 20*second || at[6] > 21*second {
		t.Errorf("job 3 starts after %v, want 10 s; job 6 after %v, want 20 s", at[3], at[6])
	}
}

// TestTheServersClockIsKnownToAFewMilliseconds: it lies between when a renewal was sent and when its stamp was seen, and
// what contradicts earlier stamps is another server's clock.
func TestTheServersClockIsKnownToAFewMilliseconds(t *testing.T) {
	c := coreBench(t)
	stamp := func(sent instant, by, seen time.Duration, stored time.Time) time.Duration {
		t.Helper()
		c.lease.sends = []send{{nonce: 1, at: sent}}
		c.stamped(1, stored, sent.add(seen))
		return c.wall(sent.add(by)).Sub(stored) // 0: exact
	}
	at := originWall
	for _, x := range []struct {
		name     string
		seen     time.Duration
		ahead    time.Duration // of the server, in all
		from, to time.Duration // by how much the answer may be wrong
	}{
		{"prompt", 2 * ms, 0, -ms, ms},
		{"seen after a break", 20 * second, 0, -ms, ms},
		{"a leader that is 12 s ahead", 2 * ms, 12 * second, -ms, ms},
		{"and back", 2 * ms, 0, -ms, ms},
		{"in the next century", 2 * ms, 40 * 365 * 24 * time.Hour, -ms, ms},
	} {
		at = at.Add(second)
		sent := origin.add(at.Sub(originWall))
		if off := stamp(sent, ms, x.seen, at.Add(x.ahead+ms)); off < x.from || off > x.to {
			t.Errorf("%s: off by %v", x.name, off)
		}
	}
}

// TestNothingStartsByAClockThatIsHardlyKnown: a stamp that was long under way leaves open when it was put on, so a renewal is
// sent at once that may tell better. Where all are as slow, the third has to do.
func TestNothingStartsByAClockThatIsHardlyKnown(t *testing.T) {
	c := coreBench(t, slowly())
	_, now := takeOver(c, opened{last: 100})
	renewal := func(took time.Duration) (p put) {
		t.Helper()
		c.advance(now)
		p = putFor(t, c, whyRenew)
		c.out = actions{}
		now = now.add(took)
		return p
	}
	stamp := func(p put, stored time.Time) {
		seen := record{exists: true, value: p.value, revision: c.lease.revision + 1, stored: stored}
		c.put(p, putOK, seen.revision, now)
		c.watched(tableDrainers, p.key, seen, now)
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
		c.jumped(now)
		for i, took := range x.took {
			if c.open(now) {
				t.Errorf("%s: open before stamp %d", x.name, i)
			}
			stamp(renewal(took), originWall.Add(now.since(origin)))
		}
		if !c.open(now) {
			t.Errorf("%s: not open", x.name)
		}
		off := c.wall(now).Sub(originWall.Add(now.since(origin)))
		if took := x.took[len(x.took)-1]; off.Abs() > took {
			t.Errorf("%s: the clock is off by %v", x.name, off)
		}
	}
	now = now.add(simulatedLease / 3)
	if stamp(renewal(slow), originWall.Add(now.since(origin)+time.Hour)); c.open(now) {
		t.Error("open by the first stamp of a clock that is an hour ahead, which was slow")
	}
	if stamp(renewal(prompt), originWall.Add(now.since(origin)+time.Hour)); !c.open(now) {
		t.Error("not open by its second stamp, which was prompt")
	}
}

// TestNothingIsClaimedBeforeTheServersClockIsKnown: the deadlines of what arrives would be judged by no clock at all.
func TestNothingIsClaimedBeforeTheServersClockIsKnown(t *testing.T) {
	p := leaky("api", "10/s")
	c := newCore(coreOptions{name: "me", lease: simulatedLease, random: func() float64 { return 0.5 }})
	c.connection(true, origin)
	c.synced = true
	setPolicies(c, origin, []policy.Policy{p}...)
	c.advance(origin)
	renewal := c.out.puts[0]
	c.out = actions{}
	c.put(renewal, putOK, 5, origin) // its watch does not tell yet
	for now := origin; now < origin.add(2*second); now = now.add(20 * ms) {
		c.advance(now)
	}
	if n := len(c.out.puts); n != 1 || c.out.puts[0].why != whyRenew {
		t.Errorf("%d writes, want the next renewal alone", n)
	}
}

func BenchmarkNow(b *testing.B) {
	c := newTimepiece()
	b.Run("instant", func(b *testing.B) {
		for b.Loop() {
			c.now()
		}
	})
	b.Run("since boot", func(b *testing.B) {
		for b.Loop() {
			sinceBoot()
		}
	})
}
