package valve

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

func TestJobsThatAreNotDueYetWaitDeep(t *testing.T) {
	b := shallow(t, leaky("api", "100/s"))
	const jobs = 3 * mostRipe
	due := func(seq int) time.Duration { return time.Duration(seq^1)*ms + 10*second }
	for seq := range jobs {
		b.arrive("k", func(a *job.Arrived) {
			a.NotBefore = b.wall().Add(due(seq + 1))
			if seq%100 == 99 {
				a.Deadline = b.wall().Add(5 * second)
			}
		})
	}
	b.counts()
	bucket := b.p.buckets["k"]
	if len(b.p.jobs) > 0 || bucket.queue.Later() != jobs {
		t.Fatalf("%d jobs are near, %d are deep and not due", len(b.p.jobs), bucket.queue.Later())
	}
	b.start()
	first := b.wall().Add(due(1))
	s := b.view().bucketState(b.p, "k")
	if s.Delayed != jobs || s.By != job.BlockedByNotBefore || !s.Until.Equal(first) {
		t.Errorf("their bucket stands so: %+v", s)
	}
	if j := b.view().jobState(b.p, 5); j.State != job.Delayed ||
		*j.ETAMS != due(5).Milliseconds() {
		t.Errorf("job 5 stands so: %+v", j)
	}
	if b.p.cancel(7) != 1 || b.p.cancel(7) != 0 {
		t.Error("job 7 is not cancelled once")
	}
	b.at(6 * second).start()
	if n := len(b.out.Burials); n != jobs/100 {
		t.Errorf("%d jobs have expired", n)
	}
	b.counts()
	b.at(10*second + jobs*ms/2)
	for range 4 {
		b.v.Advance(b.now, pace.Never)
		b.now++
	}
	if n := bucket.queue.Len(); n < jobs/2-jobs/100 || n > jobs/2+1 {
		t.Errorf("%d jobs are due after half of the time", n)
	}
	if n := len(b.p.jobs); n > jobs/100+60 {
		t.Errorf("%d jobs are near", n)
	}
	b.counts()
	last := uint64(0)
	b.at(30 * second)
	for int(bucket.held) > bucket.Running+jobs/100+1 {
		b.text()
		for _, r := range b.start() {
			if r.Seq < last {
				t.Fatalf("job %d starts after %d", r.Seq, last)
			}
			last = r.Seq
			b.done(r)
		}
		b.now = b.now.Add(ms)
		if b.now > origin.Add(time.Minute) {
			t.Fatalf("%d jobs have not started", bucket.queue.Len())
		}
	}
	b.counts()
}

func TestBucketsThatStartNothingSoonHaveNoJobNear(t *testing.T) {
	b := shallow(t, leaky("api", "1/m"))
	const keys = 500
	for key := range keys {
		b.arrive(fmt.Sprint(key))
	}
	for started := 0; started < keys; b.text() {
		for _, r := range b.start() {
			started++
			b.done(r)
		}
	}
	for key := range keys {
		b.arrive(fmt.Sprint(key))
	}
	b.counts()
	if len(b.p.jobs) > 0 {
		t.Fatalf("%d jobs are near", len(b.p.jobs))
	}
	starts := map[queue.Key]time.Duration{}
	for range 100 {
		b.at(b.v.Wake(true).Since(origin)).v.Advance(b.now, pace.Never)
		b.text()
		for runs := b.start(); len(runs) > 0; runs = b.start() {
			for _, r := range runs {
				starts[r.Key] = b.now.Since(origin)
				b.done(r)
			}
		}
	}
	b.counts()
	if len(starts) != keys || starts["7"] != time.Minute {
		t.Errorf("%d jobs have started, one of them after %v", len(starts), starts["7"])
	}
}

// Reading takes 20 ms; the bucket starts 100 jobs meanwhile.
func TestAFastBucketDoesNotWaitForTexts(t *testing.T) {
	b := shallow(t, leaky("api", "5000/s"))
	for range 12_000 {
		b.arrive("k")
	}
	b.at(second)
	reads, idle := 0, 0
	for turn := range 2000 {
		if turn%20 == 0 {
			if len(b.out.Fetches) > 0 {
				reads++
			}
			b.text()
		}
		runs := b.start()
		for _, r := range runs {
			if r.Body == nil {
				t.Fatalf("job %d starts without its text", r.Seq)
			}
			b.done(r)
		}
		if turn > 40 && len(runs) == 0 {
			idle++
		}
		b.now = b.now.Add(ms)
	}
	if idle > 0 {
		t.Errorf("in %d of 2000 ms nothing started, want five jobs in each", idle)
	}
	if reads > 50 {
		t.Errorf("their texts were asked for %d times", reads)
	}
}

func TestNearJobsWaitForEarlierDeepJobs(t *testing.T) {
	b := shallow(t, leaky("api", "1/s"))
	var order []uint64
	start := func() {
		b.text()
		for _, r := range b.start() {
			order = append(order, r.Seq)
			b.done(r)
		}
		b.now = b.now.Add(50 * ms)
	}
	for range 5 {
		b.arrive("k")
	}
	for b.now < origin.Add(700*ms) {
		start()
	}
	b.arrive("k", priority(5))
	b.arrive("k", priority(5))
	for turn := 0; len(order) < 7 && turn < 1000; turn++ {
		start()
	}
	if !slices.Equal(order, []uint64{1, 6, 7, 2, 3, 4, 5}) {
		t.Errorf("they start in the order %v", order)
	}
	b.counts()
}
