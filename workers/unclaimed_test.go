package workers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// bystander lets another drainer renew its lease, which can own the policy api.
func bystander(c *core, now instant) {
	alive := leaseRecord{V: version, Nonce: uint64(now), Lease: simulatedLease.Milliseconds(), Policies: []string{"api"}}
	c.watched(tableDrainers, "another", record{exists: true, value: encode(alive), revision: uint64(now), stored: originWall}, now)
}

// released is what the former owner of api.0 left, as it comes back when this one does not take it in.
var released = ownerRecord{V: version, Owner: "before", Released: true, handover: handover{
	Rate: "1/m", Clocks: []clockRecord{{Key: "a", Due: 60_000_000}}, Running: []runRecord{{3, "holder"}}, Done: []uint64{1},
}}

// givenBack is a check that the record of api.0 says what it did before the claim.
func givenBack(t *testing.T, c *core, before ownerRecord, revision uint64) {
	t.Helper()
	found := c.shares["api.0"].record
	if found.Nonce == 0 {
		t.Fatal("nobody has written the record again")
	}
	if before.Nonce = found.Nonce; !before.Released {
		before.After = revision
	}
	if string(encode(found)) != string(encode(before)) {
		t.Errorf("it says %s, and said %s", encode(found), encode(before))
	}
}

// A drainer that cannot open a partition's backlog, of a stream in a newer format, say, lets others try, with all that its
// former owner had left.
func TestAPartitionThatCannotBeOpenedIsLeftToOthers(t *testing.T) {
	for name, before := range map[string]ownerRecord{
		"released": released,
		"crashed":  {V: version, Owner: "before", handover: handover{Running: []runRecord{{3, "holder"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := leaky("api", "10/s")
			p.Partitions = 1
			c := coreBench(t, p)
			tombstone := leaseRecord{V: version, Tombstone: true}
			c.watched(tableDrainers, "before", record{exists: true, value: encode(tombstone), revision: 3, stored: originWall}, origin)
			c.watched(tablePartitions, "api.0", record{exists: true, value: encode(before), revision: 8, stored: originWall}, origin)
			claimed, free, now := 0, time.Duration(0), origin
			for ; now < origin.add(10*time.Minute); now = now.add(50 * ms) {
				bystander(c, now)
				c.advance(now)
				for _, w := range c.out.puts {
					if w.why == whyClaim {
						claimed++
					}
				}
				answerPuts(c, now)
				for _, o := range c.out.opens {
					c.unopened(o, o.part.epoch, false, now)
				}
				if s := c.shares["api.0"]; c.free(s, now) {
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

// One that leaves gives such a partition back before it is gone: it did not crash.
func TestWhoLeavesGivesBackWhatItCouldNotOpen(t *testing.T) {
	p := leaky("api", "10/s")
	p.Partitions = 1
	c := coreBench(t, p)
	c.watched(tablePartitions, "api.0", record{exists: true, value: encode(released), revision: 8, stored: originWall}, origin)
	now, failed := origin, false
	for ; !failed; now = now.add(20 * ms) {
		c.advance(now)
		answerPuts(c, now)
		for _, o := range c.out.opens {
			c.unopened(o, o.part.epoch, false, now)
			failed = true
		}
		c.out = actions{}
	}
	c.leave(now)
	for ; !c.left(); now = now.add(20 * ms) {
		c.advance(now)
		answerPuts(c, now)
		if c.out = (actions{}); now > origin.add(time.Minute) {
			t.Fatal("a minute later it has not left")
		}
	}
	givenBack(t, c, released, 8)
}

// Nor is anything forgotten of a planned handover when who took the partition next crashes before it has opened it.
func TestACrashBeforeTheOpeningKeepsWhatWasHandedOver(t *testing.T) {
	p := leaky("api", "10/s")
	p.Partitions = 1
	c := coreBench(t, p)
	c.watched(tablePartitions, "api.0", record{exists: true, value: encode(released), revision: 8, stored: originWall}, origin)
	var claim ownerRecord
	for now := origin; claim.Owner == ""; now = now.add(20 * ms) {
		c.advance(now)
		for _, w := range c.out.puts {
			if w.why == whyClaim {
				if err := decode(w.value, &claim); err != nil {
					t.Fatal(err)
				}
			}
		}
		answerPuts(c, now)
		c.out = actions{}
	}
	next := coreBench(t, p)
	successor := &share{policy: "api", before: predecessor{exists: true, record: claim, revision: 9}}
	in := next.inheritance(successor, opened{}, origin)
	if !in.crashed || !slices.Equal(in.handover.Running, released.Running) || !slices.Equal(in.handover.Done, released.Done) {
		t.Errorf("inherited %+v, want what ran and what was done", in)
	}
}

// So does one that owns a partition already and cannot open its backlog anew: it hands it over in order.
func TestAPartitionThatCannotBeOpenedAgainIsHandedOver(t *testing.T) {
	p := leaky("api", "10/s")
	p.Partitions = 1
	c := coreBench(t, p)
	now := c.run(origin, 2*time.Second, nil)
	part := c.shares["api.0"].part
	c.arrived(part, part.epoch, []queue.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}, now)
	c.decide(now)
	if len(c.out.starts) != 1 {
		t.Fatal("it did not start")
	}
	c.out.starts[0].decide(whenever, nil)
	c.broke(part, part.epoch, now)
	var left ownerRecord
	for end := now.add(time.Minute); now < end && !left.Released; now = now.add(50 * ms) {
		bystander(c, now)
		c.advance(now)
		answerPuts(c, now)
		for _, o := range c.out.opens {
			c.unopened(o, o.part.epoch, false, now)
		}
		left = c.shares["api.0"].record
		c.out = actions{}
	}
	if !left.Released || len(left.Running) != 1 {
		t.Errorf("a minute later the record says %s", encode(left))
	}
}

// A claim may be applied after this drainer has stopped knowing the policy: it names a live process, so nobody else can
// take the partition.
func TestAClaimThatIsAppliedLateIsNotForgotten(t *testing.T) {
	for name, returns := range map[string]bool{"another drainer takes it": false, "this one may own it again": true} {
		t.Run(name, func(t *testing.T) {
			p := leaky("api", "10/s")
			p.Partitions = 1
			c := coreBench(t, p)
			c.watched(tablePartitions, "api.0", record{exists: true, value: encode(released), revision: 8, stored: originWall}, origin)
			now := origin
			var late put
			for ; late.key == ""; now = now.add(20 * ms) { // the claim times out …
				c.advance(now)
				for _, w := range c.out.puts {
					if w.why == whyClaim {
						late = w
					}
				}
				if late.key == "" {
					answerPuts(c, now)
				}
				c.out = actions{}
			}
			c.put(late, putUnknown, 0, now)
			c.read(late, record{exists: true, value: encode(released), revision: 8, stored: originWall}, now) // … and is not there yet
			own := func(own bool) {
				c.setPolicies([]queuePolicy{{Policy: p.WithDefaults(), own: own, local: own}}, now)
			}
			own(false) // its target cannot be used any more
			now = c.run(now, second, nil)
			benchRevision++
			c.watched(tablePartitions, "api.0", record{exists: true, value: late.value, revision: benchRevision, stored: originWall}, now)
			if !returns {
				c.run(now, second, nil)
				givenBack(t, c, released, 8)
				return
			}
			own(true)
			c.run(now, 10*time.Second, nil)
			if s := c.shares["api.0"]; s.part == nil || s.part.state != partitionLive {
				t.Errorf("state %d, owner %q, this is %q", s.state, s.record.Owner, c.lease.id)
			}
		})
	}
}

// The stream of a policy that has retired goes when it is empty: then there is nothing to own any more.
func TestAPartitionOfARetiredPolicyIsNotOpenedForEver(t *testing.T) {
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprintf("owned before: %t", live), func(t *testing.T) {
			p := leaky("api", "10/s")
			p.Partitions = 1
			c := coreBench(t, p)
			told := func(retired bool, now instant) {
				c.setPolicies([]queuePolicy{{Policy: p.WithDefaults(), own: true, local: true, retired: retired}}, now)
			}
			now := origin
			if live {
				now = c.run(origin, 2*time.Second, nil)
				part := c.shares["api.0"].part
				c.arrived(part, part.epoch, []queue.Arrived{{Seq: 1, Key: "a", Cost: 1, Stored: originWall}}, now)
				c.broke(part, part.epoch, now)
			}
			told(true, now)
			opens, writes := 0, 0
			for end := now.add(10 * time.Minute); now < end; now = now.add(50 * ms) {
				c.advance(now)
				for _, key := range answerPuts(c, now) {
					if key == "api.0" {
						writes++
					}
				}
				for _, o := range c.out.opens {
					opens++
					c.unopened(o, o.part.epoch, true, now)
				}
				for i := range c.out.starts { // and never finish
					c.out.starts[i].decide(whenever, nil)
				}
				c.out = actions{}
			}
			if s := c.shares["api.0"]; opens > 5 || writes > 10 || s.part != nil || !c.free(s, now) {
				t.Errorf("in ten minutes it tried %d times and wrote %d records; owned: %t", opens, writes, s.part != nil)
			}
			told(false, now) // it is back
			c.run(now, 5*time.Second, nil)
			if s := c.shares["api.0"]; s.part == nil || s.part.state != partitionLive {
				t.Error("the policy came back, and nobody owns its partition")
			}
		})
	}
}

// The same on a server, with two drainers: nobody keeps the partitions, and the jobs of a policy that comes back run.
func TestPartitionsOfARetiredPolicyAreLetGoUntilItComesBack(t *testing.T) {
	p := policy.Policy{Name: "api", Algorithm: policy.LeakingBucket, Capacity: 100, Partitions: 2,
		Outflow: algorithms.Rate{Count: 1000, Per: time.Second}}
	b := newBench(t, p)
	var ran seen
	for range 2 {
		b.drain(Options{}, map[string]Handler{"api": ran.handle})
	}
	b.publish("api", "a", 0, 20)
	b.empty("api")
	if err := b.broker.DeletePolicy(t.Context(), "api", false, nil); err != nil {
		t.Fatal(err)
	}
	b.until("its stream is gone", func() bool {
		gone, err := b.broker.Retire(t.Context(), "api")
		return err == nil && gone
	})
	b.until("nobody owns its partitions", func() bool {
		return b.owner("api.0").Released && b.owner("api.1").Released
	})
	b.put(p)
	b.publish("api", "b", 20, 20)
	b.until("the jobs of its second life have run", func() bool { return len(ran.all()) == 40 })
}
