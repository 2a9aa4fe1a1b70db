package core

import (
	"testing"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func TestAChangeOfWorkersReachesAPolicyThatIsNotOwnedAnyMore(t *testing.T) {
	p := leaky("api", "1000/s").WithDefaults()
	p.Workers = 4
	c := coreBench(t, p)
	for range 2 {
		if !c.Reserve("api") {
			t.Fatal("four workers, and none to lend")
		}
	}
	p.Workers = 2
	c.Handle(configured(QueuePolicy{Policy: p, Local: true}), origin)
	if c.Reserve("api") {
		t.Error("a third worker is lent of two")
	}
}

// Processes that may not own a policy lend their workers, too. These are still busy when it may own
// it, or when the policy comes back, and are forgotten with it.
func TestLentWorkersAreBusyWhoeverMayOwnTheirPolicy(t *testing.T) {
	p := leaky("api", "1000/s").WithDefaults()
	p.Workers = 2
	c := coreBench(t)
	free := func(n int) {
		t.Helper()
		if workers := c.Workers("api"); workers.Free() != n {
			t.Fatalf("workers %+v, want %d of them to be free", workers, n)
		}
	}
	c.Handle(configured(QueuePolicy{Policy: p, Local: true}), origin)
	if !c.Reserve("api") {
		t.Fatal("no worker is free")
	}
	c.Handle(Configured{"api": nil}, origin)
	c.Handle(configured(QueuePolicy{Policy: p, Local: true}), origin)
	free(1)
	for _, own := range []bool{true, false, true} {
		c.Handle(configured(QueuePolicy{Policy: p, Local: true, Own: own}), origin)
		free(1)
	}
	if n := c.valves.all["api"].Crew.Free(); n != 1 {
		t.Errorf("the valve has %d free workers of two, of which one is lent", n)
	}
	if n := c.Running(); n != 1 {
		t.Errorf("%d jobs run, want the lent worker's", n)
	}
	c.Release("api")
	free(2)
	c.Handle(Configured{"api": nil}, origin)
	if c.prune(); len(c.workers) > 0 || c.slots.Used > 0 {
		t.Errorf("of a deleted policy are left: workers %v, %d slots", c.workers, c.slots.Used)
	}
}

// The claim is applied when this drainer may no longer own the policy.
func TestAClaimAnsweredWhenItsPolicyMayNotBeOwnedAnyMoreIsGivenBack(t *testing.T) {
	p := leaky("api", "1/s").WithDefaults()
	c := coreBench(t, p)
	now := origin
	for ; len(c.out.puts) == 0 || c.out.puts[0].Why != whyTake; now = now.Add(20 * ms) {
		answerPuts(c, now)
		c.advance(now)
	}
	c.Handle(configured(QueuePolicy{Policy: p, Local: true}), now)
	released := false
	c.run(now, 2*second, func(_ pace.Instant, written []Put) {
		for _, w := range written {
			var r record.Owner
			released = released || w.Why == whyRelease && record.Decode(w.value, &r) == nil &&
				r.Released
		}
	})
	if !released {
		t.Error("it keeps a partition that it does nothing with")
	}
}
