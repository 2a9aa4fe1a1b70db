//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
)

// TestTakeoverOfALargeBacklog kills the owner of a bucket with 100,000 waiting jobs. Starts resume
// in order, without loss, and within the rate; the simulation judges how soon. The drainers have
// enough local workers, because remote ones report instants later than the last check.
func TestTakeoverOfALargeBacklog(t *testing.T) {
	const jobs, rate, workers = 100_000, 4000.0, 512
	c := newCluster(t, fmt.Sprintf(`  - {name: api, algorithm: leaking_bucket, outflow: 4000/s,
     capacity: 200000, partitions: 2, workers: %d}`, workers))
	c.admitter()
	if n := c.publish(c.connect(), "bucket", jobs, 0); n != jobs {
		t.Fatalf("%d of %d jobs accepted", n, jobs)
	}
	c.drainer()
	c.drainer()
	c.until("jobs run", func() bool { return c.record.started() >= 5000 })
	first := c.record.lastBy()
	killed := monotonic()
	first.Kill()
	c.ended(jobs)

	starts := c.record.starts
	slices.SortFunc(starts, func(a, b start) int { return int(a.at - b.at) })
	gap := resumed(starts, killed) - killed
	t.Logf("starts resumed %v after the kill", gap.Round(time.Millisecond))
	if gap > waittest.Patience() {
		t.Errorf("starts resumed %v after the kill", gap)
	}
	// All pairs of starts would be 5·10⁹; these windows begin at a start, and last a second or
	// more.
	for i := range starts {
		for _, window := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second} {
			n, _ := slices.BinarySearchFunc(starts[i:], starts[i].at+
				window, func(s start, at time.Duration) int {
				return int(s.at - at)
			})
			if most := rate*policy.DefaultPeak*(window.Seconds()+0.002) + 1; float64(n) > most {
				t.Fatalf("law 2: %d starts within %v", n, window)
			}
		}
	}
	untold, why := disorder(starts, first, killed, workers)
	if why != "" {
		t.Errorf("law 4: %s", why)
	}
	t.Logf("%d starts of %d jobs; %s did not tell of %d more", len(starts), jobs, first.name,
		untold)
}

// TestNoGapWhileDrainersJoinAndLeave restarts every drainer in turn under load, over many buckets.
// No bucket pauses for a second beyond its interval, no job runs twice, and partitions are soon
// spread evenly.
func TestNoGapWhileDrainersJoinAndLeave(t *testing.T) {
	const buckets, each, partitions = 20, 250, 8
	stalled := stalls()
	c := newCluster(t,
		`  - {name: api, algorithm: leaking_bucket, outflow: 10/s, capacity: 5000, partitions: 8}`)
	c.admitter()
	nc := c.connect()
	for i := range buckets {
		if n := c.publish(nc, fmt.Sprintf("key-%d", i), each, 20*time.Millisecond); n != each {
			t.Fatalf("%d jobs accepted", n)
		}
	}
	owners := func() map[string]int {
		js, err := nc.JetStream(nats.MaxWait(waittest.Patience()))
		if err != nil {
			t.Fatal(err)
		}
		kv, err := js.KeyValue("PENSTOCK_PARTITIONS")
		if err != nil {
			return nil
		}
		counts := map[string]int{}
		for i := range partitions {
			entry, err := kv.Get(fmt.Sprintf("api.%d", i))
			if err != nil || strings.Contains(string(entry.Value()), `"released":true`) {
				return nil
			}
			_, rest, _ := strings.Cut(string(entry.Value()), `"owner":"`)
			owner, _, _ := strings.Cut(rest, `"`)
			counts[owner]++
		}
		return counts
	}
	spread := func(drainers int) {
		t.Helper()
		began := monotonic()
		c.until(fmt.Sprintf("%d drainers share evenly", drainers), func() bool {
			counts := owners()
			for _, n := range counts {
				if n > (partitions+drainers-1)/drainers {
					return false
				}
			}
			return len(counts) == drainers
		})
		t.Logf("%d drainers share evenly after %v", drainers,
			(monotonic() - began).Round(time.Millisecond))
	}
	drainers := []*process{c.drainer()}
	c.until("jobs run", func() bool { return c.record.started() >= buckets })
	drainers = append(drainers, c.drainer())
	spread(2)
	for _, d := range drainers {
		c.drainer()
		spread(3)
		d.stop(t)
		spread(2)
	}
	c.ended(buckets * each)

	byBucket := map[string][]start{}
	runs := map[string]int{}
	for _, s := range c.record.starts {
		byBucket[s.key] = append(byBucket[s.key], s)
		if runs[s.job]++; runs[s.job] > 1 || s.attempt != 1 {
			t.Errorf("job %s: start %d, attempt %d", s.job, runs[s.job], s.attempt)
		}
	}
	var longest time.Duration
	for key, starts := range byBucket {
		slices.SortFunc(starts, func(a, b start) int { return int(a.at - b.at) })
		if why := exceeds(starts, 10, 1); why != "" {
			t.Errorf("law 2: bucket %s: %s", key, why)
		}
		for i := 1; i < len(starts); i++ {
			longest = max(longest, starts[i].at-starts[i-1].at)
		}
	}
	t.Logf("the longest gap in any of %d buckets: %v", len(byBucket),
		longest.Round(time.Millisecond))
	if stood := stalled(); longest > time.Second+stood {
		t.Errorf("a bucket stood still for %v, and this process for %v at most", longest, stood)
	}
}

// stalls measures the longest time that this process waits for the processor until the returned
// function is called: the other processes wait as long.
func stalls() (longest func() time.Duration) {
	const every = 10 * time.Millisecond
	stop, most := make(chan struct{}), make(chan time.Duration)
	go func() {
		var wait time.Duration
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for last := monotonic(); ; {
			select {
			case <-ticker.C:
				now := monotonic()
				last, wait = now, max(wait, now-last-every)
			case <-stop:
				most <- wait
				return
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-most
	}
}
