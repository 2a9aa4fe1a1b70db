package valve

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// answering is a policy whose target counts 3 requests in any second.
func answering(key string) policy.Policy {
	return policy.Policy{Name: "api", Timeout: policy.Duration(10 * time.Second),
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 1000},
		Limits: policy.Limits{{Name: "api", Key: key, CountFrom: policy.CountFromAnswer,
			Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 3,
				Window: policy.Duration(time.Second)}}}}
}

var bothKeys = []string{policy.PlaceholderKey, policy.KeyGlobal}

// begun returns how many jobs start until an instant.
func (b *valveBench) begun(until time.Duration) int {
	return len(b.until(until, func(Run) {}))
}

func (b *valveBench) ran(n int) []Run {
	b.t.Helper()
	for range n {
		b.arrive("a")
	}
	b.noted()
	runs := b.start()
	if len(runs) == 0 {
		b.t.Fatal("nothing starts")
	}
	b.noted()
	return runs
}

func (b *valveBench) open() (left, open int64) {
	for _, l := range b.view().bucketState(b.p, "a").Limits {
		left, open = l.Left, l.Open
	}
	return left, open
}

func TestAUnitIsHeldUntilTheAnswer(t *testing.T) {
	for _, key := range bothKeys {
		b := newValveBench(t, answering(key))
		runs := b.ran(6)
		if left, open := b.open(); len(runs) != 3 || left != 0 || open != 3 {
			t.Errorf("%s: %d start; %d are left, %d open", key, len(runs), left, open)
		}
		if by, until := b.view().held(b.p.buckets["a"]); by != "limit:api" || until != 0 {
			t.Errorf("%s: held by %q until %v", key, by, until)
		}
		if n := b.begun(time.Minute); n > 0 {
			t.Errorf("%s: %d start although none is answered", key, n)
		}
		b.v.Answered(runs[0].Number, b.now, b.now)
		b.v.Answered(runs[0].Number, b.now.Add(second), b.now) // the first counts
		if left, open := b.open(); left != 0 || open != 2 {
			t.Errorf("%s: after an answer %d are left, %d open", key, left, open)
		}
		if n := b.begun(61 * second); n > 0 {
			t.Errorf("%s: %d start within a second after an answer", key, n)
		}
		if n := b.begun(61*second + 2*ms); n != 1 {
			t.Errorf("%s: %d start a second after an answer", key, n)
		}
		b.done(runs[0])
		b.done(runs[1])
		if n := b.begun(63 * second); n != 1 {
			t.Errorf("%s: %d start a second after an end", key, n)
		}
	}
}

func TestWhatIsNotSentIsGivenBack(t *testing.T) {
	for _, key := range bothKeys {
		b := newValveBench(t, answering(key))
		runs := b.ran(6)
		b.end(runs[0], record.Outcome{Kind: record.OutcomeFailed, Answer: record.AnswerUnsent})
		if n := b.begun(10 * ms); n != 1 {
			t.Errorf("%s: %d start after one was not sent", key, n)
		}
	}
}

func TestAnEndWithoutAnAnswerHoldsForTheLongestDelay(t *testing.T) {
	for _, key := range bothKeys {
		b := newValveBench(t, answering(key))
		runs := b.ran(6)
		b.end(runs[0], record.Outcome{Kind: record.OutcomeUncounted, Answer: record.AnswerNone})
		b.at(990 * ms)
		if _, open := b.open(); open != 3 {
			t.Errorf("%s: %d are open before the longest delay", key, open)
		}
		b.at(1000 * ms)
		if _, open := b.open(); open != 2 {
			t.Errorf("%s: %d are open after the longest delay", key, open)
		}
		if n := b.begun(2 * second); n > 0 {
			t.Errorf("%s: %d start within a second after it", key, n)
		}
		if n := b.begun(2*second + 2*ms); n != 1 {
			t.Errorf("%s: %d start then", key, n)
		}
	}
}

// A freeze between decision and final check moves nothing together at the target.
func TestAFrozenStartNeedsNoGuard(t *testing.T) {
	b := newValveBench(t, answering(policy.PlaceholderKey))
	b.arrive("a")
	b.v.Advance(b.now, pace.Never)
	late := func() (fence, now pace.Instant) { return pace.Never, b.now.Add(time.Minute) }
	if _, passed := b.out.Starts[0].Decide(late, nil); !passed {
		t.Error("it came back")
	}
}

func TestACostThatCountsFromTheEndIsTheRealOne(t *testing.T) {
	p := answering(policy.PlaceholderKey)
	p.Limits[0].Cost, p.Limits[0].CountFrom, p.Limits[0].Limit = "tokens", policy.CountFromEnd, 100
	b := newValveBench(t, p)
	b.arrive("a", tokens(60))
	b.noted()
	r := b.start()[0]
	b.v.Answered(r.Number, b.now, b.now)
	if left, open := b.open(); left != 40 || open != 60 {
		t.Errorf("%d are left, %d open, after the answer", left, open)
	}
	b.end(r, record.Outcome{Kind: record.OutcomeDone, Used: map[string]int64{"tokens": 25}})
	if left, open := b.open(); left != 75 || open != 0 {
		t.Errorf("%d are left, %d open, after the end", left, open)
	}
}

// handedOver continues a valve's partition in another process, a second later.
func (b *valveBench) handedOver() *valveBench {
	h := b.p.Surrender(b.now)
	next := unownedValve(b.t, b.v.Policy)
	next.now, next.seq, next.stored = b.now.Add(second), b.seq, b.stored
	next.inheritFrom(inheritance.State{Owner: "self", Elapsed: second, Age: second, Handover: h})
	next.noted()
	return next
}

func TestTheNextOwnerHoldsWhatIsNotAnswered(t *testing.T) {
	for _, key := range bothKeys {
		old := newValveBench(t, answering(key))
		runs := old.ran(4)
		b := old.handedOver()
		for seq := range uint64(4) {
			b.deliver(seq+1, "a")
		}
		b.noted()
		if left, open := b.open(); left != 0 || open != 3 {
			t.Errorf("%s: %d are left, %d open", key, left, open)
		}
		b.p.Reported(record.Outcome{Seq: runs[0].Seq, Kind: record.OutcomeDone, Holder: "self"},
			b.now)
		if _, open := b.open(); open != 2 {
			t.Errorf("%s: %d are open after a report", key, open)
		}
		if n := b.begun(2*second + 2*ms); n != 1 {
			t.Errorf("%s: %d start a second after it", key, n)
		}
		b.end(runOf(b, 4), record.Outcome{Kind: record.OutcomeDone})
		if n := b.begun(9 * second); n == 0 {
			if _, open := b.open(); open != 2 {
				t.Errorf("%s: %d are open before the timeout", key, open)
			}
		}
		b.at(12 * second)
		if _, open := b.open(); open != 0 {
			t.Errorf("%s: %d are open after the timeout and the longest delay", key, open)
		}
	}
}

// The report of an outcome from before the handover releases no other run's unit.
func TestWhatEndedBeforeAHandoverHoldsNothing(t *testing.T) {
	for _, key := range bothKeys {
		old := newValveBench(t, answering(key))
		runs := old.ran(3)
		old.end(runs[0], record.Outcome{Kind: record.OutcomeFailed})
		b := old.handedOver()
		for seq := range uint64(3) {
			b.deliver(seq+1, "a")
		}
		for _, r := range old.out.Reports {
			b.p.Reported(r.Outcome, b.now)
		}
		if _, open := b.open(); open != 2 || len(old.out.Reports) != 1 {
			t.Errorf("%s: %d are open after %d reports", key, open, len(old.out.Reports))
		}
	}
}

func runOf(b *valveBench, seq uint64) (r Run) {
	for number, run := range b.v.Crew.Runs() {
		if run.Of.Seq == seq {
			r.Number, r.Ref = number, run.Of.ref()
		}
	}
	return r
}

func TestACrashCountsWhatWasOpenFromTheTakeover(t *testing.T) {
	for _, key := range bothKeys {
		p := answering(key)
		p.Limits[0].Limit, p.Limits[0].Window = 160, policy.Duration(24*time.Hour)
		old := newValveBench(t, p)
		old.ran(3)
		h := checkpointed(old.p, old.now, aLease)
		b := unownedValve(t, p).at(5 * second).inheritFrom(inheritance.State{Crashed: true,
			Owner: "self", Elapsed: 5 * second, Age: 5 * second, Fence: second, Handover: h})
		b.noted()
		b.bucketOfTests("a")
		left, open := b.open()
		if open < 3 || open > 3+10 || left != 160-open {
			t.Errorf("%s: %d are open, %d left", key, open, left)
		}
		b.at(6900 * ms)
		if _, still := b.open(); still != open {
			t.Errorf("%s: %d are open before the longest delay after the takeover", key, still)
		}
		b.at(7001 * ms)
		if after, still := b.open(); still != 0 || after != left {
			t.Errorf("%s: %d are open and %d left after it", key, still, after)
		}
	}
}

// The lost record, or the lost checkpoint, may have told of runs of a planned handover, which go
// on.
func TestWithoutARecordAllIsHeldUntilRunsMustHaveEnded(t *testing.T) {
	for _, key := range bothKeys {
		for _, former := range []bool{false, true} {
			for at, want := range map[time.Duration]int64{12_990 * ms: 3, 13_001 * ms: 0} {
				b := unownedValve(t, answering(key)).inheritFrom(inheritance.State{Crashed: true,
					Former: former, Fence: second})
				b.bucketOfTests("a")
				b.at(at)
				if _, open := b.open(); open != want {
					t.Errorf("%s: %d are open after %v, want %d", key, open, at, want)
				}
			}
		}
	}
}

func (b *valveBench) bucketOfTests(key queue.Key) { b.p.bucket(key, b.now) }

func TestACallHoldsItsPlaceUntilItsRequestCannotArrive(t *testing.T) {
	for name, end := range map[string]func(c *calling, now pace.Instant){
		"its lease runs out": func(c *calling, now pace.Instant) {},
		"it says so": func(c *calling, now pace.Instant) {
			s := job.Settlement{Status: job.SettledFailed, Answer: job.SettledUnanswered}
			if said := c.tell("x", job.OpSettle, s, now); said != job.TurnSettled {
				c.t.Errorf("it hears %q", said)
			}
		},
	} {
		p := answering(policy.PlaceholderKey)
		p.Concurrency = 3
		c, now := newCalling(t, p), callsBegin
		begin(c.part)
		c.part.Checkpoints.Store()
		c.ask("x", now)
		c.begin(now)
		b := c.part.buckets["a"]
		ends := now.Add(10 * second)
		if end(c, now); name == "it says so" {
			ends = now
		}
		open := func(at pace.Instant) (n int64) {
			c.Advance(at, pace.Never)
			c.quota.Left(b.Used, c.wall.reading(at), func(_ string, _, _, open int64) { n = open })
			return n
		}
		if n := open(ends.Add(999 * ms)); n != 1 || b.Running != 1 {
			t.Errorf("%s: %d open, %d running before the longest delay", name, n, b.Running)
		}
		if n := open(ends.Add(1000 * ms)); n != 0 || b.Running != 0 {
			t.Errorf("%s: %d open, %d running after it", name, n, b.Running)
		}
	}
}

func TestAPauseOfACallWithoutAnAnswerBeginsAtOnce(t *testing.T) {
	c, now := newCalling(t, answering(policy.PlaceholderKey)), callsBegin
	begin(c.part)
	c.part.Checkpoints.Store()
	c.ask("x", now)
	c.begin(now)
	c.tell("x", job.OpSettle, job.Settlement{Status: job.SettledFailed, RetryAfterMS: 1500}, now)
	b, until := c.part.buckets["a"], now.Add(1500*ms)
	if b.Cool != until {
		t.Errorf("it pauses until %v, not %v", b.Cool, until)
	}
	if c.Advance(now.Add(1000*ms), pace.Never); b.Running != 0 || b.Cool != until {
		t.Errorf("after the longest delay %d run, and it pauses until %v", b.Running, b.Cool)
	}
}

func TestACallCountsFromItsAnswer(t *testing.T) {
	c, now := newCalling(t, answering(policy.PlaceholderKey)), callsBegin
	begin(c.part)
	c.part.Checkpoints.Store()
	c.ask("x", now)
	c.begin(now)
	c.tell("x", job.OpAnswered, job.Settlement{}, now.Add(second))
	b := c.part.buckets["a"]
	c.quota.Left(b.Used, c.wall.reading(now.Add(second)), func(_ string, left, _, open int64) {
		if left != 2 || open != 0 {
			t.Errorf("%d are left, %d open", left, open)
		}
	})
	c.settle("x", job.SettledDone, now.Add(2*second))
	c.quota.Left(b.Used, c.wall.reading(now.Add(2010*ms)), func(_ string, left, _, open int64) {
		if left != 3 || open != 0 {
			t.Errorf("a second after the answer %d are left, %d open", left, open)
		}
	})
}

// The next owner knows which calls had no answer before a handover.
func TestACallThatWasHandedOverCountsFromItsAnswer(t *testing.T) {
	for _, key := range bothKeys {
		c, now := newCalling(t, answering(key)), callsBegin
		begin(c.part)
		c.part.Checkpoints.Store()
		for _, id := range []string{"answers", "ends", "answered"} {
			c.ask(id, now)
			c.begin(now)
		}
		c.tell("answered", job.OpAnswered, job.Settlement{}, now)
		c.part.Quiesce()
		next := newCalling(t, answering(key))
		next.n = c.n
		next.part.inherit(inheritance.State{Owner: "self", Handover: c.part.Surrender(now)}, now)
		open := func() (n int64) {
			for _, l := range next.part.v.View(now).bucketState(next.part, "a").Limits {
				n = l.Open
			}
			return n
		}
		want := int64(2)
		for _, id := range []string{"answered", "ends", "answers"} {
			if n := open(); n != want {
				t.Errorf("%s: %d are open before %s, want %d", key, n, id, want)
			}
			if id == "answers" {
				next.tell(id, job.OpAnswered, job.Settlement{}, now)
			} else {
				next.settle(id, job.SettledDone, now)
			}
			if id != "answered" {
				want--
			}
		}
		if n := open(); n != 0 {
			t.Errorf("%s: %d are open at last", key, n)
		}
	}
}

// A caller may be told to go while its partition leaves.
func TestACallThatBeganAsItsPartitionLeftIsHandedOver(t *testing.T) {
	for _, key := range bothKeys {
		c, now := newCalling(t, answering(key)), callsBegin
		begin(c.part)
		c.part.Checkpoints.Store()
		c.ask("x", now)
		c.Advance(now, pace.Never)
		r := c.out.Starts[0]
		c.part.Quiesce()
		_, passed := r.Decide(atOnce(r), r.Call.Tell)
		c.Finished(r.Number, r.Call.Outcome(passed), now)
		next := newCalling(t, answering(key))
		next.n = c.n
		next.part.inherit(inheritance.State{Owner: "self", Handover: c.part.Surrender(now)}, now)
		for _, want := range []int64{1, 0} {
			for _, l := range next.part.v.View(now).bucketState(next.part, "a").Limits {
				if l.Open != want {
					t.Errorf("%s: %d are open, want %d", key, l.Open, want)
				}
			}
			next.settle("x", job.SettledDone, now)
		}
	}
}

// A call that holds nothing, as after a crash that has counted, releases no other's unit at the
// next owner either.
func TestACallThatHoldsNothingIsNotHandedOverAsOpen(t *testing.T) {
	for _, key := range bothKeys {
		c, now := newCalling(t, answering(key)), callsBegin
		begin(c.part)
		c.part.Checkpoints.Store()
		c.ask("holds", now)
		c.begin(now)
		if said := c.progress("unknown", now); said != job.TurnSettled {
			t.Fatal(said)
		}
		c.part.Quiesce()
		next := newCalling(t, answering(key))
		next.n = c.n
		next.part.inherit(inheritance.State{Owner: "self", Handover: c.part.Surrender(now)}, now)
		next.settle("unknown", job.SettledDone, now)
		for _, l := range next.part.v.View(now).bucketState(next.part, "a").Limits {
			if l.Open != 1 {
				t.Errorf("%s: %d are open, want the other's", key, l.Open)
			}
		}
	}
}

// The state of a limit that policies share stays when a policy's partition leaves.
func TestARunsShareIsReleasedWhereTheLimitIs(t *testing.T) {
	s := newSharing(t, "import")
	s.comes(nil)
	p := s.limit.v.Policy
	p.Limits = slices.Clone(p.Limits)
	p.Limits[0].CountFrom = policy.CountFromAnswer
	s.limit.v.Change(p, false, s.limit.now)
	b := s.by[0]
	p = b.v.Policy
	p.Limits = slices.Clone(p.Limits)
	p.Limits[0].CountFrom, p.MaxDelay = policy.CountFromAnswer, policy.Duration(second)
	b.v.Change(p, false, b.now)
	b.arrive("a", tokens(4))
	b.v.placeChanged(b.now)
	b.noted()
	s.limit.noted()
	s.at(second)
	r := b.start()[0]
	t0 := s.limit.v.together
	open := func(at pace.Instant) (n int64) {
		t0.Left(t0.used, s.limit.v.wall.reading(at), func(_ string, _, _, open int64) { n = open })
		return n
	}
	if n := open(b.now); n != 4 {
		t.Errorf("%d are open", n)
	}
	b.p.Surrender(b.now)
	b.end(r, record.Outcome{Kind: record.OutcomeDone})
	if n := open(b.now); n != 0 {
		t.Errorf("%d are open after the end of a run of a partition that left", n)
	}
}

// Where the limit was, the run's answer or end may have counted already. Another run's unit is not
// released for it.
func TestAnEndReleasesNoUnitOfASharedLimitThatMoved(t *testing.T) {
	s := newSharing(t, "import")
	s.comes(nil)
	for _, v := range []*Valve{s.limit.v, s.by[0].v} {
		p := v.Policy
		p.Limits = slices.Clone(p.Limits)
		p.Limits[0].CountFrom, p.MaxDelay = policy.CountFromAnswer, policy.Duration(second)
		v.Change(p, false, s.limit.now)
	}
	b := s.by[0]
	b.arrive("a", tokens(4))
	b.v.placeChanged(b.now)
	b.noted()
	s.limit.noted()
	s.at(second)
	r := b.start()[0]
	h := s.limit.p.Surrender(b.now)
	s.comes(&inheritance.State{Owner: "another", Handover: h})
	b.end(r, record.Outcome{Kind: record.OutcomeDone})
	t0 := s.limit.v.together
	t0.Left(t0.used, s.limit.v.wall.reading(b.now), func(_ string, _, _, open int64) {
		if open != 4 {
			t.Errorf("%d are open", open)
		}
	})
}
