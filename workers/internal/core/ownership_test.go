package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func fleet(t *testing.T, n int) *Core {
	t.Helper()
	a, z := leaky("alpha", "10/s"), leaky("zeta", "10/s")
	a.Partitions, z.Partitions = 8, 24
	c := coreBench(t, a, z)
	for i := range n - 1 {
		heardOf(c, fmt.Sprintf("peer-%d", i), uint64(10+i),
			record.Lease{Lease: 3000, Policies: []string{"alpha", "zeta"}}, origin)
	}
	return c
}

func owners(c *Core) map[string]string {
	result := map[string]string{}
	c.prefer()
	for key, s := range c.shares.all {
		if s.favourite != "" {
			result[key] = s.favourite
		}
	}
	return result
}

func TestALeaseOfAllPoliciesHasTheSameSize(t *testing.T) {
	a, z := leaky("alpha", "10/s"), leaky("zeta", "10/s")
	for want, z := range map[string]QueuePolicy{
		record.Every: {Policy: z.WithDefaults(), Own: true},
		"alpha":      {Policy: z.WithDefaults()},
	} {
		c := coreBench(t)
		c.Handle(configured(QueuePolicy{Policy: a.WithDefaults(), Own: true}, z), origin)
		if got := c.valves.runnable(len(c.policies)); !slices.Equal(got, []string{want}) {
			t.Errorf("the lease names %q, want %s", got, want)
		}
	}
	c := coreBench(t, a, z)
	heardOf(c, "peer", 10, record.Lease{Lease: 3000, Policies: []string{record.Every}}, origin)
	heardOf(c, "other", 11, record.Lease{Lease: 3000, Policies: []string{"alpha"}}, origin)
	can := map[string]bool{}
	for key, id := range owners(c) {
		can[id+" "+key[:1]] = true
	}
	if !can["peer z"] || can["other z"] {
		t.Errorf("favourites are %v", can)
	}
}

func TestAReconnectReopensBacklogsThatDoNotRest(t *testing.T) {
	for _, rests := range []bool{false, true} {
		c := coreBench(t, leaky("api", "10/s"))
		part, now := takeOver(c, Opened{})
		c.Handle(Connected{}, now)
		c.Handle(Connected{Up: true,
			Resting: map[handle.Partition]bool{part.Partition: rests}}, now)
		c.advance(now)
		if took := slices.ContainsFunc(c.out.puts,
			func(p Put) bool { return p.Why == whyTake }); took == rests {
			t.Errorf("rests %v, and takes a new epoch %v", rests, took)
		}
	}
}

func TestFavouritesAreBalancedAndFewMove(t *testing.T) {
	for n := 1; n <= 12; n++ {
		before, after := owners(fleet(t, n)), owners(fleet(t, n+1))
		load := map[string]int{}
		for _, id := range before {
			load[id]++
		}
		for id, l := range load {
			if quota := (32 + n - 1) / n; l > quota {
				t.Errorf("%d drainers: %s has %d, at most %d are fair", n, id, l, quota)
			}
		}
		if len(before) != 32 || len(load) != n {
			t.Errorf("%d drainers: %d partitions on %d of them", n, len(before), len(load))
		}
		moved := 0
		for key, id := range before {
			if after[key] != id {
				moved++
			}
		}
		if most := 2*32/(n+1) + 4; moved > most {
			t.Errorf("%d of 32 move when drainer %d joins, want at most %d", moved, n+1, most)
		}
	}
}

func TestFavouritesCanOwnThePolicy(t *testing.T) {
	c := fleet(t, 3)
	heardOf(c, "peer-0", 50, record.Lease{Lease: 3000, Policies: []string{"zeta"}}, origin)
	heardOf(c, "peer-1", 51,
		record.Lease{Lease: 3000, Policies: []string{"alpha", "zeta"}, Leaving: true}, origin)
	for key, id := range owners(c) {
		if id == "peer-1" || key[:5] == "alpha" && id == "peer-0" {
			t.Errorf("%s is for %s", key, id)
		}
	}
}

// Other drainers cannot take partitions from a live process that cannot run their policy.
func TestPartitionsOfAPolicyThatCannotRunAreReleased(t *testing.T) {
	p := leaky("api", "10/s")
	p.Partitions = 2
	for name, change := range map[string]func(c *Core, now pace.Instant){
		"removed": func(c *Core, now pace.Instant) { setPolicies(c, now) },
		"no workers": func(c *Core, now pace.Instant) {
			c.Handle(configured(QueuePolicy{Policy: p.WithDefaults()}), now)
		},
		"and back": func(c *Core, now pace.Instant) {
			setPolicies(c, now)
			setPolicies(c, now, p)
		},
		"other comes": func(c *Core, now pace.Instant) {
			setPolicies(c, now, leaky("other", "1/s"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := coreBench(t, p)
			now := c.run(origin, 2*time.Second, nil)
			if c.shares.all["api.0"].part == nil || c.shares.all["api.1"].part == nil {
				t.Fatal("not owned")
			}
			change(c, now)
			released := map[string]bool{}
			c.run(now, 3*time.Second, func(_ pace.Instant, written []Put) {
				for _, w := range written {
					var r record.Owner
					if w.Why == whyRelease && record.Decode(w.value, &r) == nil && r.Released {
						released[w.Key] = true
					}
				}
			})
			if len(released) != 2 {
				t.Fatalf("released %v", released)
			}
			back := name == "and back"
			if s := c.shares.all["api.0"]; back != (s != nil && s.part != nil) {
				t.Errorf("owned afterwards: %v, want %v", !back, back)
			}
			if !back && c.valves.all["api"] != nil {
				t.Error("its valve stays")
			}
		})
	}
}

func TestRecordsOfAnotherVersionAreLeftAlone(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	strange := Record{Exists: true, Revision: 20, Stored: time.Unix(1, 0),
		Value: []byte(`{"v":2,"owner":{"id":"x"},"lease":"10m"}`)}
	c.Handle(Watched{TablePartitions, "api.0", strange}, origin)
	c.Handle(Watched{TableDrainers, "stranger", strange}, origin)
	var told []string
	c.Newer(func(_ Table, key string) { told = append(told, key) })
	if want := []string{"api.0", "stranger"}; !slices.Equal(told, want) {
		t.Errorf("%v were reported as of a newer version, want %v", told, want)
	}
	c.run(origin, time.Minute, func(now pace.Instant, written []Put) {
		for _, w := range written {
			if w.Why != WhyRenew {
				t.Fatalf("after %v it wrote %s", now.Since(origin), w.Key)
			}
		}
	})
}

func TestAFailedOpeningIsTriedAgainLessAndLessOften(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	opens, writes := 0, 0
	now := origin
	step := func(until time.Duration) {
		for ; now < origin.Add(until); now = now.Add(20 * ms) {
			c.advance(now)
			for _, key := range answerPuts(c, now) {
				if key == "api.0" {
					writes++
				}
			}
			for _, o := range c.out.opens {
				opens++
				c.Handle(Unopened{o, false}, now)
			}
			c.out = actions{}
		}
	}
	step(10 * time.Minute)
	if opens < 20 || opens > 100 || writes > 2 {
		t.Errorf("in ten minutes it tried %d times and wrote %d ownership records", opens, writes)
	}
	c.Handle(Stopped{}, now)
	step(10*time.Minute + 15*time.Second)
	if !c.Left() {
		t.Error("it cannot leave, because of a partition that cannot be opened")
	}
}

func TestPeersAreForgotten(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	for i := range 100 {
		heardOf(c, fmt.Sprintf("peer-%d", i), uint64(10+i), record.Lease{Lease: 1000}, origin)
	}
	tombstones, deleted := 0, 0
	now := origin
	for ; now < origin.Add(2*time.Minute); now = now.Add(50 * ms) {
		c.advance(now)
		for _, p := range c.out.puts {
			if p.Why == whyTombstone {
				tombstones++
			}
		}
		answerPuts(c, now)
		deleted += len(c.out.deletes)
		for _, o := range c.out.opens {
			c.Handle(Opened{Opening: o}, now)
		}
		c.out = actions{}
	}
	if tombstones != 100 || deleted != 100 || len(c.peers.all) != 0 {
		t.Errorf("%d tombstones, %d deleted, %d peers known", tombstones, deleted, len(c.peers.all))
	}
}

func TestATombstoneStaysWhileARecordNamesIt(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	tombstone := record.Encode(record.Lease{V: record.Version, Tombstone: true})
	c.Handle(Watched{TableDrainers, "dead",
		Record{Exists: true, Value: tombstone, Revision: 5, Stored: originWall}}, origin)
	now := origin
	deleted := func(named ...record.Run) (n int) {
		r := record.Encode(record.Owner{V: record.Version, Owner: "another",
			Handover: record.Handover{Running: named}})
		c.Handle(Watched{TablePartitions, "api.0",
			Record{Exists: true, Value: r, Revision: uint64(now), Stored: originWall}}, now)
		now = c.run(now, 20*simulatedLease, func(at pace.Instant, _ []Put) {
			n += len(c.out.deletes)
			bystander(c, at)
		})
		return n
	}
	if n := deleted(record.Run{Seq: 3, Holder: "dead"}); n != 0 {
		t.Errorf("%d leases deleted while a record names the holder of a job that runs", n)
	}
	if n := deleted(); n != 1 {
		t.Errorf("%d leases deleted when none does, want that one", n)
	}
}

func TestOwnedPartitionsAreReleasedToANewcomerOnly(t *testing.T) {
	p := leaky("api", "10/s")
	p.Partitions = 8
	c := coreBench(t, p)
	now := c.run(origin, 4*time.Second, nil)
	join := func(id string, revision uint64) {
		heardOf(c, id, revision, record.Lease{Lease: 3000, Policies: []string{"api"}}, now)
	}
	join("newcomer", 100)
	released := []string{}
	collect := func(at pace.Instant, written []Put) {
		for _, w := range written {
			if w.Why == whyRelease {
				released = append(released, w.Key)
			}
		}
		join("newcomer", uint64(at))
	}
	c.run(now, 900*ms, collect)
	slices.Sort(released)
	if len(released) != 4 || len(slices.Compact(released)) != 4 {
		t.Errorf("released %v, want half of 8", released)
	}
}
