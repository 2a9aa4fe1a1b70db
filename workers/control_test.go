package workers

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// total is a policy whose keys share one rate.
func total(rate string) policy.Policy {
	p := leaky("mail", rate)
	p.OutflowTotal, p.Outflow = p.Outflow, p.OutflowTotal
	return p
}

// TestTotalOutflowIsSharedInTurns: keys with work take turns by weight, whatever the depth of their backlogs and however
// late they come; together they keep to the rate; a key's own outflow holds too.
func TestTotalOutflowIsSharedInTurns(t *testing.T) {
	b := newValveBench(t, total("100/s"))
	weight := int64(3)
	b.v.setOverride("heavy", policy.Override{Weight: &weight}, b.now)
	slow := leaky("x", "5/s").Outflow
	b.v.setOverride("slow", policy.Override{Outflow: &slow}, b.now)
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
	tally := func(r run) {
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
		b.arrive("late") // it has missed its turns and gets no more than its share
	}
	starts = append(starts, b.until(5*time.Second, tally)...)
	if got := counts["late"]; got < 14 || got > 18 {
		t.Errorf("a key that came late started %d of 95 jobs, want a sixth", got)
	}
	if why := exceeds(starts, 100, 1); why != "" {
		t.Errorf("law 2: %s", why)
	}
}

// TestExpectedStarts compares what the valve tells of waiting jobs with when they start: within 10 % or a second.
func TestExpectedStarts(t *testing.T) {
	for name, p := range map[string]policy.Policy{"own rate": leaky("api", "20/s"), "total": total("50/s")} {
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
				state := b.v.jobState(b.p, seq, b.now)
				if state.State != queue.JobWaiting || state.ExpectMS == nil {
					t.Fatalf("job %d: %+v", j.Seq, state)
				}
				told[seq] = time.Duration(*state.ExpectMS) * time.Millisecond
			}
			begin := b.now
			b.until(30*time.Second, func(r run) {
				actual := b.now.since(begin)
				if off := (told[r.Seq] - actual).Abs(); off > max(time.Second, actual/10) {
					t.Errorf("job %d of %s was told %v and started after %v", r.Seq, r.Key, told[r.Seq], actual)
				}
				b.done(r)
			})
			if left := len(b.p.jobs); left > 0 {
				t.Errorf("%d jobs have not started", left)
			}
		})
	}
}

// TestNobodyCanTell: while a bucket is paused or held by its concurrency there is no expected start.
func TestNobodyCanTell(t *testing.T) {
	p := leaky("api", "100/s")
	p.Concurrency = 1
	b := newValveBench(t, p)
	b.arrive("held")
	b.arrive("held")
	b.start()
	b.v.setOverride("paused", policy.Override{Paused: true}, b.now)
	b.arrive("paused")
	for _, key := range []queue.Key{"held", "paused"} {
		if s := b.v.bucketState(b.p, key, b.now, b.wall()); s.ExpectMS != nil {
			t.Errorf("bucket %s: a new job is expected to start in %d ms", key, *s.ExpectMS)
		}
	}
	if s := b.v.bucketState(b.p, "paused", b.now, b.wall()); !s.Paused || s.Waiting != 1 || s.Depth != 1 {
		t.Errorf("%+v", s)
	}
	if s := b.v.bucketState(b.p, "nobody", b.now, b.wall()); s.ExpectMS == nil || *s.ExpectMS != 0 || s.Depth != 0 {
		t.Errorf("an empty bucket: %+v", s)
	}
}

// TestCancelAndPurge drop what waits and nothing that runs.
func TestCancelAndPurge(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/s"))
	for range 4 {
		b.arrive("a")
	}
	b.arrive("b")
	later := b.arrive("a", func(a *queue.Arrived) { a.NotBefore = b.wall().Add(time.Hour) })
	running := b.start()[0]
	if n := b.v.cancel(b.p, running.Seq, b.now); n != 0 {
		t.Errorf("%d running jobs cancelled", n)
	}
	if n := b.v.cancel(b.p, later.Seq, b.now); n != 1 {
		t.Errorf("%d delayed jobs cancelled", n)
	}
	if n := b.v.cancel(b.p, later.Seq, b.now); n != 0 {
		t.Errorf("cancelled twice")
	}
	if n := b.v.purge(b.p, "a", b.now); n != 3 {
		t.Errorf("%d jobs purged, want the three that wait", n)
	}
	if s := b.v.bucketState(b.p, "a", b.now, b.wall()); s.Waiting != 0 || s.Running != 1 {
		t.Errorf("%+v", s)
	}
	if n := len(b.out.cancelled); n != 4 {
		t.Errorf("%d jobs are told to be cancelled, want 4", n)
	}
}

// TestDeepestBuckets lists in order, in pages.
func TestDeepestBuckets(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/h"))
	for i := range 5 {
		for range i + 1 {
			b.arrive(fmt.Sprintf("k%d", i))
		}
	}
	page := func(offset, limit int) (keys string) {
		states, n := b.v.deepest(b.p, offset, limit, b.now, b.wall())
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
	}{{0, 2, "k4:5 k3:4 "}, {2, 2, "k2:3 k1:2 "}, {4, 10, "k0:1 "}, {9, 1, ""}, {-1, 1, "k4:5 "}, {0, -1, ""}} {
		if got := page(c.offset, c.limit); got != c.want {
			t.Errorf("from %d, %d: %q, want %q", c.offset, c.limit, got, c.want)
		}
	}
}
