package valve

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
)

func TestCostsSurviveChangesOfOtherThings(t *testing.T) {
	p := leaky("api", "1/s")
	for name, change := range map[string]func(b *valveBench){
		"nothing":  func(*valveBench) {},
		"the same": func(b *valveBench) { b.v.Change(b.v.Policy, false, b.now) },
		"concurrency": func(b *valveBench) {
			q := b.v.Policy
			q.Concurrency = 7
			b.v.Change(q, false, b.now)
		},
		"burst": func(b *valveBench) {
			q := b.v.Policy
			q.Burst = 3
			b.v.Change(q, false, b.now)
		},
		"a slower rate": func(b *valveBench) {
			q := b.v.Policy
			q.Outflow = leaky("", "1/m").Outflow
			b.v.Change(q, false, b.now)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newValveBench(t, p)
			b.arrive("a", cost(10))
			b.arrive("a")
			b.done(b.start()[0])
			b.at(100 * ms)
			change(b)
			starts := b.until(11*second, b.done)
			if len(starts) != 1 || starts[0] < 9980*ms || starts[0] > 10*second {
				t.Errorf("the next start is at %v, want 10 s", starts)
			}
		})
	}
}

func TestFasterRateReachesWaitingJobs(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/m"))
	b.arrive("a", cost(10))
	b.arrive("a")
	b.arrive("a")
	b.done(b.start()[0])
	b.at(time.Minute)
	faster := b.v.Policy
	faster.Outflow = leaky("", "1/s").Outflow
	b.v.Change(faster, false, b.now)
	starts := b.until(2*time.Minute, b.done)
	if len(starts) != 2 || starts[0] < 68900*ms || starts[0] > 69*second ||
		starts[1]-starts[0] < 998*ms {
		t.Errorf("starts at %v, want 9 s and 10 s after the change", starts)
	}
}

func TestLiveChangesOfConcurrencyAndWorkers(t *testing.T) {
	p := leaky("api", "1000000/s")
	p.Concurrency, p.Workers = 2, 8
	b := newValveBench(t, p)
	for range 20 {
		b.arrive("a")
	}
	running := map[uint64]Run{}
	step := func() int {
		b.until(b.now.Since(origin)+10*ms, func(r Run) { running[r.Seq] = r })
		return len(running)
	}
	change := func(concurrency, workers int) {
		q := b.v.Policy
		q.Concurrency, q.Workers = concurrency, workers
		b.v.Change(q, false, b.now)
	}
	if n := step(); n != 2 {
		t.Fatalf("%d run, want 2", n)
	}
	change(5, 8)
	if n := step(); n != 5 {
		t.Fatalf("%d run, want 5", n)
	}
	change(1, 8)
	for len(running) > 0 {
		for seq, r := range running {
			delete(running, seq)
			b.done(r)
			break
		}
		if n := step(); len(running) > 4 {
			t.Fatalf("%d run", n)
		}
		if len(running) == 1 {
			break
		}
	}
	change(0, 16)
	if n := step(); n != 12 {
		t.Errorf("%d run, want 12", n)
	}
}

func TestNoClumpAfterAChange(t *testing.T) {
	b := newValveBench(t, leaky("api", "100/s"))
	for range 2000 {
		b.arrive("a")
	}
	rates := []string{"100/s", "1/s", "50/s", "100/s", "10/s"}
	var starts []time.Duration
	for i := range 60 {
		q := b.v.Policy
		q.Outflow = leaky("", rates[i%len(rates)]).Outflow
		b.v.Change(q, false, b.now)
		starts = append(starts, b.until(time.Duration(i+1)*137*ms, b.done)...)
	}
	if why := pacetest.Exceeds(starts, 100, 1); why != "" {
		t.Error(why)
	}
}

func TestNoBucketTakesAllWorkers(t *testing.T) {
	for _, c := range []struct {
		workers int
		want    []int
	}{
		{1, []int{1, 0}},
		{2, []int{1, 1, 0}},
		{4, []int{3, 1, 0}},
		{8, []int{6, 1, 1, 0}},
		{64, []int{48, 12, 3, 1, 0}},
	} {
		p := leaky("api", "1000000/s")
		p.Workers = c.workers
		b := newValveBench(t, p)
		for i, want := range c.want {
			key := string(rune('a' + i))
			for range 2 * c.workers {
				b.arrive(key)
			}
			b.until(b.now.Since(origin)+10*ms, func(Run) {})
			if got := b.p.buckets[queue.Key(key)].Running; got != want {
				t.Errorf("%d workers: bucket %s runs %d, want %d", c.workers, key, got, want)
			}
		}
	}
}

// A bucket whose burst shrinks waits one interval, as after any pause, and not for the whole larger
// burst.
func TestASmallerBurstHoldsNothingUp(t *testing.T) {
	large, small := leaky("api", "1/s"), leaky("api", "1/s")
	large.Burst, small.Burst = 100, 2
	for name, c := range map[string]struct {
		policy, override policy.Policy
		change           func(b *valveBench) *valveBench
	}{
		"of the policy": {large, large, func(b *valveBench) *valveBench {
			b.v.SetOverride("a", inforce.Override{}, b.now)
			b.v.Change(small.WithDefaults(), false, b.now)
			return b
		}},
		"of the key": {small, large, func(b *valveBench) *valveBench {
			b.v.SetOverride("a", inforce.Override{}, b.now)
			return b
		}},
		"over a handover": {large, large, func(b *valveBench) *valveBench {
			next := unownedValve(t,
				small).inheritFrom(inheritance.State{Handover: b.p.Surrender(b.now)})
			next.deliver(3, "a")
			return next
		}},
		"of the key, over a handover": {small, large, func(b *valveBench) *valveBench {
			next := unownedValve(t,
				small).inheritFrom(inheritance.State{Handover: b.p.Surrender(b.now)})
			next.deliver(3, "a")
			return next
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newValveBench(t, c.policy)
			b.v.SetOverride("a", inforce.Override{Burst: &c.override.Burst}, b.now)
			b.arrive("a")
			b.arrive("a")
			b.v.Resume(b.now)
			b.done(b.start()[0])
			starts := c.change(b).until(5*second, b.done)
			if len(starts) != 1 || starts[0] < 990*ms || starts[0] > 1010*ms {
				t.Errorf("the next start is at %v, want 1 s", starts)
			}
		})
	}
}

func TestPeaksReachTheClocks(t *testing.T) {
	rate := func(n int64) algorithms.Rate { return algorithms.Rate{Count: n, Per: second} }
	p := total("100/s")
	p.Outflow, p.Peak, p.PeakTotal = rate(10), rate(15), rate(110)
	b := newValveBench(t, p)
	check := func(peak, totalPeak float64) {
		t.Helper()
		if want := pace.New(rate(10), peak, 1); *b.v.base.pace != *want {
			t.Errorf("a bucket goes by %+v, want %+v", b.v.base.pace, want)
		}
		if want := pace.New(rate(100), totalPeak, 1); *b.v.total.Pace != *want {
			t.Errorf("all buckets go by %+v, want %+v", b.v.total.Pace, want)
		}
	}
	check(1.5, 1.1)
	p.Peak, p.PeakTotal = rate(10), rate(200)
	b.v.Change(p.WithDefaults(), false, b.now)
	check(1, 2)
	peak := rate(30)
	b.v.SetOverride("a", inforce.Override{Peak: &peak}, b.now)
	if got, want := b.v.limitsOf("a").pace, pace.New(rate(10), 3, 1); *got != *want {
		t.Errorf("the key goes by %+v, want %+v", got, want)
	}
}
