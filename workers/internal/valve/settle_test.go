package valve

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func TestBackoffDoublesUpToItsLimit(t *testing.T) {
	for _, c := range []struct {
		first time.Duration
		n     int
		limit time.Duration
		want  time.Duration
	}{
		{second, 0, time.Minute, second},
		{second, 1, time.Minute, 2 * second},
		{second, 5, time.Minute, 32 * second},
		{second, 6, time.Minute, time.Minute},
		{second, 1_000_000, time.Minute, time.Minute},
		{time.Hour, 999, 366 * 24 * time.Hour, 366 * 24 * time.Hour},
		{time.Minute, 0, second, second},
	} {
		if got := pace.Doubled(c.first, c.n, c.limit); got != c.want {
			t.Errorf("pace.Doubled(%v, %d, %v) = %v, want %v", c.first, c.n, c.limit, got, c.want)
		}
	}
}

// A target that is down for hours must not cause dead letters, and jobs that failed together must
// not return together.
func TestRetriesSurviveANight(t *testing.T) {
	for _, c := range []struct {
		draw, least, most float64
	}{{0, 6, 7}, {0.5, 9, 10}, {1 - 1e-9, 13, 14}} {
		b := newValveBench(t, leaky("api", "1000/s"))
		b.v.random = func() float64 { return c.draw }
		j := b.arrive("a")
		for b.reasons() == "[]" {
			b.end(b.start()[0], record.Outcome{Kind: record.OutcomeFailed, Error: "500"})
			if len(b.out.Saves) == 0 {
				break
			}
			if backoff := j.backoff; backoff < 500*ms {
				t.Fatalf("backs off for %v after attempt %d", backoff, j.Attempts)
			}
			b.out.Saves = nil
			b.v.stock.saved(j, b.now)
			b.now = b.now.Add(j.backoff)
		}
		if hours := b.now.Since(origin).Hours(); hours < c.least || hours > c.most ||
			j.Attempts != 25 {
			t.Errorf(
				"with draws of %v it died after %.1f hours and %d attempts, want 25 in %v to "+
					"%v hours",
				c.draw, hours, j.Attempts, c.least, c.most)
		}
	}
}

func TestFailedAttemptsBackOffWithJitter(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Retry = policy.Retry{MaxAttempts: 4, Backoff: policy.Duration(second),
		MaxBackoff: policy.Duration(3 * second)}
	b := newValveBench(t, p)
	b.arrive("a")
	for attempt, backoff := range []time.Duration{750 * ms, 1500 * ms, 2250 * ms} {
		r := b.start()[0]
		if r.Attempt != attempt+1 {
			t.Fatalf("attempt %d, want %d", r.Attempt, attempt+1)
		}
		b.end(r, record.Outcome{Kind: record.OutcomeFailed, Error: "500"})
		saved := b.out.Saves[attempt]
		if saved.Record.Attempts != attempt+1 || saved.Record.DueIn != backoff.Microseconds() ||
			saved.Record.LastError != "500" {
			t.Fatalf("recorded %+v", saved.Record)
		}
		if runs := b.start(); len(runs) > 0 {
			t.Fatal("it started before its attempt was recorded")
		}
		b.v.stock.saved(b.p.jobs[r.Seq], b.now)
		if wake := b.v.Wake(true); wake != b.now.Add(backoff) {
			t.Fatalf("backs off for %v, want %v", wake.Since(b.now), backoff)
		}
		b.now = b.now.Add(backoff)
	}
	b.end(b.start()[0], record.Outcome{Kind: record.OutcomeFailed, Error: "500"})
	if b.reasons() != "[attempts]" {
		t.Errorf("buried for %s", b.reasons())
	}
}

func TestAJobsOwnAttempts(t *testing.T) {
	for own, want := range map[string]int{"1": 1, " 2 ": 2, "3": 3, "1000": 3} {
		p := leaky("api", "1000/s")
		p.Retry = policy.Retry{MaxAttempts: 3}
		b := newValveBench(t, p)
		j := b.arrive("a", func(a *job.Arrived) {
			a.Header = map[string][]string{"penstock-max-attempts": {own}}
		})
		for b.reasons() == "[]" {
			b.end(b.start()[0], record.Outcome{Kind: record.OutcomeFailed})
			b.v.stock.saved(j, b.now)
			b.now = b.now.Add(j.backoff)
		}
		if j.Attempts != want || b.reasons() != "[attempts]" {
			t.Errorf("%q: dead after %d attempts (%s), want %d", own, j.Attempts, b.reasons(), want)
		}
	}
}

// A snooze counts no attempt and delays no other jobs. It is recorded first: a new owner must wait
// too.
func TestSnoozedJobsStartLater(t *testing.T) {
	b := newValveBench(t, leaky("api", "1000/s"))
	first, other := b.arrive("a"), b.arrive("a")
	b.end(b.start()[0], record.Outcome{Kind: record.OutcomeUncounted, Again: 10 * time.Minute})
	if r := b.out.Saves[0].Record; r.Attempts != 0 || r.DueIn != (10*time.Minute).Microseconds() {
		t.Fatalf("recorded %+v", r)
	}
	b.v.stock.saved(first, b.now)
	var order []uint64
	b.until(10*time.Minute-ms, func(r Run) { order = append(order, r.Seq); b.done(r) })
	if fmt.Sprint(order) != fmt.Sprint([]uint64{other.Seq}) {
		t.Errorf("%v started meanwhile, want the second job alone", order)
	}
	b.until(10*time.Minute+ms, func(r Run) {
		if order = append(order, r.Seq); r.Attempt != 1 {
			t.Errorf("attempt %d", r.Attempt)
		}
		b.end(r, record.Outcome{Kind: record.OutcomeUncounted, Again: math.MaxInt64})
	})
	if most := b.v.Policy.MaxAge; first.backoff != time.Duration(most) || len(order) != 2 {
		t.Errorf("%v started; the next wait is %v, want at most %v", order, first.backoff, most)
	}
}

func TestASnoozeCountsNoAttemptInAHandover(t *testing.T) {
	b := newValveBench(t, leaky("api", "1000/s"))
	b.arrive("a")
	b.end(b.start()[0], record.Outcome{Kind: record.OutcomeUncounted, Again: time.Minute})
	b.p.Surrender(b.now)
	o := b.out.Reports[0].Outcome
	if o.Kind != record.OutcomeUncounted || o.Again != time.Minute {
		t.Errorf("the next owner hears %+v", o)
	}
}

func TestCooldowns(t *testing.T) {
	p := leaky("api", "10/s")
	p.Retry = policy.Retry{Backoff: policy.Duration(second),
		MaxCooldown: policy.Duration(5 * second)}
	b := newValveBench(t, p)
	for range 20 {
		b.arrive("a")
	}
	throttle := func(after time.Duration) time.Duration {
		r := b.start()[0]
		b.end(r, record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: after})
		wait := b.p.buckets["a"].Cool.Since(b.now)
		b.now = b.now.Add(wait)
		return wait
	}
	for i, want := range []time.Duration{second, 2 * second, 4 * second, 5 * second, 5 * second} {
		if got := throttle(0); got != want {
			t.Errorf("unnamed cool-down %d lasts %v, want %v", i+1, got, want)
		}
	}
	if got := throttle(1500 * ms); got != 1500*ms {
		t.Errorf("cool-down of 1.5 s lasts %v", got)
	}
	if got := throttle(time.Hour); got != 5*second {
		t.Errorf("cool-down of an hour lasts %v, want max_cooldown", got)
	}
	r := b.start()
	if len(r) != 1 || r[0].Attempt != 1 {
		t.Fatalf("%d starts as the bucket opens", len(r))
	}
	b.done(r[0])
	if gap := nextStart(b); gap < 100*ms-ms || gap > 100*ms {
		t.Errorf("the second start is allowed %v after the first, want 100 ms", gap)
	}
	if got := throttleAfterDone(b); got != second {
		t.Errorf("after a success the first unnamed cool-down lasts %v again, want 1 s", got)
	}
}

func nextStart(b *valveBench) time.Duration {
	b.v.placeChanged(b.now)
	at := b.v.Wake(true)
	gap := at.Since(b.now)
	b.now = at
	return gap
}

func TestAnswersToJobsUnderWayTogetherMakeOneCooldown(t *testing.T) {
	p := with(leaky("api", "10/s"), func(p *policy.Policy) { p.Burst = 3 })
	p.Retry = policy.Retry{Backoff: policy.Duration(second),
		MaxCooldown: policy.Duration(time.Minute)}
	b := newValveBench(t, p)
	for range 10 {
		b.arrive("a")
	}
	for i, want := range []time.Duration{second, 2 * second} {
		for _, r := range b.start() {
			b.end(r, record.Outcome{Kind: record.OutcomeThrottled})
		}
		wait := b.p.buckets["a"].Cool.Since(b.now)
		if wait != want {
			t.Errorf("cool-down %d lasts %v, want %v", i+1, wait, want)
		}
		b.now = b.now.Add(wait)
	}
}

func TestATargetThatHasNothingLeftPausesItsBucketBeforeItThrottles(t *testing.T) {
	p := leaky("api", "10/s")
	p.Retry = policy.Retry{MaxCooldown: policy.Duration(5 * second)}
	b := newValveBench(t, p)
	for range 4 {
		b.arrive("a")
		b.arrive("b")
	}
	for _, c := range []struct {
		kind        record.OutcomeKind
		says, pause time.Duration
	}{
		{record.OutcomeDone, 2 * second, 2 * second},
		{record.OutcomePermanent, 100 * 365 * 24 * time.Hour, 5 * second},
		{record.OutcomeDone, 0, 0},
	} {
		r := b.start()
		if len(r) == 0 {
			t.Fatal("nothing starts")
		}
		for _, r := range r {
			o := record.Outcome{Kind: record.OutcomeDone}
			if r.Key == "a" {
				o = record.Outcome{Kind: c.kind, RetryAfter: c.says}
			}
			b.end(r, o)
		}
		pause := b.p.buckets["a"].Cool.Since(b.now)
		if c.pause > 0 && pause != c.pause {
			t.Fatalf("%v says that nothing is left for %v: it pauses for %v", c.kind, c.says, pause)
		}
		if cool := b.p.buckets["b"].Cool; cool != 0 {
			t.Fatalf("the other bucket cools down until %v", cool)
		}
		b.now = b.now.Add(max(c.pause, 100*ms))
	}
	if attempts := b.reasons(); attempts != "[permanent]" || len(b.out.Saves) != 0 {
		t.Errorf("buried for %s, %d attempts are recorded", attempts, len(b.out.Saves))
	}
}

func throttleAfterDone(b *valveBench) time.Duration {
	r := b.start()[0]
	b.end(r, record.Outcome{Kind: record.OutcomeThrottled})
	return b.p.buckets["a"].Cool.Since(b.now)
}

func TestLettersCountEveryAttempt(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Retry = policy.Retry{MaxAttempts: 3}
	for _, c := range []struct {
		failures int
		last     record.Outcome
		want     int
		reason   queue.Reason
	}{
		{0, record.Outcome{Kind: record.OutcomePermanent}, 1, queue.ReasonPermanent},
		{2, record.Outcome{Kind: record.OutcomePermanent}, 3, queue.ReasonPermanent},
		{2, record.Outcome{Kind: record.OutcomeFailed}, 3, queue.ReasonAttempts},
	} {
		b := newValveBench(t, p)
		j := b.arrive("a")
		for range c.failures {
			b.end(b.start()[0], record.Outcome{Kind: record.OutcomeFailed})
			b.v.stock.saved(j, b.now)
			b.now = b.now.Add(time.Minute)
		}
		saved := inheritance.Attempt{
			Attempt: record.Attempt{V: record.Version, Attempts: j.Attempts}}
		b.end(b.start()[0], c.last)
		if u := b.out.Burials[0]; u.Attempts != c.want || u.Reason != c.reason {
			t.Errorf("after %d failures and %s: a letter %q of %d attempts, want %q of %d",
				c.failures, c.last.Kind, u.Reason, u.Attempts, c.reason, c.want)
		}
		h := b.p.Surrender(b.now)
		next := unownedValve(t, p).at(time.Hour).inheritFrom(inheritance.State{
			Owner: "old", Handover: h, Attempts: map[uint64]inheritance.Attempt{1: saved},
		})
		next.p.Reported(b.out.Reports[0].Outcome, next.now)
		next.deliver(1, "a", func(a *job.Arrived) { a.Stored = j.Stored })
		if u := next.out.Burials[0]; u.Attempts != c.want || u.Reason != c.reason {
			t.Errorf("after a handover: a letter %q of %d attempts, want %q of %d", u.Reason,
				u.Attempts, c.reason, c.want)
		}
	}
}

// A job that costs more than its bucket's capacity would block the bucket for longer than a full
// queue. Unpaced costs are the limiter's.
func TestCostsThatNeverFit(t *testing.T) {
	p := leaky("api", "1/m")
	p.Capacity = 10
	b := newValveBench(t, p)
	b.arrive("a", cost(11))
	b.arrive("a", cost(10))
	if runs := b.start(); b.seqs(runs) != "[2]" || b.reasons() != "[malformed]" {
		t.Errorf("started %s, buried for %s", b.seqs(runs), b.reasons())
	}
	if detail := b.out.Burials[0].Detail; detail !=
		"Penstock-Cost exceeds the bucket's capacity of 10, so it can never pass" {
		t.Errorf("the letter says %q", detail)
	}
	door := policy.Policy{Name: "door",
		Rule:  policy.Rule{Algorithm: policy.TokenBucket, Capacity: 100, Refill: p.Outflow},
		Queue: &policy.Queue{Capacity: 2}}
	b = newValveBench(t, door)
	b.arrive("a", cost(50))
	if runs := b.start(); len(runs) != 1 {
		t.Errorf("buried for %s", b.reasons())
	}
}

// Dates that are too far away for a duration must not wrap around.
func TestFarDatesAreFarAway(t *testing.T) {
	far := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	b := newValveBench(t, leaky("api", "10/s"))
	b.arrive("deadline", func(a *job.Arrived) { a.Deadline = far })
	later := b.arrive("later", func(a *job.Arrived) { a.NotBefore = far })
	if runs := b.start(); b.seqs(runs) != "[1]" || b.reasons() != "[]" {
		t.Errorf("started %s, buried for %s; want job 1 alone", b.seqs(runs), b.reasons())
	}
	if later.stage != stageDelayed {
		t.Errorf("a job of the year 9999 is in stage %d", later.stage)
	}
	b.arrive("past", func(a *job.Arrived) { a.Deadline = time.Time{}.Add(time.Second) })
	if runs := b.start(); len(runs) > 0 || b.reasons() != "[deadline]" {
		t.Errorf("started %s, buried for %s", b.seqs(runs), b.reasons())
	}
}

func TestDeadlinesPassWhereverAJobWaits(t *testing.T) {
	soon := func(a *job.Arrived) { a.Deadline = a.Stored.Add(second) }
	for name, prepare := range map[string]func(b *valveBench){
		"at the head of a slow bucket": func(b *valveBench) {
			b.arrive("a")
			b.done(b.start()[0])
			b.arrive("a", soon)
		},
		"while the target cools down": func(b *valveBench) {
			b.arrive("a", soon)
			b.end(b.start()[0], record.Outcome{Kind: record.OutcomeThrottled,
				RetryAfter: time.Minute})
		},
		"before it is due": func(b *valveBench) {
			b.arrive("a", soon, func(a *job.Arrived) { a.NotBefore = a.Stored.Add(time.Minute) })
		},
		"while the policy is paused": func(b *valveBench) {
			b.v.Change(b.v.Policy, true, b.now)
			b.arrive("a", soon)
		},
		"while its concurrency is used": func(b *valveBench) {
			b.arrive("a")
			b.start()
			b.arrive("a", soon)
		},
		"behind another": func(b *valveBench) {
			b.arrive("a")
			b.end(b.start()[0], record.Outcome{Kind: record.OutcomeThrottled,
				RetryAfter: time.Minute})
			b.arrive("a", soon)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := leaky("api", "1/m")
			p.Concurrency = 1
			b := newValveBench(t, p)
			prepare(b)
			if b.reasons() != "[]" {
				t.Fatal("too early")
			}
			b.until(second+ms, func(r Run) { t.Fatalf("job %d started", r.Seq) })
			if b.reasons() != "[deadline]" {
				t.Fatalf("buried for %s", b.reasons())
			}
			if b.p.buckets["a"].queue.Later() != 0 {
				t.Errorf("%d count as delayed", b.p.buckets["a"].queue.Later())
			}
		})
	}
}

func TestPoisonJobDiesAtItsThirdCrash(t *testing.T) {
	p := leaky("api", "10/s")
	var noted record.Attempt
	for crash := 1; crash <= 3; crash++ {
		owner := fmt.Sprint("old-", crash)
		in := inheritance.State{Crashed: true, Owner: owner,
			Handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: owner}}}}
		if noted.V != 0 {
			in.Attempts = map[uint64]inheritance.Attempt{1: {Attempt: noted}}
		}
		b := unownedValve(t, p).inheritFrom(in)
		j := b.deliver(1, "a")
		b.deliver(2, "a")
		if runs := b.at(second).start(); len(runs) > 0 {
			t.Fatalf("started %s before the crash was recorded", b.seqs(runs))
		}
		if n := len(b.out.Saves); n != 1 {
			t.Fatalf("crash %d: %d records", crash, n)
		}
		noted = b.out.Saves[0].Record
		if noted.Crashes != crash || noted.Attempts != 0 {
			t.Fatalf("recorded %+v", noted)
		}
		b.v.stock.saved(j, b.now)
		if crash == 3 {
			if runs := b.start(); b.reasons() != "[crashed]" || b.seqs(runs) != "[2]" {
				t.Errorf("buried for %s, started %s; want only the job behind it", b.reasons(),
					b.seqs(runs))
			}
			return
		}
		if runs := b.start(); b.seqs(runs) != "[1]" || runs[0].Attempt != 1 {
			t.Fatalf("started %s; want the job that crashed first", b.seqs(runs))
		}
	}
}

func TestMalformedJobsTakeNoSlot(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/m"))
	j := b.arrive("a", func(a *job.Arrived) { a.Malformed = fmt.Errorf("cost: 0") })
	b.arrive("a")
	if runs := b.start(); b.seqs(runs) != "[2]" || b.reasons() != "[malformed]" {
		t.Errorf("started %s, buried for %s", b.seqs(runs), b.reasons())
	}
	if b.p.Buried(j.ref()); len(b.out.Acks) != 1 {
		t.Error("the letter is stored and its job is not acknowledged")
	}
}
