package valve

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func TestHoldsOfAJob(t *testing.T) {
	later := func(d time.Duration) func(*job.Arrived) {
		return func(a *job.Arrived) { a.NotBefore = a.Stored.Add(d) }
	}
	const unknown = -1
	for name, c := range map[string]struct {
		policy  func(*policy.Policy)
		prepare func(b *valveBench) *heldJob
		want    string
		until   time.Duration
	}{
		"nothing": {prepare: func(b *valveBench) *heldJob {
			return b.arrive("a")
		}, want: "", until: unknown},
		"its rate": {prepare: func(b *valveBench) *heldJob {
			b.arrive("a")
			b.start()
			return b.arrive("a")
		},
			want: job.BlockedByRate, until: 100 * ms},
		"its rate, behind others": {prepare: func(b *valveBench) *heldJob {
			b.arrive("a")
			b.start()
			b.arrive("a", cost(9))
			return b.arrive("a")
		}, want: job.BlockedByRate, until: time.Second},
		"the rate of all": {policy: func(p *policy.Policy) {
			p.OutflowTotal, p.Outflow = p.Outflow, p.OutflowTotal
		},
			prepare: func(b *valveBench) *heldJob {
				b.arrive("b")
				b.start()
				return b.arrive("a")
			},
			want: job.BlockedByTotalRate, until: 100 * ms},
		"its bucket's concurrency": {policy: func(p *policy.Policy) { p.Concurrency = 1 },
			prepare: func(b *valveBench) *heldJob {
				b.arrive("a")
				b.start()
				return b.arrive("a")
			},
			want: job.BlockedByConcurrency, until: unknown},
		"a pause of its bucket": {prepare: func(b *valveBench) *heldJob {
			b.v.SetOverride("a", inforce.Override{Paused: true}, b.now)
			return b.arrive("a")
		}, want: job.BlockedByPaused, until: unknown},
		"a pause of all": {prepare: func(b *valveBench) *heldJob {
			b.v.Change(b.v.Policy, true, b.now)
			return b.arrive("a", later(time.Minute))
		}, want: job.BlockedByPolicyPaused, until: unknown},
		"a target that throttles": {prepare: func(b *valveBench) *heldJob {
			j := b.arrive("a")
			b.end(b.start()[0],
				record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: time.Minute,
					Error: "429"})
			return j
		}, want: job.BlockedByThrottled, until: time.Minute},
		"a target that is down": {prepare: func(b *valveBench) *heldJob {
			var last *heldJob
			for range 10 {
				last = b.arrive("a")
			}
			b.until(time.Second, b.down)
			return last
		}, want: job.BlockedByBreaker, until: 1150 * ms},
		"targets that are down": {prepare: func(b *valveBench) *heldJob {
			for _, key := range []string{"b", "c", "d"} {
				b.arrive(key)
			}
			for _, r := range b.start() {
				b.down(r)
			}
			return b.arrive("a")
		}, want: job.BlockedByBreaker, until: 750 * ms},
		"a probe": {prepare: func(b *valveBench) *heldJob {
			for range 10 {
				b.arrive("a")
			}
			b.until(time.Second, b.down)
			b.now = b.p.buckets["a"].Target.At
			b.start()
			return b.p.jobs[10]
		}, want: job.BlockedByBreaker, until: unknown},
		"its backoff": {prepare: func(b *valveBench) *heldJob {
			j := b.arrive("a")
			b.end(b.start()[0], record.Outcome{Kind: record.OutcomeFailed, Error: "oops"})
			b.record()
			return j
		}, want: job.BlockedByBackoff, until: 750 * ms},
		"its attempt's recording": {prepare: func(b *valveBench) *heldJob {
			j := b.arrive("a")
			b.end(b.start()[0], record.Outcome{Kind: record.OutcomeFailed, Error: "oops"})
			return j
		}, want: job.BlockedByStorage, until: unknown},
		"its own date": {prepare: func(b *valveBench) *heldJob {
			return b.arrive("a", later(time.Hour))
		},
			want: job.BlockedByNotBefore, until: time.Hour},
		"no worker anywhere": {prepare: func(b *valveBench) *heldJob {
			b.v.Crew.Local = false
			j := b.arrive("a")
			b.v.Offered(crew.OfferNobody, b.now)
			return j
		}, want: job.BlockedByNoWorker, until: unknown},
		"workers elsewhere that are busy": {prepare: func(b *valveBench) *heldJob {
			b.v.Crew.Local = false
			j := b.arrive("a")
			b.v.Offered(crew.OfferBusy, b.now)
			return j
		}, want: job.BlockedByWorkersBusy, until: unknown},
		"workers here that are busy": {policy: func(p *policy.Policy) { p.Workers = 1 },
			prepare: func(b *valveBench) *heldJob {
				b.arrive("b")
				b.start()
				return b.arrive("a")
			},
			want: job.BlockedByWorkersBusy, until: unknown},
		"a lease in doubt": {prepare: func(b *valveBench) *heldJob {
			b.v.Advance(b.now, 0)
			return b.arrive("a")
		}, want: job.BlockedByStorage, until: unknown},
		"a queue that is being read": {prepare: func(b *valveBench) *heldJob {
			j := b.arrive("a")
			b.p.state = partitionOpening
			return j
		}, want: job.BlockedByStorage, until: unknown},
		"nothing, as it runs": {prepare: func(b *valveBench) *heldJob {
			j := b.arrive("a")
			b.start()
			return j
		}, until: unknown},
	} {
		t.Run(name, func(t *testing.T) {
			p := leaky("api", "10/s")
			if c.policy != nil {
				c.policy(&p)
			}
			b := newValveBench(t, p)
			b.v.Advance(b.now, pace.Never)
			j := c.prepare(b)
			state := b.view().jobState(b.p, j.Seq)
			until := time.Duration(unknown)
			if state.Until != nil {
				until = state.Until.Sub(originWall)
			}
			if state.By != c.want || (until-c.until).Abs() > 2*ms {
				t.Errorf("held by %q until %v, want %q until %v", state.By, until, c.want, c.until)
			}
			bucket := b.view().bucketState(b.p, "a")
			if bucket.By != c.want && c.want != job.BlockedByStorage {
				t.Errorf("its bucket is held by %q", bucket.By)
			}
			switch c.want {
			case job.BlockedByThrottled, job.BlockedByBackoff:
				if bucket.LastError == "" {
					t.Error("its bucket does not tell the last error")
				}
			}
		})
	}
}

func TestABucketReportsThatItsQueueIsBeingRead(t *testing.T) {
	b := unownedValve(t, leaky("api", "10/s"))
	b.own()
	b.arrive("a")
	for _, key := range []queue.Key{"a", "b"} {
		if !b.view().bucketState(b.p, key).Reading {
			t.Errorf("%s: nothing is said while the queue is read", key)
		}
	}
	b.p.GoLive(b.now)
	if b.view().bucketState(b.p, "a").Reading {
		t.Error("the queue is still read when jobs start")
	}
}

func TestABucketHasItsLastError(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	b.arrive("a")
	b.arrive("a")
	b.end(b.start()[0], record.Outcome{Kind: record.OutcomePermanent, Error: "target answered 404"})
	if got := b.view().bucketState(b.p, "a").LastError; got != "target answered 404" {
		t.Errorf("tells %q", got)
	}
	b.done(b.at(time.Second).start()[0])
	if got := b.view().bucketState(b.p, "a").LastError; got != "" {
		t.Errorf("tells %q after a job was done", got)
	}
}

func TestTheRateOfABucketIsRightFromTheFirstSeconds(t *testing.T) {
	for _, c := range []struct {
		rate  string
		every time.Duration
		want  float64
		after []time.Duration
	}{
		{"1000/s", 0, 1000, []time.Duration{time.Second, 2 * second, 5 * second, 20 * second}},
		{"10/s", 0, 10, []time.Duration{time.Second, 2 * second, 5 * second, 20 * second}},
		{"1/s", 0, 1, []time.Duration{500 * ms, 2500 * ms, 5500 * ms, 20500 * ms}},
		{"2/m", 0, 1. / 30, []time.Duration{15 * second, 45 * second, 195 * second}},
		{"1000/s", 200 * ms, 5, []time.Duration{1100 * ms, 2100 * ms, 5100 * ms, 20100 * ms}},
	} {
		b := newValveBench(t, leaky("api", c.rate))
		if c.every == 0 {
			for range 100 + int(21*c.want) {
				b.arrive("a")
			}
		}
		var comes time.Duration
		for _, after := range c.after {
			for c.every > 0 && comes < after {
				b.until(comes, b.done)
				b.arrive("a")
				comes += c.every
			}
			b.until(after, b.done)
			if got := b.view().bucketState(b.p, "a").Rate; got < 0.8*c.want ||
				got > 1.2*c.want {
				t.Errorf("%s, a job every %v: after %v the rate is %v/s, want %v/s", c.rate,
					c.every, after, got, c.want)
			}
		}
		if c.every > 0 {
			continue
		}
		before := b.view().bucketState(b.p, "a").Rate
		next := unownedValve(t,
			b.v.Policy).inheritFrom(inheritance.State{Owner: "old", Handover: b.p.Surrender(b.now)})
		if got := next.view().bucketState(next.p, "a").Rate; got < 0.9*before ||
			got > 1.1*before {
			t.Errorf("%s: before a handover the rate is %v/s, after it %v/s", c.rate, before, got)
		}
	}
}
