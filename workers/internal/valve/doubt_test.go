package valve

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A job whose answer always reads like a throttle delays the others, uses its attempts up once they
// pass, and dies.
func TestAJobThatAlwaysLooksThrottledDiesWhileOthersPass(t *testing.T) {
	p := leaky("api", "10/s")
	p.Retry.MaxAttempts = 2
	b := newValveBench(t, p)
	bad := b.arrive("a")
	for range 5 {
		b.arrive("a")
	}
	var order []uint64
	b.until(time.Hour, func(r Run) {
		if order = append(order, r.Seq); r.Ref != bad.ref() {
			b.done(r)
			return
		}
		b.end(r, record.Outcome{Kind: record.OutcomeThrottled, Doubtful: true,
			RetryAfter: time.Minute, Error: "so it says"})
		b.record()
		b.arrive("a")
	})
	if want := []uint64{1, 1, 2, 3, 4, 5, 6, 7, 8, 1, 9, 1, 10, 1, 11}; !slices.Equal(order, want) {
		t.Errorf("started %v, want %v", order, want)
	}
	if b.reasons() != "[attempts]" || bad.Attempts != 2 {
		t.Errorf("%s after %d attempts", b.reasons(), bad.Attempts)
	}
}

// Without another answer the target may be throttling.
func TestJobsThatAreAllThrottledCountNoAttempts(t *testing.T) {
	for _, jobs := range []int{1, 3} {
		b := newValveBench(t, leaky("api", "10/s"))
		for range jobs {
			b.arrive("a")
		}
		ran, end := 0, time.Hour
		b.until(end, func(r Run) {
			ran++
			b.end(r, record.Outcome{Kind: record.OutcomeThrottled, Doubtful: true,
				RetryAfter: time.Minute})
		})
		if n := b.attempts(); n != 0 || b.reasons() != "[]" || ran < 55 || ran > 61 {
			t.Errorf("%d jobs: %d attempts counted, %s, of %d starts", jobs, n, b.reasons(), ran)
		}
		b.until(2*end, func(r Run) { b.done(r) })
		if len(b.p.jobs) > 0 {
			t.Errorf("%d of %d jobs did not end", len(b.p.jobs), jobs)
		}
	}
}

// Other jobs passed before, and none since.
func TestAClearThrottleIsNeverTheJobsFault(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	b.arrive("a")
	b.arrive("a")
	ran := 0
	b.until(time.Hour, func(r Run) {
		if ran++; r.Seq != 1 {
			b.done(r)
			return
		}
		b.end(r, record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: time.Minute})
	})
	if n := b.attempts(); n != 0 || b.reasons() != "[]" {
		t.Errorf("%d attempts counted, %s", n, b.reasons())
	}
}

func TestAFailedJobWaitsAsLongAsItsTargetAsks(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{0: second, 10 * second: 10 * second} {
		p := leaky("api", "10/s")
		p.Retry.Backoff, p.Retry.MaxBackoff = 1e9, 1e9
		b := newValveBench(t, p)
		b.arrive("a")
		b.arrive("a")
		first := true
		starts := b.until(time.Minute, func(r Run) {
			if r.Seq == 1 && first {
				first = false
				b.end(r, record.Outcome{Kind: record.OutcomeFailed, Again: asked})
				b.record()
				return
			}
			b.done(r)
		})
		if len(starts) != 3 || starts[1] > second/5 || starts[2] < want/2 ||
			starts[2] > want+second {
			t.Errorf("asked for %v: starts at %v", asked, starts)
		}
	}
}
