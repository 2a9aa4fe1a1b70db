package valve

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
)

// quietFor has a quiet time of a span from the beginning of a test on.
func quietFor(from, to time.Duration) []policy.Quiet {
	clock := func(d time.Duration) string { return originWall.UTC().Add(d).Format("15:04") }
	return []policy.Quiet{{From: clock(from), To: clock(to)}}
}

const jobsBefore, jobsAfter = 600, 400

func TestNothingStartsInQuietTime(t *testing.T) {
	for _, rule := range []string{"outflow", "total", "limit"} {
		p := leaky("api", "10/s")
		switch rule {
		case "total":
			p.Outflow, p.OutflowTotal = p.OutflowTotal, p.Outflow
		case "limit":
			p.Limits = policy.Limits{{Name: "all", Key: policy.KeyGlobal, Rule: policy.Rule{
				Algorithm: policy.SlidingLog, Limit: 11, Window: policy.Duration(time.Second)}}}
		}
		begins, ends := time.Minute, 9*time.Hour
		p.Quiet = quietFor(begins, ends)
		b := newValveBench(t, p)
		for range jobsBefore + jobsAfter {
			b.arrive("a")
		}
		last, known := b.view().expect(b.p, b.seq)
		var all []time.Duration
		run := func(until time.Duration) {
			for b.now.Since(origin) < until {
				b.noted()
				all = append(all, b.until(min(until, b.now.Since(origin)+second), b.done)...)
			}
		}
		run(2 * time.Minute)
		held := b.view().bucketState(b.p, "a")
		if n := len(all); n < jobsBefore*0.9 || all[n-1] >= begins {
			t.Errorf("%s: %d started, the last after %v", rule, n, all[n-1])
		}
		if held.By != job.BlockedByQuiet || held.Until == nil ||
			!held.Until.Equal(originWall.Add(ends)) {
			t.Errorf("%s: held by %q until %v", rule, held.By, held.Until)
		}
		early := len(all)
		run(ends + 2*time.Minute)
		if n := len(all); n != jobsBefore+jobsAfter || all[early] < ends {
			t.Fatalf("%s: %d started, the first afterwards after %v", rule, n, all[early])
		}
		if why := pacetest.Exceeds(all, 10.2, 1); why != "" {
			t.Errorf("%s: law 2: %s", rule, why)
		}
		ended := all[len(all)-1]
		if off := last - ended; !known || off < -second || off > 10*second {
			t.Errorf("%s: the last job was expected after %v, %v, and started after %v", rule,
				last, known, ended)
		}
		b.v.Losses.TakeLost(func(cause string, lost time.Duration) {
			if cause != job.BlockedByQuiet && lost > second {
				t.Errorf("%s: %v were lost by %s", rule, lost, cause)
			}
		})
	}
}

// A job may wait for a worker when quiet time begins, or for its final check.
func TestQuietTimeBeginsForDueJobsToo(t *testing.T) {
	p := leaky("api", "10/s")
	p.Quiet, p.Workers = quietFor(time.Minute, time.Hour), 1
	b := newValveBench(t, p)
	b.at(50 * second)
	b.arrive("a")
	b.arrive("b") // another bucket, so that the end of the first job does not place it again
	first := b.start()[0]
	b.at(59 * second)
	b.v.Advance(b.now, pace.Never)
	b.at(time.Minute)
	b.done(first)
	if runs := b.start(); len(runs) != 0 {
		t.Fatalf("%d jobs start in quiet time", len(runs))
	}
	b.at(time.Hour)
	if runs := b.start(); len(runs) != 1 {
		t.Fatalf("%d jobs start after it, want 1", len(runs))
	}

	b = newValveBench(t, p)
	b.at(time.Minute - ms)
	b.arrive("a")
	b.v.Advance(b.now, pace.Never)
	r := b.out.Starts[0]
	if _, passed := r.Decide(func() (fence, now pace.Instant) {
		return pace.Never, origin.Add(time.Minute)
	}, nil); passed {
		t.Error("a job passes its final check in quiet time")
	}
}

func TestQuietTimeFollowsThePolicyAndTheClock(t *testing.T) {
	p := leaky("api", "10/s")
	p.Quiet = quietFor(0, time.Hour)
	b := newValveBench(t, p)
	b.arrive("a")
	if runs := b.start(); len(runs) != 0 {
		t.Fatalf("%d jobs start in quiet time", len(runs))
	}
	open := b.v.Policy
	open.Quiet = nil
	b.v.Change(open, false, b.now)
	if runs := b.start(); len(runs) != 1 {
		t.Errorf("%d jobs start without quiet time, want 1", len(runs))
	}
	b.v.Change(p.WithDefaults(), false, b.now)
	b.at(second)
	b.arrive("a")
	if runs := b.start(); len(runs) != 0 {
		t.Errorf("%d jobs start in the quiet time of a changed policy", len(runs))
	}
}
