package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func bystander(c *Core, now pace.Instant) {
	alive := record.Lease{V: record.Version, Nonce: uint64(now),
		Lease:    simulatedLease.Milliseconds(),
		Policies: []string{"api"}}
	c.Handle(Watched{TableDrainers, "another",
		Record{Exists: true, Value: record.Encode(alive), Revision: uint64(now),
			Stored: originWall}}, now)
}

var released = record.Owner{V: record.Version, Owner: "before", Released: true,
	Handover: record.Handover{
		Rate: "1/m", Clocks: []record.Clock{{Key: "a", Due: 60_000_000}},
		Running: []record.Run{{Seq: 3, Holder: "holder"}}, Done: []uint64{1},
	}}

func givenBack(t *testing.T, c *Core, before record.Owner, revision uint64) {
	t.Helper()
	found := c.shares.all["api.0"].record
	if c.shares.all["api.0"].revision == revision {
		t.Fatal("nobody has written the record again")
	}
	if !before.Released {
		before.After = revision
	}
	if string(record.Encode(found)) != string(record.Encode(before)) {
		t.Errorf("it says %s, and said %s", record.Encode(found), record.Encode(before))
	}
}

// A drainer that cannot open a backlog, for example in a newer format, leaves it and its inherited
// state to others.
func TestAnUnopenablePartitionIsLeftToOthers(t *testing.T) {
	for name, before := range map[string]record.Owner{
		"released": released,
		"crashed": {V: record.Version, Owner: "before",
			Handover: record.Handover{Running: []record.Run{{Seq: 3, Holder: "holder"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := coreBench(t, leaky("api", "10/s"))
			tombstone := record.Lease{V: record.Version, Tombstone: true}
			c.Handle(Watched{TableDrainers, "before",
				Record{Exists: true, Value: record.Encode(tombstone), Revision: 3,
					Stored: originWall}},
				origin)
			ownedBefore(c, before, 8)
			claimed, free, now := 0, time.Duration(0), origin
			for ; now < origin.Add(10*time.Minute); now = now.Add(50 * ms) {
				bystander(c, now)
				c.advance(now)
				for _, w := range c.out.puts {
					if w.Why == whyTake {
						claimed++
					}
				}
				answerPuts(c, now)
				for _, o := range c.out.opens {
					c.Handle(Unopened{o, false}, now)
				}
				if s := c.shares.all["api.0"]; s.free(c.view(now)) {
					free += 50 * ms
					givenBack(t, c, before, 8)
				}
				c.out = actions{}
			}
			if free < 2*time.Minute || claimed < 3 || claimed > 60 {
				t.Errorf("in ten minutes it was free for %v, and claimed %d times", free, claimed)
			}
		})
	}
}

func TestALeaverReleasesUnopenedPartitions(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	ownedBefore(c, released, 8)
	now, failed := origin, false
	for ; !failed; now = now.Add(20 * ms) {
		c.advance(now)
		answerPuts(c, now)
		for _, o := range c.out.opens {
			c.Handle(Unopened{o, false}, now)
			failed = true
		}
		c.out = actions{}
	}
	c.Handle(Stopped{}, now)
	for ; !c.Left(); now = now.Add(20 * ms) {
		c.advance(now)
		answerPuts(c, now)
		if c.out = (actions{}); now > origin.Add(time.Minute) {
			t.Fatal("a minute later it has not left")
		}
	}
	givenBack(t, c, released, 8)
}

func TestACrashBeforeTheOpeningKeepsTheHandover(t *testing.T) {
	p := leaky("api", "10/s")
	c := coreBench(t, p)
	ownedBefore(c, released, 8)
	var claim record.Owner
	for now := origin; claim.Owner == ""; now = now.Add(20 * ms) {
		c.advance(now)
		for _, w := range c.out.puts {
			if w.Why == whyTake {
				if err := record.Decode(w.value, &claim); err != nil {
					t.Fatal(err)
				}
			}
		}
		answerPuts(c, now)
		c.out = actions{}
	}
	next := coreBench(t, p)
	successor := &share{policy: "api",
		before: ownership{exists: true, record: claim, revision: 9}}
	in := next.inheritance(successor, Opened{}, origin)
	if !in.Crashed || !slices.Equal(in.Handover.Running, released.Running) ||
		!slices.Equal(in.Handover.Done, released.Done) {
		t.Errorf("inherited %+v, want what ran and what was done", in)
	}
}

func TestAPartitionThatCannotBeOpenedAgainIsHandedOver(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	now := c.run(origin, 2*time.Second, nil)
	part := c.shares.all["api.0"].part
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
		Jobs: []job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}}, now)
	c.Decide(now)
	if len(c.out.Starts) != 1 {
		t.Fatal("it did not start")
	}
	c.out.Starts[0].Decide(atOnce(c.out.Starts[0]), nil)
	c.Handle(Broken{part.Partition, part.Epoch}, now)
	var left record.Owner
	for end := now.Add(time.Minute); now < end && !left.Released; now = now.Add(50 * ms) {
		bystander(c, now)
		c.advance(now)
		answerPuts(c, now)
		for _, o := range c.out.opens {
			c.Handle(Unopened{o, false}, now)
		}
		left = c.shares.all["api.0"].record
		c.out = actions{}
	}
	if !left.Released || len(left.Running) != 1 {
		t.Errorf("a minute later the record says %s", record.Encode(left))
	}
}

// A partition that it cannot open may hold unacknowledged jobs, so it looks again, or it would
// never end.
func TestAReleasedPartitionIsReopenedForPendingAcknowledgements(t *testing.T) {
	for name, c := range map[string]struct{ leaves, streamless bool }{
		"it leaves, and the stream is back": {true, false},
		"the policy and its stream go":      {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			core, part, now := ownerBench(t)
			r := delivers(t, core, part, 1, now)
			r.Decide(atOnce(r), nil)
			core.Handle(Finish(r, record.Outcome{Seq: 1, Kind: record.OutcomeDone}), now)
			core.Handle(Broken{part.Partition, part.Epoch}, now)
			tries := 0
			for end := now.Add(time.Minute); now < end && !core.Left(); now = now.Add(second) {
				core.advance(now)
				answerPuts(core, now)
				for _, o := range core.out.opens {
					tries++
					switch {
					case tries == 1:
						core.Handle(Unopened{o, c.streamless}, now)
						if c.leaves {
							core.Handle(Stopped{}, now)
						} else {
							core.setAll(now)
						}
					case c.streamless:
						core.Handle(Unopened{o, true}, now)
					default:
						core.Handle(Opened{Opening: o, Last: 1}, now)
						core.Handle(Confirmed{part.Partition, []uint64{1}}, now)
					}
				}
				core.out = actions{}
			}
			if !core.Left() {
				t.Errorf("a minute later it still owns the partition, after %d openings", tries)
			}
		})
	}
}

// A late claim for a dropped policy names a live process, so other drainers cannot take the
// partition.
func TestAClaimThatIsAppliedLateIsNotForgotten(t *testing.T) {
	for name, returns := range map[string]bool{"another drainer takes it": false,
		"this one may own it again": true} {
		t.Run(name, func(t *testing.T) {
			p := leaky("api", "10/s")
			c := coreBench(t, p)
			ownedBefore(c, released, 8)
			now := origin
			var late Put
			for ; late.Key == ""; now = now.Add(20 * ms) { // the claim times out
				c.advance(now)
				for _, w := range c.out.puts {
					if w.Why == whyTake {
						late = w
					}
				}
				if late.Key == "" {
					answerPuts(c, now)
				}
				c.out = actions{}
			}
			c.Handle(Written{late, 0}, now)
			// it is not stored yet
			c.Handle(Found{late,
				Record{Exists: true, Value: record.Encode(released), Revision: 8,
					Stored: originWall}},
				now)
			own := func(own bool) {
				c.Handle(configured(
					QueuePolicy{Policy: p.WithDefaults(), Own: own, Local: own}), now)
			}
			own(false)
			now = c.run(now, second, nil)
			benchRevision++
			c.Handle(Watched{TablePartitions, "api.0",
				Record{Exists: true, Value: late.value, Revision: benchRevision,
					Stored: originWall}}, now)
			if !returns {
				c.run(now, second, nil)
				givenBack(t, c, released, 8)
				return
			}
			own(true)
			c.run(now, 10*time.Second, nil)
			if s := c.shares.all["api.0"]; s.part == nil || !s.part.Live() {
				t.Errorf("state %d, owner %q, this is %q", s.state, s.record.Owner, c.Lease.Id)
			}
		})
	}
}

func TestOpeningAPartitionOfARetiredPolicyIsGivenUp(t *testing.T) {
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprintf("owned before: %t", live), func(t *testing.T) {
			p := leaky("api", "10/s")
			c := coreBench(t, p)
			told := func(retired bool, now pace.Instant) {
				c.Handle(configured(QueuePolicy{Policy: p.WithDefaults(), Own: true, Local: true,
					Retired: retired}), now)
			}
			now := origin
			if live {
				now = c.run(origin, 2*time.Second, nil)
				part := c.shares.all["api.0"].part
				c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch,
					Jobs: []job.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}}, now)
				c.Handle(Broken{part.Partition, part.Epoch}, now)
			}
			told(true, now)
			opens, writes := 0, 0
			for end := now.Add(10 * time.Minute); now < end; now = now.Add(50 * ms) {
				c.advance(now)
				for _, key := range answerPuts(c, now) {
					if key == "api.0" {
						writes++
					}
				}
				for _, o := range c.out.opens {
					opens++
					c.Handle(Unopened{o, true}, now)
				}
				for i := range c.out.Starts {
					c.out.Starts[i].Decide(atOnce(c.out.Starts[i]), nil)
				}
				c.out = actions{}
			}
			if s := c.shares.all["api.0"]; opens > 5 || writes > 10 || s.part != nil ||
				!s.free(c.view(now)) {
				t.Errorf("in ten minutes it tried %d times and wrote %d records; owned: %t", opens,
					writes, s.part != nil)
			}
			told(false, now)
			c.run(now, 5*time.Second, nil)
			if s := c.shares.all["api.0"]; s.part == nil || !s.part.Live() {
				t.Error("the policy came back, and nobody owns its partition")
			}
		})
	}
}
