package valve

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func TestACoolDownIsHandedOver(t *testing.T) {
	p := leaky("api", "10/s")
	for name, crashed := range map[string]bool{"by a planned handover": false, "by a crash": true} {
		t.Run(name, func(t *testing.T) {
			old := newValveBench(t, p)
			old.arrive("a")
			old.end(old.start()[0], record.Outcome{Kind: record.OutcomeThrottled,
				RetryAfter: 20 * time.Second})
			atLeast := time.Duration(0)
			if crashed {
				atLeast = aLease
			}
			h := checkpointed(old.p, old.now, atLeast)
			b := unownedValve(t, p).at(5 * second).inheritFrom(inheritance.State{
				Crashed: crashed, Owner: "old", Elapsed: 5 * second, Handover: h,
			})
			j := b.arrive("a")
			starts := b.until(25*second, func(Run) {})
			if len(starts) != 1 || starts[0] != 20*second || j.Bucket.Throttles != 1 {
				t.Errorf("started at %v after %d throttles, want 20 s and one", starts,
					j.Bucket.Throttles)
			}
		})
	}
}

// After a crash, a clock is used only if its start lies ahead, so no job can have started since.
// Other buckets wait for one interval, like unlisted ones.
func TestAPossiblyOutdatedClockIsNotBelieved(t *testing.T) {
	late := leaky("api", "1/s")
	all := total("1/s")
	for name, c := range map[string]struct {
		clocks  []record.Clock
		crashed bool
		ofAll   bool
		want    time.Duration
		spread  time.Duration
	}{
		"it was due before the takeover": {[]record.Clock{{Key: "a", Due: 900_000}}, true, false,
			second, mostSpread},
		"it is due after the takeover": {[]record.Clock{{Key: "a", Due: 8_000_000}}, true, false,
			7 * second, 0},
		"it is not listed": {nil, true, false, second, mostSpread},
		"nobody crashed": {[]record.Clock{{Key: "a", Due: 900_000}}, false, false,
			0, 0},
		"that of all was due before": {[]record.Clock{{Due: 900_000}}, true, true, second, 0},
		"that of all is due after": {[]record.Clock{{Due: 8_000_000}}, true, true, 7 * second,
			0},
		"that of all is not listed": {nil, true, true, second, 0},
		"nobody crashed, and that of all": {[]record.Clock{{Due: 1_500_000}}, false, true, 500 * ms,
			0},
	} {
		t.Run(name, func(t *testing.T) {
			p := late
			if c.ofAll {
				p = all
			}
			b := unownedValve(t, p).inheritFrom(inheritance.State{
				Crashed: c.crashed, Owner: "old", Elapsed: second,
				Handover: record.Handover{Clocks: c.clocks},
			})
			b.arrive("a")
			starts := b.until(20*second, func(Run) {})
			if len(starts) != 1 || starts[0] < c.want || starts[0] > c.want+c.spread {
				t.Errorf("started at %v, want %v, and %v later at most", starts, c.want, c.spread)
			}
		})
	}
}

func TestAttemptsAndTheirBackoffAreInherited(t *testing.T) {
	b := unownedValve(t, leaky("api", "10/s")).inheritFrom(inheritance.State{
		Owner: "old", Attempts: map[uint64]inheritance.Attempt{
			1: {Attempt: record.Attempt{V: record.Version, Attempts: 2, LastError: "500",
				Crashes: 1, DueIn: record.Micros(5 * second)}},
		},
	})
	j := b.deliver(1, "a")
	if j.Attempts != 2 || j.crashes != 1 || j.LastError != "500" || !j.recorded {
		t.Errorf("%d attempts, %d crashes, last error %q, recorded: %v", j.Attempts, j.crashes,
			j.LastError, j.recorded)
	}
	starts := b.until(10*second, func(r Run) {
		if r.Attempt != 3 {
			t.Errorf("attempt %d, want the third", r.Attempt)
		}
	})
	if len(starts) != 1 || starts[0] != 5*second {
		t.Errorf("started at %v, want 5 s", starts)
	}
}

func TestAnInheritedRunTimesOut(t *testing.T) {
	p := leaky("api", "10/s")
	b := unownedValve(t,
		p).inheritFrom(inheritance.State{Owner: "old",
		Handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "old"}}}})
	b.deliver(1, "a")
	timeout := time.Duration(b.v.Policy.Timeout)
	b.v.placeChanged(b.now)
	if until := b.v.Wake(false).Since(b.now); until != timeout {
		t.Errorf("looked at in %v, want %v", until, timeout)
	}
	b.at(timeout / 2)
	b.p.Reported(record.Outcome{Seq: 1, Kind: record.OutcomeProgress, Holder: "old"}, b.now)
	starts := b.until(2*timeout, func(r Run) {
		if r.Attempt != 1 {
			t.Errorf("attempt %d: what nobody knows to have failed counts", r.Attempt)
		}
	})
	if len(starts) != 1 || starts[0] != timeout*3/2 {
		t.Errorf("started at %v, want %v", starts, timeout*3/2)
	}
}

func TestAFinishedJobThatComesAgainIsOnlyAcknowledged(t *testing.T) {
	for name, between := range map[string]func(b *valveBench){
		"before it was confirmed": func(b *valveBench) { b.p.Reopen(2) },
		"confirmed before the backlog's opening": func(b *valveBench) {
			b.p.Confirmed(1, b.now)
			b.p.Reopen(2)
		},
		"confirmed after the backlog's opening": func(b *valveBench) {
			b.p.Reopen(2)
			b.p.Confirmed(1, b.now)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newValveBench(t, leaky("api", "10/s"))
			b.arrive("a")
			b.end(b.start()[0], record.Outcome{Kind: record.OutcomeDone})
			between(b)
			b.out.Acks = nil
			// a check of recently finished jobs ends before job 1
			b.p.legacy.Finish(2, 0, false, b.now)
			b.at(second).deliver(1, "a") // redelivered too late to be known
			if runs := b.start(); len(runs) > 0 || len(b.out.Acks) != 1 {
				t.Errorf("started %s, acknowledged %v", b.seqs(runs), b.out.Acks)
			}
		})
	}
}

// When the holder of jobs that have not arrived crashes, they hold no concurrency, and count as
// crashed.
func TestRunsOfAHolderThatDiesBeforeTheyComeHoldNothing(t *testing.T) {
	p := leaky("api", "10/s")
	p.Concurrency = 1
	b := unownedValve(t,
		p).inheritFrom(inheritance.State{Owner: "old",
		Handover: record.Handover{Running: []record.Run{{Seq: 2, Holder: "other"}}}})
	b.deliver(1, "a")
	b.v.HolderGone("other", b.now)
	if runs := b.at(second).start(); b.seqs(runs) != "[1]" {
		t.Errorf("started %s, want the job that waits", b.seqs(runs))
	}
	if j := b.deliver(2, "a"); j.crashes != 1 {
		t.Errorf("%d crashes, want one", j.crashes)
	}
}

// Missed starts are not made up in a clump, and idle time earns no credit.
func TestStartsThatAreAllowedAgainAreNoBurst(t *testing.T) {
	burst := with(leaky("api", "10/s"), func(p *policy.Policy) { p.Burst = 5 })
	for name, c := range map[string]struct {
		policy policy.Policy
		before int
	}{"of a late bucket": {burst, 30}, "of an idle bucket": {burst, 0},
		"of all": {total("10/s"), 30}} {
		t.Run(name, func(t *testing.T) {
			b := newValveBench(t, c.policy)
			for range c.before {
				b.arrive("a")
			}
			b.until(second, b.done)
			b.at(4*second).v.Advance(b.now, 0)
			for range 10 {
				b.arrive("a")
			}
			b.v.Resume(b.now)
			if starts := b.until(4*second+450*ms, b.done); len(starts) != 5 {
				t.Errorf("%d starts in the first 450 ms, want 5: %v", len(starts), starts)
			}
		})
	}
}

// A job waits for its Not-Before, and an expired one gets a letter, both by the stream's clock.
func TestAJobStartsAtItsNotBefore(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	b.arrive("a", func(a *job.Arrived) { a.NotBefore = originWall.Add(5 * second) })
	b.arrive("a", func(a *job.Arrived) { a.NotBefore = originWall.Add(-second) })
	var seqs []uint64
	starts := b.until(10*second, func(r Run) { seqs = append(seqs, r.Seq); b.done(r) })
	if len(starts) != 2 || starts[0] != 0 || starts[1] != 5*second || seqs[0] != 2 {
		t.Errorf("jobs %v started at %v, want 2 and 1 at 0 and 5 s", seqs, starts)
	}
}

// If clocks do not fit a record, it omits those that lose least: of waits longer than an interval
// the shortest, and of the others, which become an interval, the latest due.
func TestClocksThatLoseMostAreListedFirst(t *testing.T) {
	minute := record.Micros(time.Minute)
	var clocks []heldClock
	for _, c := range []record.Clock{
		{Key: "5m", Wait: 5 * minute}, {Key: "1h", Wait: 60 * minute}, {Key: "1m", Wait: minute},
		{Key: "2h", Cool: 120 * minute},
	} {
		clocks = append(clocks, heldClock{Clock: c, interval: 6 * minute})
	}
	slices.SortFunc(clocks, compareClocks)
	var keys []queue.Key
	for _, c := range clocks {
		keys = append(keys, c.Key)
	}
	if want := []queue.Key{"2h", "1h", "1m", "5m"}; !slices.Equal(keys, want) {
		t.Errorf("listed %v, want %v", keys, want)
	}
}
