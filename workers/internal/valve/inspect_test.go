package valve

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func total(rate string) policy.Policy {
	p := leaky("mail", rate)
	p.OutflowTotal, p.Outflow = p.Outflow, p.OutflowTotal
	return p
}

// Keys with work take turns by weight, regardless of their depth and arrival; together they keep
// the rate; a key's own outflow applies too.
func TestTotalOutflowIsSharedInTurns(t *testing.T) {
	b := newValveBench(t, total("100/s"))
	weight := int64(3)
	b.v.SetOverride("heavy", inforce.Override{Weight: &weight}, b.now)
	slow := leaky("x", "5/s").Outflow
	b.v.SetOverride("slow", inforce.Override{Outflow: &slow}, b.now)
	for range 2000 {
		b.arrive("flood")
	}
	for range 600 {
		b.arrive("heavy")
		b.arrive("light")
		b.arrive("slow")
	}
	counts := map[queue.Key]int{}
	last := map[queue.Key]uint64{}
	tally := func(r Run) {
		if r.Seq < last[r.Key] {
			t.Errorf("key %s: job %d after job %d", r.Key, r.Seq, last[r.Key])
		}
		last[r.Key] = r.Seq
		counts[r.Key]++
		b.done(r)
	}
	starts := b.until(4*time.Second, tally)
	// 20 of the 400 starts are slow's; the rest are shared 1 : 3 : 1.
	for key, want := range map[queue.Key]int{"slow": 20, "flood": 76, "heavy": 228, "light": 76} {
		if got := counts[key]; math.Abs(float64(got-want)) > 2 {
			t.Errorf("key %s started %d jobs, want %d", key, got, want)
		}
	}
	clear(counts)
	for range 100 {
		b.arrive("late")
	}
	starts = append(starts, b.until(5*time.Second, tally)...)
	if got := counts["late"]; got < 14 || got > 18 {
		t.Errorf("a key that came late started %d of 95 jobs, want a sixth", got)
	}
	if why := pacetest.Exceeds(starts, 100, 1); why != "" {
		t.Errorf("law 2: %s", why)
	}
}

func TestExpectedStarts(t *testing.T) {
	for name, p := range map[string]policy.Policy{"own rate": leaky("api", "20/s"),
		"total": total("50/s")} {
		t.Run(name, func(t *testing.T) {
			b := newValveBench(t, p)
			for i := range 300 {
				b.arrive("a")
				if i%3 == 0 {
					b.arrive("b")
				}
			}
			told := map[uint64]time.Duration{}
			for seq, j := range b.p.jobs {
				state := b.view().jobState(b.p, seq)
				if state.State != job.Waiting || state.ETAMS == nil {
					t.Fatalf("job %d: %+v", j.Seq, state)
				}
				told[seq] = time.Duration(*state.ETAMS) * time.Millisecond
			}
			begin := b.now
			b.until(30*time.Second, func(r Run) {
				actual := b.now.Since(begin)
				if off := (told[r.Seq] - actual).Abs(); off > max(time.Second, actual/10) {
					t.Errorf("job %d of %s was told %v and started after %v", r.Seq, r.Key,
						told[r.Seq], actual)
				}
				b.done(r)
			})
			if left := len(b.p.jobs); left > 0 {
				t.Errorf("%d jobs have not started", left)
			}
		})
	}
}

func TestExpectedStartsCountSlots(t *testing.T) {
	for name, p := range map[string]policy.Policy{"own rate": leaky("api", "5/s"),
		"total": total("5/s")} {
		t.Run(name, func(t *testing.T) {
			b := newValveBench(t, p)
			for range 5 {
				b.arrive("a", cost(10))
			}
			tail := b.arrive("a")
			for range 3 {
				b.arrive("a", cost(7))
			}
			first := b.arrive("a", cost(3), priority(1))
			state := func(j *heldJob) int64 {
				ms := b.view().jobState(b.p, j.Seq).ETAMS
				wait, known := b.view().expect(b.p, j.Seq)
				if ms == nil || !known || *ms != wait.Milliseconds() {
					t.Fatalf("job %d: %v and %v, %v", j.Seq, ms, wait, known)
				}
				return *ms
			}
			if got := state(first); got != 0 {
				t.Errorf("the job of the highest priority is told %d ms", got)
			}
			if got := state(tail); got != 10_600 {
				t.Errorf("a job behind 53 slots at 5/s is told %d ms, want 10600", got)
			}
			if s := b.view().bucketState(b.p, "a"); s.ETAMS == nil ||
				*s.ETAMS != 15_000 {
				t.Errorf("a job that comes after 75 slots at 5/s: %+v", s)
			}
			b.p.cancel(2)
			if got := state(tail); got != 8_600 {
				t.Errorf("after a job of cost 10 was cancelled it is told %d ms, want 8600", got)
			}
			var started time.Duration
			b.until(20*second, func(r Run) {
				if r.Ref == tail.ref() {
					started = b.now.Since(origin)
				}
				b.done(r)
			})
			if off := (started - 8600*ms).Abs(); off > 10*ms {
				t.Errorf("it started after %v", started)
			}
		})
	}
}

func TestExpectedStartsUnderATotalCountSlots(t *testing.T) {
	b := newValveBench(t, total("20/s"))
	weight := int64(2)
	b.v.SetOverride("heavy", inforce.Override{Weight: &weight}, b.now)
	b.v.SetOverride("paused", inforce.Override{Paused: true}, b.now)
	for range 20 {
		b.arrive("costly", cost(12))
		b.arrive("heavy", cost(3))
		b.arrive("paused", cost(100))
	}
	told := map[uint64]time.Duration{}
	for range 100 {
		j := b.arrive("asked")
		wait, known := b.view().expect(b.p, j.Seq)
		if !known {
			t.Fatalf("job %d: not known", j.Seq)
		}
		told[j.Seq] = wait
	}
	b.until(60*second, func(r Run) {
		actual := b.now.Since(origin)
		if want, asked := told[r.Seq]; asked && (want-actual).Abs() > max(second, actual/10) {
			t.Errorf("job %d was told %v and started after %v", r.Seq, want, actual)
		}
		delete(told, r.Seq)
		b.done(r)
	})
	if len(told) > 0 {
		t.Errorf("%d jobs have not started", len(told))
	}
}

func TestSlotsAreCounted(t *testing.T) {
	b := newValveBench(t, leaky("api", "50/s"))
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		j := b.arrive("a", cost(1+random.Int64N(5)), priority(random.IntN(3)))
		slots := int64(0)
		for other := range j.Bucket.queue.Each() {
			if j.Bucket.queue.Rank(&other.Job).Before(j.Bucket.queue.Rank(&j.Job)) {
				slots += other.Cost
			}
		}
		if got := j.Bucket.queue.SlotsBefore(&j.Job); got != slots {
			t.Fatalf("job %d, just come: %d slots before it, want %d", j.Seq, got, slots)
		}
		if random.IntN(3) == 0 {
			b.p.cancel(1 + random.Uint64N(b.seq))
		}
		b.now = b.now.Add(10 * ms)
		for _, r := range b.start() {
			b.end(r,
				record.Outcome{Kind: []record.OutcomeKind{record.OutcomeDone,
					record.OutcomeUncounted,
					record.OutcomeReturned}[random.IntN(3)]})
		}
	}
	if a := b.p.buckets["a"]; a.slotsFor(job.MinPriority, 0) == 0 {
		t.Error("no slots wait")
	}
	b.v.stock.purge(b.p.purges("a", b.p.highest))
	if n := b.p.buckets["a"].slotsFor(job.MinPriority, 0); n != 0 {
		t.Errorf("%d slots wait in an empty bucket", n)
	}
}

func TestNoForecastWithoutAWorker(t *testing.T) {
	told := func(b *valveBench, j *heldJob) string {
		wait, known := b.view().expect(b.p, j.Seq)
		ms := b.view().jobState(b.p, j.Seq).ETAMS
		if known != (ms != nil) || known && *ms != wait.Milliseconds() {
			t.Errorf("job %d: %v, %v and %v", j.Seq, wait, known, ms)
		}
		if !known {
			return "unknown"
		}
		return wait.String()
	}
	t.Run("anywhere", func(t *testing.T) {
		b := newValveBench(t, leaky("api", "10/s"))
		b.v.Crew.Local = false
		j := b.arrive("a")
		behind := b.arrive("a")
		b.start()
		if len(b.out.Offers) == 0 || told(b, j) != "unknown" {
			t.Errorf("before anybody has answered: %s", told(b, j))
		}
		for range len(b.out.Offers) {
			b.v.Offered(crew.OfferNobody, b.now)
		}
		b.start()
		for _, j := range []*heldJob{j, behind} {
			if got := told(b, j); got != "unknown" {
				t.Errorf("job %d, after nobody has answered: %s", j.Seq, got)
			}
		}
		if s := b.view().bucketState(b.p, "b"); s.ETAMS != nil {
			t.Errorf("a job of another key: %+v", s)
		}
		b.v.Crew.Claimants.Offers++
		b.v.Offered(crew.OfferClaimed, b.now)
		if got := told(b, behind); got != "100ms" {
			t.Errorf("after a worker has claimed: %s", got)
		}
	})
	t.Run("free", func(t *testing.T) {
		p := leaky("api", "10/s")
		p.Workers = 1
		b := newValveBench(t, p)
		b.arrive("a")
		j := b.arrive("b")
		running := b.start()[0]
		if got := told(b, j); got != "unknown" {
			t.Errorf("while the only worker runs another: %s", got)
		}
		b.v.Offered(crew.OfferBusy, b.now)
		behind := b.arrive("b")
		if got := told(b, behind); got != "unknown" {
			t.Errorf("a job behind it: %s", got)
		}
		b.done(running)
		if got := told(b, behind); got != "100ms" {
			t.Errorf("once it is free: %s", got)
		}
		b.start()
		if got := told(b, j); got != "0s" {
			t.Errorf("once it runs: %s", got)
		}
	})
	t.Run("to spare", func(t *testing.T) {
		p := leaky("api", "10/s")
		p.Workers = 4
		b := newValveBench(t, p)
		for range 3 {
			b.arrive("hangs")
			b.start()
			b.now = b.now.Add(100 * ms)
		}
		j := b.arrive("hangs")
		b.start()
		if got := told(b, j); got != "unknown" {
			t.Errorf("a job that gets no worker: %s", got)
		}
	})
}

func TestRoom(t *testing.T) {
	unpaced := policy.Policy{Name: "door",
		Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 10,
			Refill: leaky("x", "1/s").Outflow},
		Queue: &policy.Queue{Capacity: 2}}
	held := leaky("api", "10/s")
	held.Concurrency = 1
	for _, c := range []struct {
		what   string
		policy policy.Policy
		change func(b *valveBench)
		want   time.Duration
	}{
		{"paced", leaky("api", "10/s"), nil, 100 * ms},
		{"slow", leaky("api", "6/m"), nil, 10 * second},
		{"total", total("10/s"), nil, 100 * ms},
		{"unpaced", unpaced, nil, second},
		{"paused", leaky("api", "10/s"), func(b *valveBench) {
			b.v.Change(b.v.Policy, true, b.now)
		}, second},
		{"paused key", leaky("api", "10/s"), func(b *valveBench) {
			b.v.SetOverride("a", inforce.Override{Paused: true}, b.now)
		}, second},
		{"held", held, func(b *valveBench) { b.arrive("a"); b.start() }, second},
		{"cooling down", leaky("api", "10/s"), func(b *valveBench) {
			b.arrive("a")
			b.end(b.start()[0], record.Outcome{Kind: record.OutcomeThrottled,
				RetryAfter: 5 * second})
		}, 5 * second},
		{"not due", leaky("api", "10/s"), func(b *valveBench) {
			for _, after := range []time.Duration{time.Hour, 2 * time.Hour} {
				b.arrive("a", func(a *job.Arrived) { a.NotBefore = b.wall().Add(after) })
			}
		}, time.Hour},
		{"not due while one runs", leaky("api", "10/s"), func(b *valveBench) {
			b.arrive("a")
			b.start()
			b.arrive("a", func(a *job.Arrived) { a.NotBefore = b.wall().Add(time.Hour) })
		}, 100 * ms},
	} {
		b := newValveBench(t, c.policy)
		if c.change != nil {
			c.change(b)
		}
		if got := b.view().room(b.p, "a").Round(ms); got != c.want {
			t.Errorf("%s: room in %v, want %v", c.what, got, c.want)
		}
	}
}

func TestNoForecast(t *testing.T) {
	p := leaky("api", "100/s")
	p.Concurrency = 1
	b := newValveBench(t, p)
	b.arrive("held")
	b.arrive("held")
	b.start()
	b.v.SetOverride("paused", inforce.Override{Paused: true}, b.now)
	b.arrive("paused")
	for _, key := range []queue.Key{"held", "paused"} {
		if s := b.view().bucketState(b.p, key); s.ETAMS != nil {
			t.Errorf("bucket %s: a new job is expected to start in %d ms", key, *s.ETAMS)
		}
	}
	if s := b.view().bucketState(b.p, "paused"); !s.Paused || s.Waiting != 1 ||
		s.Depth != 1 {
		t.Errorf("%+v", s)
	}
	if s := b.view().bucketState(b.p, "nobody"); s.ETAMS == nil ||
		*s.ETAMS != 0 || s.Depth != 0 {
		t.Errorf("an empty bucket: %+v", s)
	}
}

func TestNoForecastWhileABreakerIsOpen(t *testing.T) {
	for name, keys := range map[string][]string{"that of a bucket": {"asked"},
		"that of all": {"a", "b", "c"}} {
		b := newValveBench(t, leaky("api", "10/s"))
		for range 2 * gates.MostSuspectJobs {
			for _, key := range keys {
				b.arrive(key)
			}
		}
		b.until(2*second, b.down)
		if b.v.Breakers().Open() == 0 {
			t.Fatalf("%s: no breaker is open", name)
		}
		if s := b.view().bucketState(b.p, "asked"); s.ETAMS != nil {
			t.Errorf("%s: a new job is expected to start in %d ms", name, *s.ETAMS)
		}
	}
}

func TestCancelAndPurge(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/s"))
	for range 4 {
		b.arrive("a")
	}
	b.arrive("b")
	later := b.arrive("a", func(a *job.Arrived) { a.NotBefore = b.wall().Add(time.Hour) })
	running := b.start()[0]
	if n := b.p.cancel(running.Seq); n != 0 {
		t.Errorf("%d running jobs cancelled", n)
	}
	if n := b.p.cancel(later.Seq); n != 1 {
		t.Errorf("%d delayed jobs cancelled", n)
	}
	if n := b.p.cancel(later.Seq); n != 0 {
		t.Errorf("cancelled twice")
	}
	if n := b.v.stock.purge(b.p.purges("a", b.p.highest)); n != 3 {
		t.Errorf("%d jobs purged, want the three that wait", n)
	}
	if s := b.view().bucketState(b.p, "a"); s.Waiting != 0 || s.Running != 1 {
		t.Errorf("%+v", s)
	}
	if n := len(b.out.Cancelled); n != 4 {
		t.Errorf("%d jobs are told to be cancelled, want 4", n)
	}
}

func TestOldestBuckets(t *testing.T) {
	for name, b := range map[string]*valveBench{"near": newValveBench(t, leaky("api", "1/h")),
		"deep": shallow(t, leaky("api", "1/h"))} {
		later := func(a *job.Arrived) { a.NotBefore = a.Stored.Add(5 * time.Second) }
		b.arrive("runs")
		b.start()
		b.arrive("old", later)
		b.at(second)
		for range 3 {
			b.arrive("young", later)
		}
		b.at(7*second).v.Advance(b.now, b.now)
		old := b.p.buckets["old"]
		if old.queue.Len() != 1 || (old.queue.Near() == 0) != (name == "deep") {
			t.Fatalf("%s: %d of %d are near", name, old.queue.Near(), old.queue.Len())
		}
		states, _ := b.list(job.ByAge, 0, 3)
		var keys []queue.Key
		for _, s := range states {
			keys = append(keys, s.Key)
		}
		if got := fmt.Sprint(keys); got != "[old young runs]" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestDeepestBuckets(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/h"))
	for i := range 5 {
		for range i + 1 {
			b.arrive(fmt.Sprintf("k%d", i))
		}
	}
	page := func(offset, limit int) (keys string) {
		states, n := b.deepest(offset, limit)
		if n != 5 {
			t.Errorf("%d buckets in all", n)
		}
		for _, s := range states {
			keys += fmt.Sprintf("%s:%d ", s.Key, s.Depth)
		}
		return keys
	}
	for _, c := range []struct {
		offset, limit int
		want          string
	}{{0, 2, "k4:5 k3:4 "}, {2, 2, "k2:3 k1:2 "}, {4, 10, "k0:1 "}, {9, 1, ""}, {-1, 1, "k4:5 "},
		{0, -1, ""}} {
		if got := page(c.offset, c.limit); got != c.want {
			t.Errorf("from %d, %d: %q, want %q", c.offset, c.limit, got, c.want)
		}
	}
}
