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
	const jobs, rate = 3000, 100.0
	c := newCluster(t,
		`  - {name: api, algorithm: leaking_bucket, outflow: 100/s, capacity: 5000, partitions: 4}`)
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
	runs := map[uint64]int{}
	for _, s := range starts {
		runs[s.seq]++
	}
	var last uint64
	for _, s := range starts {
		if runs[s.seq] == 1 {
			if s.seq < last {
				t.Errorf("law 4: job %d started after job %d", s.seq, last)
			}
			last = s.seq
		}
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
	t.Logf("%d jobs, %d starts, most in any second %d", len(runs), len(starts),
		mostIn(starts, time.Second))
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
