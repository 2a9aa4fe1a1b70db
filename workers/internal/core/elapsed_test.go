package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func slowly() policy.Policy {
	p := leaky("api", "1/10s")
	return p
}

// leftBehind is the record of an owner that started a job a second ago in a bucket at 1/10s.
func leftBehind(t *testing.T) record.Handover {
	c := coreBench(t, slowly())
	part, now := takeOver(c, Opened{})
	starts(c, part, now, 1, 20*ms)
	return part.Surrender(now.Add(second))
}

func starts(c *Core, part *partition, now pace.Instant, jobs uint64,
	length time.Duration) (began []time.Duration) {
	for seq := range jobs {
		arrives(c, part, now, seq+1, "a")
	}
	c.run(now, length, func(now pace.Instant, _ []Put) {
		for _, r := range c.out.Starts {
			r.Decide(atOnce(r), nil)
			began = append(began, now.Since(origin))
			c.Handle(Finish(r, record.Outcome{Seq: r.Seq, Kind: record.OutcomeDone}), now)
			c.Handle(Confirmed{r.Part, []uint64{r.Seq}}, now)
		}
	})
	return began
}

// A record is stored under one leader and the claim under another, whose clocks differ by 5 s. 9 s
// of the interval remain.
func TestNoLeadersClockShortensAWait(t *testing.T) {
	const wrong = 5 * second
	for _, x := range []struct {
		name            string
		crashed, live   bool
		stored, claimed time.Duration
		silent          bool
	}{
		{name: "released, the new leader is ahead", live: true, claimed: wrong},
		{name: "released, the former leader is behind", live: true, stored: -wrong},
		{name: "released before this drainer began, the new leader is ahead", claimed: wrong},
		{name: "released before this drainer began, the former leader is behind", stored: -wrong},
		{name: "released by an older version before this drainer began, the new leader is ahead",
			claimed: wrong, silent: true},
		{name: "crashed, the new leader is ahead", crashed: true, claimed: wrong},
		{name: "crashed, the former leader is behind", crashed: true, stored: -wrong},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := coreBench(t, slowly())
			h := leftBehind(t)
			if h.At = originWall.UnixMicro(); x.silent {
				h.At = 0
			}
			stored := originWall.Add(x.stored)
			found := Opened{Taken: originWall.Add(x.claimed), Created: originWall.Add(-time.Hour),
				Read: originWall, Last: 2}
			c.synced = x.live
			left := record.Owner{V: record.Version, Owner: "old", Released: true, Handover: h}
			if x.crashed {
				left = record.Owner{V: record.Version, Owner: "old"}
				found.Checkpoint, found.Noted = record.Checkpoint{V: record.Version, Owner: "old",
					Epoch:    8,
					Handover: h}, stored
				c.Handle(Watched{TableDrainers, "old", Record{Revision: 3, Stored: originWall}},
					origin)
			}
			c.Handle(Watched{TablePartitions, "api.0",
				Record{Exists: true, Value: record.Encode(left), Revision: 8, Stored: stored}},
				origin)
			c.synced = true
			part, now := takeOver(c, found)
			c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
				Jobs: []job.Arrived{{Seq: 2, Key: "a", Cost: 1, Stored: originWall}}}, now)
			at := firstStart(c, now).Since(origin)
			if at < 9*second || at > 11*second+250*ms {
				t.Errorf("the next job starts after %v, want 9 to 11 s", at)
			}
		})
	}
}

func firstStart(c *Core, now pace.Instant) (at pace.Instant) {
	at = pace.Never
	c.run(now, time.Minute, func(now pace.Instant, _ []Put) {
		if len(c.out.Starts) > 0 && at == pace.Never {
			at = now
		}
	})
	return at
}

// A drainer that begins after the release has only clocks for the record's age, and they agree.
func TestASlowRateGoesOnOverARestart(t *testing.T) {
	c := coreBench(t, slowly())
	h := leftBehind(t)
	h.At = originWall.Add(-5 * second).UnixMicro()
	left := record.Owner{V: record.Version, Owner: "old", Released: true, Handover: h}
	c.synced = false
	c.Handle(Watched{TablePartitions, "api.0",
		Record{Exists: true, Value: record.Encode(left), Revision: 8,
			Stored: originWall.Add(-5 * second)}},
		origin)
	c.synced = true
	part, now := takeOver(c,
		Opened{Taken: originWall, Read: originWall, Created: originWall.Add(-time.Hour), Last: 2})
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
		Jobs: []job.Arrived{{Seq: 2, Key: "a", Cost: 1, Stored: originWall}}}, now)
	if at := firstStart(c, now).Since(origin); at < 4*second || at > 4200*ms {
		t.Errorf("4 s were left: the next job starts after %v", at)
	}
}

// The clocks lay beyond the lease when the checkpoint was built, but not when it was stored, and it
// lacks a job that started in between.
func TestALateCheckpointDoesNotCoverLaterStarts(t *testing.T) {
	old := coreBench(t, slowly())
	former, then := takeOver(old, Opened{})
	began := starts(old, former, then, 3, 4*second)
	then = then.Add(4 * second)
	h := checkpointed(former, then, simulatedLease)
	if len(h.Clocks) != 1 {
		t.Fatalf("%d clocks are noted, want one", len(h.Clocks))
	}
	wall := func() time.Time { return originWall.Add(then.Since(origin)) }
	h.At = wall().UnixMicro()
	began = append(began, starts(old, former, then, 0, 6*second+100*ms)...)
	then = then.Add(6*second + 100*ms)
	stored := wall().Add(second)

	c := coreBench(t, slowly())
	c.Handle(Watched{TableDrainers, "old", Record{Revision: 3, Stored: originWall}}, origin)
	ownedBefore(c, record.Owner{V: record.Version, Owner: "old"}, 8)
	const takeover = 15 * second
	claimed := originWall.Add(takeover)
	part, now := takeOver(c, Opened{
		Taken: claimed, Read: claimed, Created: originWall.Add(-time.Hour), Last: 3,
		Checkpoint: record.Checkpoint{V: record.Version, Owner: "old", Epoch: 8, Handover: h},
		Noted:      stored,
	})
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
		Jobs: []job.Arrived{{Seq: 3, Key: "a", Cost: 1, Stored: originWall}}}, now)
	began = append(began, takeover+firstStart(c, now).Since(origin))
	if len(began) != 3 {
		t.Fatalf("starts at %v, want three", began)
	}
	if why := pacetest.Exceeds(began, 0.1, 1); why != "" {
		t.Errorf("law 2: starts at %v: %s", began, why)
	}
}

func TestAClockThatIsNotDueYetIsExactAfterACrash(t *testing.T) {
	const noted = 5 * second
	c := coreBench(t, slowly())
	h := leftBehind(t)
	h.At = originWall.Add(-noted).UnixMicro()
	c.Handle(Watched{TableDrainers, "old", Record{Revision: 3, Stored: originWall}}, origin)
	ownedBefore(c, record.Owner{V: record.Version, Owner: "old"}, 8)
	part, now := takeOver(c, Opened{
		Taken: originWall, Read: originWall, Created: originWall.Add(-time.Hour), Last: 1,
		Checkpoint: record.Checkpoint{V: record.Version, Owner: "old", Epoch: 8, Handover: h},
		Noted:      originWall.Add(-noted),
	})
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
		Jobs: []job.Arrived{{Seq: 2, Key: "a", Cost: 1, Stored: originWall}}}, now)
	if at := firstStart(c, now).Since(origin); at < 4*second || at > 4200*ms {
		t.Errorf("4 s were left: the next job starts after %v", at)
	}
}

// The clocks of the streams' leaders may differ.
func TestAttemptsOfAnotherStreamAreToldApartByItsId(t *testing.T) {
	c := coreBench(t, slowly())
	for _, x := range []struct {
		stream int64
		stored time.Duration
		want   bool
	}{
		{originWall.UnixNano(), second, true},
		{originWall.UnixNano(), -12 * second, true},
		{originWall.Add(-time.Hour).UnixNano(), 12 * second, false},
		{0, second, true},
		{0, -second, false},
	} {
		in := c.inheritance(&share{policy: "api"},
			Opened{Created: originWall, Taken: originWall.Add(time.Minute),
				Attempts: map[uint64]StoredAttempt{
					1: {Attempt: record.Attempt{V: record.Version, Attempts: 2, Stream: x.stream},
						Stored: originWall.Add(x.stored)}}}, origin)
		if _, got := in.Attempts[1]; got != x.want {
			t.Errorf("stream %d, stored %v after it was made: heeded %v", x.stream, x.stored, got)
		}
	}
}
