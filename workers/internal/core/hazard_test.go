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
		if _, ok := c.Reserve("api"); !ok {
			t.Fatal("four workers, and none to lend")
		}
	}
	p.Workers = 2
	c.Handle(configured(QueuePolicy{Policy: p, Local: true}), origin)
	if _, ok := c.Reserve("api"); ok {
		t.Error("a third worker is lent of two")
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
