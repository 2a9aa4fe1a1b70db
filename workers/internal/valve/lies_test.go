package valve

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/claimant"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// What a claimant that lies, crashes or aborts can do to the concurrency of its bucket.
func TestAClaimantIsBelieved(t *testing.T) {
	for name, x := range map[string]struct {
		play func(c *calling, now pace.Instant)
		// when y, which then waits, may begin
		y time.Duration
	}{
		"settles while it runs: it overlaps with the next one": {
			func(c *calling, now pace.Instant) {
				c.settle("x", job.SettledDone, now)
				c.tellsGone("progress", c.progress("x", now))
				c.tellsGone("answered", c.tell("x", job.OpAnswered, job.Settlement{}, now))
			}, 0},
		"settles twice: no other's place comes free": {
			func(c *calling, now pace.Instant) {
				c.settle("x", job.SettledDone, now)
				now += 2 * milli
				c.ask("z", now)
				c.at(now, "z go")
				c.settle("x", job.SettledDone, now)
				c.settle("x", job.SettledReturned, now)
			}, time.Second},
		"never settles: it holds its place for the lease": {
			func(*calling, pace.Instant) {}, time.Second},
		"reports its answer for long: it holds its place": {
			func(c *calling, now pace.Instant) {
				for end := now.Add(9 * time.Second); now < end; now += 500 * milli {
					c.tell("x", job.OpAnswered, job.Settlement{}, now)
					c.at(now, "")
				}
			}, 9*time.Second + 500*time.Millisecond},
		"aborts before it begins, and says so: its place is free": {
			func(c *calling, now pace.Instant) { c.settle("x", job.SettledReturned, now) }, 0},
		"settles for another that waits: it waits no more": {
			func(c *calling, now pace.Instant) {
				c.ask("z", now)
				c.at(now, "z waiting")
				c.settle("z", job.SettledDone, now)
			}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			p := leaky("api", "1000/s")
			p.Concurrency, p.Timeout = 1, policy.Duration(time.Second)
			c, now := newCalling(t, p), callsBegin
			c.ask("x", now)
			c.at(now, "x go")
			x.play(c, now)
			c.heard = nil
			for at := now; ; at += 10 * milli {
				if c.ask("y", at); at > now.Add(20*time.Second) {
					t.Fatal("y never begins")
				}
				c.begin(at)
				if strings.HasSuffix(strings.Join(c.heard, ", "), "y go") {
					if d := at.Since(now) - x.y; d < 0 || d > 50*time.Millisecond {
						t.Errorf("y begins after %v, want %v", at.Since(now), x.y)
					}
					break
				}
			}
		})
	}
}

func (c *calling) tellsGone(what, said string) {
	c.t.Helper()
	if said != job.TurnGone {
		c.t.Errorf("%s is answered by %q", what, said)
	}
}

// Those that do not answer an offer, or die with a claim, cost the next one their window.
func TestASilentClaimantCostsItsWindow(t *testing.T) {
	c, now := newCalling(t, leaky("api", "10/s")), callsBegin
	for _, id := range []string{"w", "deaf", "dies", "y"} {
		c.ask(id, now)
	}
	c.at(now, "deaf waiting 100, dies waiting 200, y waiting 300, w go")
	c.at(now+80*milli, "deaf offer")
	c.at(now+130*milli, "dies offer")
	c.ask("dies", now+131*milli)
	c.at(now+131*milli, "dies go") // and begins, or not: it holds no place
	c.at(now+211*milli, "y offer")
	c.ask("y", now+212*milli)
	c.at(now+231*milli, "y go")
}

func TestAClaimThatRanOutIsOfferedAgain(t *testing.T) {
	p := total("10/s")
	c, now := newCalling(t, p), callsBegin
	c.publish("b", 3, now)
	c.at(now, "job 1")
	c.ask("x", now+90*milli)
	c.total.Hold(now + 500*milli)
	c.at(now+121*milli, "")
	if k := c.part.calls.All()[0]; k.State() != claimant.Waiting {
		t.Fatalf("state %d", k.State())
	}
	c.at(now+480*milli, "x offer")
}

func TestACallThatFailsItsFinalCheckWaitsOn(t *testing.T) {
	c, now := newCalling(t, leaky("api", "10/s")), callsBegin
	c.ask("x", now)
	c.Advance(now, pace.Never)
	run := c.out.Starts[0]
	_, passed := run.Decide(func() (fence, at pace.Instant) { return now, now }, run.Call.Tell)
	c.Finished(run.Number, run.Call.Outcome(passed), now)
	c.out.Reset()
	c.at(now+milli, "x offer")
	c.ask("x", now+2*milli)
	c.at(now+2*milli, "x go")
}

// A caller that makes its calls and says that it did not escapes the outflow and the limits, and
// not the peak.
func TestReturnedStartsTakePartInThePeak(t *testing.T) {
	p := leaky("api", "10/s").WithDefaults()
	c, begun := newCalling(t, p), 0
	for now := callsBegin; now < callsBegin.Add(20*time.Second); now += 5 * milli {
		id := fmt.Sprint(now)
		c.ask(id, now)
		c.begin(now)
		if strings.HasSuffix(strings.Join(c.heard, ", "), id+" go") {
			begun++
		}
		c.settle(id, job.SettledReturned, now)
		c.heard = nil
	}
	if most := int(20*float64(10)*p.PeakRatio()) + 1; begun > most || begun < 200 {
		t.Errorf("%d begin within 20 s, want at most %d", begun, most)
	}
}
