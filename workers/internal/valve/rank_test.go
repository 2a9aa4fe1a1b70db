package valve

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/keyqueue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func stepped(p policy.Policy, step time.Duration) policy.Policy {
	p.PriorityStep = policy.Duration(step)
	return p
}

func (b *valveBench) starts(end time.Duration) (order []uint64) {
	b.until(end, func(r Run) { order = append(order, r.Seq); b.done(r) })
	return order
}

func TestAPriorityStepIsWorthWaiting(t *testing.T) {
	b := newValveBench(t, stepped(leaky("api", "1/m"), 10*second))
	b.done(func() Run { b.arrive("a"); return b.start()[0] }())
	for _, x := range []struct {
		at       time.Duration
		priority int
	}{
		{1 * second, 0},  // 2
		{5 * second, -1}, // 3
		{6 * second, 0},  // 4
		{10 * second, 1}, // 5: before those that came since 0 s
		{12 * second, 1}, // 6: since 2 s, so not before 2
		{30 * second, 2}, // 7: since 10 s
		{30 * second, 9}, // 8: any job before
	} {
		b.at(x.at).arrive("a", priority(x.priority))
	}
	if got := fmt.Sprint(b.starts(time.Hour)); got != "[8 5 2 6 4 7 3]" {
		t.Errorf("started in the order %s", got)
	}
}

func TestPrioritiesStarveNobody(t *testing.T) {
	for _, step := range []time.Duration{0, 3 * second} {
		b := newValveBench(t, stepped(leaky("api", "10/s"), step))
		for range 5 {
			b.arrive("a", priority(4))
		}
		low := b.arrive("a", priority(-1)).Seq
		started := time.Duration(0)
		for at := time.Duration(0); at < 30*second; at += 100 * ms {
			b.until(at, func(r Run) {
				if r.Seq == low {
					started = at
				}
				b.done(r)
			})
			b.arrive("a", priority(4))
		}
		switch {
		case step == 0 && started != 0:
			t.Errorf("without a step it starts after %v, before those of a higher priority",
				started)
		case step > 0 && (started < 5*step || started > 5*step+second):
			t.Errorf("it starts after %v, want five steps (%v) and the five jobs of before",
				started, 5*step)
		}
	}
}

func TestJobsStartInTheOrderOfTheirRanks(t *testing.T) {
	const step = 400 * ms
	p := stepped(leaky("api", "100/s"), step)
	for name, b := range map[string]*valveBench{
		"near": newValveBench(t, p), "deep": shallow(t, p),
		"taking turns": newValveBench(t, with(p, func(p *policy.Policy) {
			p.OutflowTotal = leaky("total", "110/s").Outflow
		})),
		"one at a time": newValveBench(t, with(p, func(p *policy.Policy) { p.Concurrency = 1 })),
	} {
		random := rand.New(rand.NewPCG(3, 4))
		waiting := map[queue.Key][]keyqueue.Rank{}
		came, off, started := int64(0), time.Duration(0), 0
		for turn := range 5000 {
			b.now = b.now.Add(10 * ms)
			if random.IntN(50) == 0 {
				off = time.Duration(random.Int64N(int64(2*second))) - second
			}
			for range random.IntN(4) {
				if turn > 2000 {
					break
				}
				b.stored[b.seq+1] = b.wall().Add(off)
				came = max(came, b.stored[b.seq+1].UnixNano())
				n := random.IntN(5) - 2
				b.arrive(fmt.Sprint("k", random.IntN(2)), priority(n), func(a *job.Arrived) {
					waiting[a.Key] = append(waiting[a.Key],
						keyqueue.Rank{Place: came - int64(n)*int64(step), Seq: a.Seq})
				})
			}
			b.text()
			for _, r := range b.start() {
				w := waiting[r.Key]
				first := slices.MinFunc(w, compareRanks)
				if r.Seq != first.Seq {
					t.Fatalf("%s: job %d starts, want %d", name, r.Seq, first.Seq)
				}
				waiting[r.Key] = slices.DeleteFunc(w,
					func(r keyqueue.Rank) bool { return r == first })
				started++
				b.done(r)
			}
		}
		if started < 2500 || len(waiting["k0"])+len(waiting["k1"]) > 0 {
			t.Errorf("%s: %d start", name, started)
		}
	}
}

func compareRanks(a, b keyqueue.Rank) int {
	if a.Before(b) {
		return -1
	}
	return 1
}

func TestANewOwnerOrdersAlike(t *testing.T) {
	p := stepped(leaky("api", "100/s"), 300*ms)
	for _, memory := range [][2]int64{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
		random := rand.New(rand.NewPCG(9, 10))
		old, next := newValveBench(t, p), unownedValve(t, p)
		old.v.texts.memory.most, next.v.texts.memory.most = memory[0], memory[1]
		given, gone := map[uint64]int{}, map[uint64]bool{}
		for range 500 {
			old.now = old.now.Add(10 * ms)
			for range random.IntN(4) {
				n := random.IntN(9) - 4
				old.arrive("a", priority(n))
				given[old.seq] = n
			}
			old.text()
			for _, r := range old.start() {
				gone[r.Seq] = true
				old.done(r)
			}
		}
		for seq := old.seq - 20; seq < old.seq; seq++ {
			n := random.IntN(9) - 4
			if old.edit(seq, job.Edit{Front: seq%3 == 0, Priority: &n}); gone[seq] {
				t.Fatal("the last ones have started")
			}
		}
		next.now, next.stored = old.now, old.stored
		next.inheritFrom(inheritance.State{Owner: "old", Handover: old.p.HandoverBut(old.now)})
		for seq := range old.seq {
			if seq++; !gone[seq] {
				next.deliver(seq, "a", priority(given[seq]))
			}
		}
		want, got := old.order(20*second), next.order(20*second)
		if want != got || len(want) < 1000 {
			t.Fatalf("memory %v: %s\nwould have started, and %s\ndo", memory, want, got)
		}
	}
}

// With another priority it gets the place that it would have had with it from the start; a job
// moved to the front precedes all.
func TestAnEditedJobKeepsItsArrival(t *testing.T) {
	b := newValveBench(t, stepped(leaky("api", "1/s"), 10*second))
	b.arrive("a", priority(-9))
	for i := range 5 {
		b.at(time.Duration(i)*3*second).arrive("a", priority(i%2)) // 0, −7, 6, −1, 12 s
	}
	b.arrive("a", priority(9))
	up, least := 1, job.MinPriority
	b.edit(4, job.Edit{Priority: &up}) // −4 s
	b.edit(3, job.Edit{Priority: &least})
	b.edit(1, job.Edit{Front: true})
	if got := b.order(20 * second); got != "[1 7 4 5 2 6 3]" {
		t.Errorf("started in the order %s", got)
	}
}

func TestADelayedOrRetriedJobWaitsSinceItWasAccepted(t *testing.T) {
	b := newValveBench(t, stepped(leaky("api", "1/s"), 10*second))
	b.arrive("a")                       // 1: fails, and backs off
	b.arrive("a", notBefore(20*second)) // 2
	b.end(b.start()[0], record.Outcome{Kind: record.OutcomeFailed, Error: "no"})
	b.p.Written(&b.out.Saves[0], b.now)
	b.v.SetOverride("a", inforce.Override{Paused: true}, b.now)
	for i := range 3 { // 3: −10 s, 4: −1 s, 5: 8 s
		b.at(time.Duration(i)*9*second).arrive("a", priority(1))
	}
	b.at(30*second).v.Advance(b.now, pace.Never)
	b.v.SetOverride("a", inforce.Override{}, b.now)
	if got := b.order(20 * second); got != "[3 4 1 2 5]" {
		t.Errorf("started in the order %s", got)
	}
}

func TestAnotherPriorityStepReordersWaitingJobs(t *testing.T) {
	for name, b := range map[string]*valveBench{
		"near": newValveBench(t, leaky("api", "1/s")), "deep": shallow(t, leaky("api", "1/s")),
	} {
		b.done(func() Run { b.arrive("a"); return b.start()[0] }())
		for i := range 6 {
			b.at(time.Duration(i)*100*ms).arrive("a", priority(i/2))
		}
		var order []uint64
		for range 30 {
			b.text()
			for _, r := range b.start() {
				order = append(order, r.Seq)
				b.done(r)
				switch len(order) {
				case 2:
					b.v.Change(stepped(b.v.Policy, 50*ms), false, b.now)
				case 4:
					b.v.Change(stepped(b.v.Policy, 0), false, b.now)
				}
			}
			b.now = b.now.Add(500 * ms)
		}
		if got := fmt.Sprint(order); got != "[6 7 2 3 4 5]" {
			t.Errorf("%s: started in the order %s", name, got)
		}
	}
}

// Jobs on their way to a worker are ordered by the old step.
func TestEarlierFinalChecksGoFirst(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/s"))
	b.arrive("a", priority(-5))
	b.arrive("a", priority(-5))
	b.v.Advance(b.now, pace.Never)
	first := b.out.Starts[0]
	b.out.Starts = nil
	b.v.Change(stepped(b.v.Policy, second), false, b.now)
	b.at(2*second).v.Advance(b.now, pace.Never)
	if len(b.out.Starts) > 0 {
		t.Fatal("the second starts while nobody knows what became of the first")
	}
	first.Decide(atOnce(first), nil)
	if runs := b.at(3 * second).start(); b.seqs(runs) != "[2]" {
		t.Errorf("started %s after the first", b.seqs(runs))
	}
}

func TestPositionsByRankAreEstimates(t *testing.T) {
	b := newValveBench(t, stepped(leaky("api", "50/s"), 3*second))
	random := rand.New(rand.NewPCG(5, 6))
	for i := range 5000 {
		b.now = b.now.Add(10 * ms)
		j := b.arrive("a", cost(1+random.Int64N(3)), priority(random.IntN(3)))
		for _, r := range b.start() {
			b.done(r)
		}
		if i < 100 || i%10 > 0 {
			continue
		}
		slots := int64(0)
		for other := range j.Bucket.queue.Each() {
			if j.Bucket.queue.Rank(&other.Job).Before(j.Bucket.queue.Rank(&j.Job)) {
				slots += other.Cost
			}
		}
		told, next := j.Bucket.queue.SlotsBefore(&j.Job), j.Bucket.slotsFor(j.Priority, j.Came)
		least := slots - j.Bucket.queue.Waiting()/8
		if told > slots || told < least || next > slots+j.Cost || next < least+j.Cost {
			t.Fatalf("job %d: %d slots are told of %d, and %d to the next, while %d wait", j.Seq,
				told, slots, next, j.Bucket.queue.Waiting())
		}
	}
}
