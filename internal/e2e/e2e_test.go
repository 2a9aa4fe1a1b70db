//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
)

// TestLawsHoldWhenOwnersAreKilledAndFrozen runs one bucket at 100/s over three drainer processes,
// kills its owner, then freezes the next one for longer than its lease. It judges by the instants
// that the processes record.
func TestLawsHoldWhenOwnersAreKilledAndFrozen(t *testing.T) {
	const jobs, rate, workers = 3000, 100.0, 64
	c := newCluster(t, fmt.Sprintf(`  - {name: api, algorithm: leaking_bucket, outflow: 100/s,
     capacity: 5000, partitions: 4, workers: %d}`, workers))
	c.admitter()
	for range 3 {
		c.drainer()
	}
	if n := c.publish(c.connect(), "bucket", jobs, time.Millisecond); n != jobs {
		t.Fatalf("%d of %d jobs accepted", n, jobs)
	}

	begin := monotonic()
	c.until("10 s of jobs ran", func() bool { return c.record.started() >= 1000 })
	first := c.record.lastBy()
	killed := monotonic()
	first.Kill()
	c.until("another takes over", func() bool { return c.record.lastBy() != first })
	t.Logf("killed %s at %v; %s took over after %v", first.name, killed-begin,
		c.record.lastBy().name, monotonic()-killed)

	before := c.record.started()
	c.until("it has run 3 s", func() bool { return c.record.started() >= before+300 })
	second := c.record.lastBy()
	frozen := monotonic()
	second.Freeze()
	after(8 * time.Second)
	second.Thaw()
	c.ended(jobs)

	starts := c.record.starts
	slices.SortFunc(starts, func(a, b start) int { return int(a.at - b.at) })
	if why := exceeds(starts, rate, 1); why != "" {
		t.Errorf("law 2: %s", why)
	}
	untold, why := disorder(starts, first, killed, workers)
	if why != "" {
		t.Errorf("law 4: %s", why)
	}
	for _, event := range []struct {
		what string
		at   time.Duration
	}{{"kill", killed}, {"freeze", frozen}} {
		gap := resumed(starts, event.at) - event.at
		t.Logf("starts resumed %v after the %s", gap.Round(time.Millisecond), event.what)
		if gap > waittest.Patience() {
			t.Errorf("starts resumed %v after the %s", gap, event.what)
		}
	}
	t.Logf("%d jobs, %d starts, and %d untold ones; most in any second %d", jobs, len(starts),
		untold, mostIn(starts, time.Second))
}

// resumed returns the first start by a process other than the last one before at.
func resumed(starts []start, at time.Duration) time.Duration {
	var owner *process
	for _, s := range starts {
		if s.at <= at {
			owner = s.by
		} else if s.by != owner {
			return s.at
		}
	}
	return 1<<63 - 1
}

// disorder says which job that ran once started after a later one (law 4). The starts are of one
// bucket, and sorted by time.
//
// A process can be killed between a final check and the line about that start. Final checks are
// made in order, so if it told of a later start, it had started the job, too, which then runs
// again. Of such untold starts it has no more than workers.
func disorder(starts []start, killed *process, at time.Duration,
	workers int) (untold int, why string) {
	runs := map[uint64]int{}
	var told, last uint64 // the last jobs of the killed process, and in order
	for _, s := range starts {
		if runs[s.seq]++; s.by == killed {
			told = max(told, s.seq)
		}
	}
	for _, s := range starts {
		switch {
		case runs[s.seq] > 1:
		case s.seq > last:
			last = s.seq
		case s.seq < told && s.by != killed && s.at > at:
			untold++
		default:
			return untold, fmt.Sprintf("job %d started after job %d", s.seq, last)
		}
	}
	if untold > workers {
		why = fmt.Sprintf("%d jobs, of which %s did not tell, for %d workers", untold, killed.name,
			workers)
	}
	return untold, why
}

func TestDisorder(t *testing.T) {
	dead, other := &process{name: "the dead one"}, &process{}
	for name, c := range map[string]struct {
		dead, other []uint64 // jobs at 1, 2, 3 … until the kill at 10, and at 11, 12, 13 …
		late        []uint64 // jobs of other at 8 and 9
		untold      int
		wrong       bool
	}{
		"in order":          {dead: []uint64{1, 2, 3}, other: []uint64{4, 5}},
		"runs twice":        {dead: []uint64{1, 2, 3}, other: []uint64{2, 4}},
		"untold":            {dead: []uint64{1, 4}, other: []uint64{2, 3, 5}, untold: 2},
		"told by another":   {dead: []uint64{1, 4}, other: []uint64{2, 3, 2, 5}, untold: 1},
		"untold, and ahead": {dead: []uint64{1, 4}, other: []uint64{5, 6, 2, 3}, untold: 2},
		"more than workers": {dead: []uint64{1, 5}, other: []uint64{2, 3, 4}, untold: 3,
			wrong: true},
		"its own order":      {dead: []uint64{1, 3, 2}, wrong: true},
		"the others' order":  {dead: []uint64{1, 2}, other: []uint64{4, 3}, wrong: true},
		"before it was dead": {dead: []uint64{1, 4}, late: []uint64{2}, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			var starts []start
			take := func(by *process, at time.Duration, jobs []uint64) {
				for i, n := range jobs {
					starts = append(starts, start{by: by, seq: n, at: at + time.Duration(i)})
				}
			}
			take(dead, 1, c.dead)
			take(other, 8, c.late)
			take(other, 11, c.other)
			untold, why := disorder(starts, dead, 10, 2)
			if untold != c.untold || why != "" != c.wrong {
				t.Errorf("%d untold, %q", untold, why)
			}
		})
	}
}

func exceeds(starts []start, rate, burst float64) string {
	for i := range starts {
		for j := i; j < len(starts); j++ {
			window := max(time.Second, starts[j].at-starts[i].at)
			most := rate*policy.DefaultPeak*(window.Seconds()+0.002) + burst
			if float64(j-i+1) > most {
				return fmt.Sprintf("%d starts within %v", j-i+1, window)
			}
		}
	}
	return ""
}

func mostIn(starts []start, window time.Duration) (most int) {
	for i, j := 0, 0; j < len(starts); j++ {
		for starts[j].at-starts[i].at >= window {
			i++
		}
		most = max(most, j-i+1)
	}
	return most
}

func TestLaw1DirectPublishersAreBoundedByTheServer(t *testing.T) {
	c := newCluster(t, `  - {name: api, algorithm: leaking_bucket, outflow: 100/s, capacity: 150}`)
	c.admitter()
	if n := c.publish(c.connect(), "tenant.1", 200, 0); n != 150 {
		t.Errorf("%d of 200 jobs accepted, want the capacity of 150", n)
	}
}

// TestLaw3RollingRestartLosesAndRepeatsNothing restarts the admitter with its server, and then each
// drainer, under load.
func TestLaw3RollingRestartLosesAndRepeatsNothing(t *testing.T) {
	const jobs = 2400
	c := newCluster(t,
		`  - {name: api, algorithm: leaking_bucket, outflow: 100/s, capacity: 5000, partitions: 4}`)
	admitter := c.admitter()
	drainers := []*process{c.drainer(), c.drainer()}
	nc := c.connect()
	for i := range 3 {
		if n := c.publish(nc, fmt.Sprintf("key-%d", i), jobs/3, 200*time.Millisecond); n != jobs/3 {
			t.Fatalf("%d jobs accepted", n)
		}
	}
	c.until("jobs ran", func() bool { return c.record.started() >= 100 })
	admitter.stop(t)
	c.admitter()
	goOn := func(began int) {
		t.Helper()
		c.until("jobs go on", func() bool { return c.record.started() >= min(began+100, jobs) })
	}
	goOn(c.record.started())
	for _, d := range drainers {
		c.drainer()
		began := c.record.started()
		d.stop(t)
		goOn(began)
	}
	c.ended(jobs)
	runs := map[string]int{}
	for _, s := range c.record.starts {
		if runs[s.job]++; runs[s.job] > 1 {
			t.Errorf("job %s started again by %s", s.job, s.by.name)
		}
		if s.attempt != 1 {
			t.Errorf("job %s: attempt %d", s.job, s.attempt)
		}
	}
}
