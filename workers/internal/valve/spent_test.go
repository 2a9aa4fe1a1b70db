package valve

import (
	"testing"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func (b *valveBench) comesBack(r Run) {
	if _, passed := r.Decide(func() (fence, now pace.Instant) { return 0, 0 }, nil); passed {
		b.t.Fatalf("job %d passed a fence of long ago", r.Seq)
	}
	b.end(r, record.Outcome{Kind: record.OutcomeReturned})
}

func TestAReturnedJobFreesItsSlots(t *testing.T) {
	p := total("10/s")
	p.Outflow = p.OutflowTotal
	b := newValveBench(t, p)
	j := b.arrive("a", cost(3))
	b.v.Advance(b.now, pace.Never)
	due, totalDue := j.Bucket.clock.Due, b.v.total.Clock.Due
	b.comesBack(b.out.Starts[0])
	slots := 3 * b.v.base.pace.Interval
	if back, ofTotal := due.Since(j.Bucket.clock.Due), totalDue.Since(b.v.total.Clock.Due); back !=
		slots || ofTotal != slots {
		t.Errorf("it gave back %v, and %v of the total, want %v each", back, ofTotal, slots)
	}
}

func unhurried(t *testing.T) *valveBench {
	t.Helper()
	p := leaky("api", "10/s")
	p.Burst = 4
	return newValveBench(t, p)
}

func (r *Run) decideAt(at pace.Instant) (passed bool) {
	_, passed = r.Decide(func() (fence, now pace.Instant) { return pace.Never, at }, nil)
	return passed
}

// A job takes its slot when it starts, after any delay of its hand-over. When two decided an
// interval apart would begin together, the second is returned, in one bucket and over all.
func TestAStartTakesItsSlotWhenItBegins(t *testing.T) {
	for name, p := range map[string]policy.Policy{"a bucket": leaky("api", "10/s"),
		"all buckets": total("10/s")} {
		t.Run(name, func(t *testing.T) {
			b := newValveBench(t, p)
			keys := []string{"a", "a"}
			if p.Outflow.IsZero() {
				keys[1] = "b"
			}
			for _, key := range keys {
				b.arrive(key)
			}
			b.v.Advance(b.now, pace.Never)
			b.at(100*ms).v.Advance(b.now, pace.Never)
			runs := b.out.Starts
			b.out.Starts = nil
			if len(runs) != 2 {
				t.Fatalf("started %s, want two jobs", b.seqs(runs))
			}
			late := b.at(700 * ms).now
			if !runs[0].decideAt(late) {
				t.Error("the first did not pass, because it was late")
			}
			if runs[1].decideAt(late) {
				t.Error("the second began together with the first")
			}
			b.done(runs[0])
			b.end(runs[1], record.Outcome{Kind: record.OutcomeReturned})
			if starts := b.until(second, b.done); len(starts) != 1 ||
				starts[0] < 788*ms || starts[0] > 800*ms {
				t.Errorf("the second began at %v, want one interval after the first, but for the "+
					"tolerance", starts)
			}
		})
	}
}

// Jobs behind a returned one are returned, except one of a higher priority; no job starts before
// all are decided.
func TestJobsBehindAReturnedOneReturnToo(t *testing.T) {
	b := unhurried(t)
	for range 3 {
		b.arrive("a")
	}
	b.v.Advance(b.now, pace.Never)
	runs := b.out.Starts
	b.out.Starts = nil
	if len(runs) != 3 {
		t.Fatalf("started %s, want three jobs", b.seqs(runs))
	}
	b.comesBack(runs[0])
	if b.v.Advance(b.now, pace.Never); len(b.out.Starts) > 0 {
		t.Fatalf("started %s while jobs 2 and 3 were on their way", b.seqs(b.out.Starts))
	}
	for _, r := range runs[1:] {
		if _, passed := r.Decide(atOnce(r), nil); passed {
			t.Errorf("job %d overtook job 1", r.Seq)
		}
		b.end(r, record.Outcome{Kind: record.OutcomeReturned})
	}
	b.at(second)
	if again := b.start(); b.seqs(again) != "[1 2 3]" {
		t.Errorf("started %s, want the three in their order", b.seqs(again))
	}

	b.at(2 * second)
	b.arrive("a")
	b.v.Advance(b.now, pace.Never)
	b.arrive("a", priority(1))
	b.v.Advance(b.now, pace.Never)
	runs = b.out.Starts
	b.comesBack(runs[0])
	if _, passed := runs[1].Decide(atOnce(runs[1]), nil); !passed {
		t.Error("a job of higher priority came back because one that it may overtake did")
	}
	b.end(runs[1], record.Outcome{Kind: record.OutcomeDone})
	b.at(3 * second).out.Starts = nil
	b.start()

	b.at(4 * second)
	b.arrive("a", priority(1))
	b.arrive("a")
	b.v.Advance(b.now, pace.Never)
	b.comesBack(b.out.Starts[0])
	if _, passed := b.out.Starts[1].Decide(atOnce(b.out.Starts[1]), nil); passed {
		t.Error("a job of lower priority overtook one that came back")
	}
}

// A late bucket uses its burst at once, and makes up for the rest slightly faster than the rate.
func TestALateBucketUsesItsBurst(t *testing.T) {
	p := leaky("api", "10/s")
	p.Burst = 5
	b := newValveBench(t, p)
	for range 100 {
		b.arrive("a")
	}
	b.until(second, b.done)
	b.at(3 * second)
	starts := b.until(4*second, b.done)
	if len(starts) < 6 || starts[4] != 3*second || starts[5] == 3*second {
		t.Errorf("started at %v, want 5 at once", starts)
	}
	if gap := starts[6] - starts[5]; gap < 99*ms || gap >= 100*ms {
		t.Errorf("goes on by %v, want a little less than 100 ms", gap)
	}
}

func TestANewRateIsNoBurst(t *testing.T) {
	b := newValveBench(t, total("1000/s"))
	burst, fast := int64(5), leaky("", "10/s").Outflow
	for range 20 {
		b.arrive("a")
	}
	b.v.SetOverride("a", inforce.Override{Outflow: &fast, Burst: &burst}, b.now)
	if starts := b.until(450*ms, b.done); len(starts) != 5 {
		t.Errorf("started at %v, want 5 in 450 ms", starts)
	}
}

func TestAPauseEarnsNoBurst(t *testing.T) {
	for name, pause := range map[string]func(b *valveBench, paused bool){
		"of the policy": func(b *valveBench, paused bool) {
			b.v.Change(b.v.Policy, paused, b.now)
		},
		"of a key": func(b *valveBench, paused bool) {
			b.v.SetOverride("a", inforce.Override{Paused: paused}, b.now)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newValveBench(t,
				with(leaky("api", "10/s"), func(p *policy.Policy) { p.Burst = 5 }))
			pause(b, true)
			for range 20 {
				b.arrive("a")
			}
			b.until(10*second, func(r Run) { t.Errorf("job %d starts in the pause", r.Seq) })
			pause(b, false)
			if starts := b.until(10*second+450*ms, b.done); len(starts) != 5 {
				t.Errorf("started at %v, want 5 in 450 ms", starts)
			}
		})
	}
}

func TestReturnedJobsHaveAReason(t *testing.T) {
	b := unhurried(t)
	for range 4 {
		b.arrive("a")
	}
	b.v.Advance(b.now, pace.Never)
	runs := b.out.Starts
	expired := func() (fence, now pace.Instant) { return origin, origin }
	for i, want := range []Return{"", ReturnLease, ReturnOrder} {
		gate := atOnce(runs[i])
		if want == ReturnLease {
			gate = expired
		}
		if _, passed := runs[i].Decide(gate, nil); passed != (want == "") ||
			runs[i].Returned() != want {
			t.Errorf("job %d: passed %v, came back by %q, want %q", i+1, passed,
				runs[i].Returned(), want)
		}
	}

	b = newValveBench(t, leaky("api", "10/s"))
	for range 2 {
		b.arrive("a")
		b.v.Advance(b.now, pace.Never)
		b.at(100 * ms)
	}
	late := origin.Add(second)
	for i, want := range []Return{"", ReturnRate} {
		r := b.out.Starts[i]
		if passed := r.decideAt(late); passed != (want == "") || r.Returned() != want {
			t.Errorf("two at once: job %d passed %v, came back by %q, want %q", i+1, passed,
				r.Returned(), want)
		}
	}
}
