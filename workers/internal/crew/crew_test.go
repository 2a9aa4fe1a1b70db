package crew

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

const (
	origin = pace.Instant(time.Hour)
	ms     = time.Millisecond
)

func local(workers int) *Crew[string] {
	c := New[string](workers)
	c.Local = true
	return &c
}

// Workers that are lent, and those of other valves with the same slots, are not free.
func TestWorkersAreShared(t *testing.T) {
	slots := &Slots{Most: 3}
	a, b := local(2), local(2)
	a.Slots, b.Slots = slots, slots
	one := a.Begin("x", 1, nil, false)
	if !a.Reserve() || a.Reserve() || a.Free() != 0 || b.Free() != 1 || a.Running() != 2 {
		t.Errorf("%d and %d are free, %d run", a.Free(), b.Free(), a.Running())
	}
	if b.Begin("y", 1, nil, false); b.Free() != 0 || b.Reserve() {
		t.Error("more jobs run than there are slots")
	}
	if a.Release(); b.Free() != 1 {
		t.Error("a worker that came back has no slot")
	}
	if r, known := a.End(one, false); !known || r.Of != "x" || a.Busy != 0 || slots.Used != 1 {
		t.Errorf("ends %+v, %t; %d are busy, %d slots used", r, known, a.Busy, slots.Used)
	}
	if _, known := a.End(one, false); known || slots.Used != 1 {
		t.Error("a run ends twice")
	}
	if b.Local = false; b.Free() != 0 {
		t.Error("a process without a handler has free workers")
	}
	if c := local(1); !c.Idle() || !c.Reserve() || c.Idle() {
		t.Error("nobody is told of a lent worker, because its valve rests")
	}
}

func TestNoBucketTakesAllWorkers(t *testing.T) {
	c := local(8)
	for busy := range 8 {
		if may := c.MayTake(busy); may != (busy <= 3*(8-busy-1)) {
			t.Errorf("with %d of 8 busy, it may take one: %t", busy, may)
		}
		c.Begin("x", 1, nil, false)
	}
}

// A worker's claim is held until it runs, and is settled by the end of its run. A caller's run uses
// no worker.
func TestAClaimBecomesARun(t *testing.T) {
	c := local(1)
	c.Claim(Claim{Worker: "w", Except: []queue.Key{"hangs"}, Until: origin.Add(40 * ms)})
	c.Claim(Claim{Worker: "v", Until: origin.Add(50 * ms)})
	first := c.Claims().First()
	if first.Worker != "w" || !first.Except["hangs"] || c.Idle() ||
		c.Wake(true) > origin.Add(40*ms) {
		t.Errorf("the first claim is %+v", first)
	}
	n := c.Begin("x", 2, first, false)
	if c.Claims().Len() != 1 || c.Claimants.Working != 1 || c.Running() != 1 || c.Busy != 0 {
		t.Errorf("%d claims wait, %d work", c.Claims().Len(), c.Claimants.Working)
	}
	if r, known := c.Run(n); !known || r.Attempt != 2 {
		t.Errorf("run %d is %+v", n, r)
	}
	if c.End(n, true); c.Claimants.Working != 0 {
		t.Error("a worker works on after its run")
	}
	if c.Begin("call", 1, nil, true); c.Busy != 0 || c.Running() != 0 {
		t.Error("a caller's run takes a worker")
	}
}

// An offer that nobody claims is repeated after a pause, which is longer if nobody was there.
func TestOffersPauseWithoutClaims(t *testing.T) {
	c := New[string](0)
	if c.Rests(pace.Never, origin) || c.Offer(20, pace.Never) != 8 || c.Offer(20, pace.Never) != 0 {
		t.Error("more than eight starts are offered at a time, or fewer")
	}
	c.Claim(Claim{Worker: "w", Until: origin.Add(40 * ms)})
	if c.Offered(OfferClaimed, origin); c.Declined || c.Offer(20, pace.Never) != 0 {
		t.Error("a start is offered although a claim waits for it")
	}
	c.Offered(OfferBusy, origin)
	if !c.Declined || c.Lacks() != gates.ByWorkersBusy || !c.Rests(pace.Never, origin.Add(19*ms)) ||
		c.Rests(pace.Never, origin.Add(20*ms)) {
		t.Error("there is no pause of 20 ms after busy workers")
	}
	c.Offered(OfferNobody, origin)
	if c.Lacks() != gates.ByNoWorker || !c.Rests(pace.Never, origin.Add(249*ms)) ||
		c.Rests(pace.Never, origin.Add(250*ms)) {
		t.Error("there is no pause of 250 ms without workers")
	}
	if c.Rests(pace.Never, origin); c.Wake(false) != origin.Add(40*ms) ||
		c.Wake(true) != origin.Add(40*ms) {
		t.Error("it does not wake for a claim that ends")
	}
	c.Local, c.Most = true, 1
	c.Rests(pace.Never, origin.Add(time.Second))
	if c.Declined || c.Lacks() != gates.ByWorkersBusy {
		t.Error("a free local worker does not make up for the others")
	}
}
