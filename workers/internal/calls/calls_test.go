package calls

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/claimant"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

const (
	origin = pace.Instant(time.Hour)
	ms     = pace.Instant(time.Millisecond)
)

type partition struct {
	Calls[string]
	line Line[string]
}

func newPartition() *partition { return &partition{Calls: New(&claimant.Set[string]{})} }

func claim(id string, n int) *job.Claim { return &job.Claim{Op: job.OpClaim, ID: id, N: n} }

func report(id string, n int) *job.Claim { return &job.Claim{Op: job.OpSettle, ID: id, N: n} }

// waits adds a call that waits, and passes takes it through its start.
func (p *partition) waits(m *job.Claim) *claimant.Claimant[string] {
	k := p.Add(m, m.ID, &p.line, origin)
	k.N = m.N
	p.Take(k, claimant.Ask, pace.Never)
	return k
}

func (p *partition) passes(k *claimant.Claimant[string]) {
	p.starts(k)
	p.Take(k, claimant.Pass, pace.Never)
}

func (p *partition) starts(k *claimant.Claimant[string]) {
	for _, e := range []claimant.Event{claimant.Offer, claimant.Claim, claimant.Start} {
		p.Take(k, e, pace.Never)
	}
}

func (p *partition) hears(t *testing.T, m *job.Claim, want Heard) {
	t.Helper()
	if _, is := p.Hear(m); is != want {
		t.Errorf("%s %d of %s is heard as %d, want %d", m.Op, m.N, m.ID, is, want)
	}
}

func TestACallIsOfferedItsTurnOnce(t *testing.T) {
	p := newPartition()
	k, offers := p.waits(claim("x", 1)), 0
	k.Ends = origin + 1000*ms
	k.Reply = func(turn job.Turn) {
		if offers++; turn.State != job.TurnOffer {
			t.Errorf("it is told %s", turn.State)
		}
	}
	p.Offer(k, origin)
	p.Offer(k, origin)
	if offers != 1 || k.Until() != origin.Add(job.ClaimWindow) {
		t.Errorf("%d offers, the last until %v", offers, k.Until()-origin)
	}
}

func TestWhatAMessageIsToItsCall(t *testing.T) {
	p := newPartition()
	p.hears(t, claim("x", 2), Unknown)
	x := p.waits(claim("x", 2))
	p.hears(t, claim("x", 2), Old)
	p.hears(t, report("x", 1), Old)
	p.hears(t, report("x", 2), Waits)
	p.hears(t, claim("x", 3), Waits)
	p.starts(x)
	p.hears(t, claim("x", 2), Old)
	p.hears(t, report("x", 2), Early)
	p.Take(x, claimant.Pass, pace.Never)
	p.hears(t, report("x", 2), Runs)
	p.hears(t, claim("x", 3), Runs)
	if p.Report(x, origin); !p.Settles(x) || p.Settles(x) {
		t.Error("a call does not end once")
	}
	p.hears(t, report("x", 2), Ended) // it may linger
	p.Drop(x)
	p.hears(t, report("x", 2), Ended)
	p.hears(t, claim("x", 3), Ended)
	p.hears(t, claim("y", 1), Unknown)
}

func TestACallThatEndedWithoutAnAnswerLingersUntilItAnswers(t *testing.T) {
	p := newPartition()
	x, o := p.waits(claim("x", 1)), record.Outcome{Kind: record.OutcomeDone}
	if p.Lingers(x, o, origin) || p.GoesOn(x, claim("x", 1), origin) {
		t.Error("a call that waits runs on")
	}
	p.passes(x)
	if !p.Lingers(x, o, origin+5*ms) || x.Ending.Answer != record.AnswerSeen ||
		p.Wake() != origin+5*ms {
		t.Errorf("it lingers until %v, with %+v", p.Wake().Since(origin), x.Ending)
	}
	answered := &job.Claim{Op: job.OpAnswered, ID: "x", N: 1}
	if !p.GoesOn(x, answered, origin+9*ms) || x.Ending != nil || p.Wake() != origin+9*ms {
		t.Error("an answer does not renew its lease")
	}
	p.GoesOn(x, &job.Claim{Op: job.OpProgress}, origin+10*ms)
	if p.Lingers(x, o, origin+20*ms) {
		t.Error("it lingers after its answer")
	}
}

func TestACallKeepsItsPlaceAtTheNextOwner(t *testing.T) {
	p := newPartition()
	add := func(id string, ageMS int64, priority int) *claimant.Claimant[string] {
		return p.Add(&job.Claim{ID: id, AgeMS: ageMS, Priority: priority}, id, &p.line, origin)
	}
	young, old, later := add("a", 5, 0), add("b", 7, 0), add("c", 5, 0)
	if !old.Precedes(young) || !young.Precedes(later) || old.Came != origin-7*ms {
		t.Errorf("came at %v", old.Came.Since(origin))
	}
	if high, liar := add("d", -1, 1000), add("e", 1<<62, -1000); !high.Precedes(old) ||
		high.Priority != job.MaxPriority || liar.Priority != job.MinPriority || liar.Came < 0 ||
		high.Came != origin || high.Takes.Job != 1 {
		t.Errorf("out of bounds: %+v, %+v", high, liar)
	}
	if all := p.All(); len(all) != 5 || all[0] != young || all[4].ID != "e" {
		t.Errorf("%d calls", len(all))
	}
}

func TestTheNextOwnerKnowsWhoEndedAndWhoHolds(t *testing.T) {
	for _, crashed := range []bool{false, true} {
		p, next := newPartition(), newPartition()
		p.Report(p.waits(claim("x", 1)), origin)
		p.Leave(p.waits(claim("y", 1)), origin)
		ended, open := p.Tell()
		next.Inherit(ended, open, crashed, origin)
		next.hears(t, report("x", 1), Ended)
		next.hears(t, report("y", 1), Unknown)
		y := next.Add(report("y", 1), "y", &next.line, origin)
		if next.Held(y) == crashed || next.Held(y) {
			t.Errorf("crashed %v: it holds its units twice, or not at all", crashed)
		}
	}
}

// Nine calls in a row start before a stored job that can start, one before an overdue one.
func TestCallsAndJobsStartInTurns(t *testing.T) {
	for _, c := range []struct {
		job, overdue bool
		want         string
	}{{false, false, "ccccccccccccccccccccc"}, {true, false, "cccccccccjcccccccccjc"},
		{true, true, "cjcjcjcjcjcjcjcjcjcjc"}} {
		p, got := newPartition(), ""
		p.waits(claim("x", 1))
		for range len(c.want) {
			call := p.line.Choose(c.job, c.overdue) != nil
			if p.line.Started(call); call {
				got += "c"
			} else {
				got += "j"
			}
		}
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	var none Line[string]
	if none.Choose(false, false) != nil || none.SlotsBefore(5) != 0 {
		t.Error("an empty line has a call")
	}
}

func TestCallsBeforeAJobAndJobsBeforeACall(t *testing.T) {
	p := newPartition()
	for _, id := range []string{"a", "b", "c"} {
		m := claim(id, 1)
		m.Cost = 10
		p.waits(m)
	}
	p.line.Choose(true, false)
	if p.line.SlotsBefore(0) != 9 || p.line.SlotsBefore(5) != 30 || p.line.JobsBefore(20) != 2 {
		t.Error("nine slots of calls are not before each job's")
	}
	p.line.Choose(true, true)
	p.line.Started(true)
	if p.line.SlotsBefore(5) != 6 || p.line.JobsBefore(20) != 21 {
		t.Error("one call does not start between overdue jobs")
	}
	if p.line.Leave(); p.line.Running != 1 || p.line.Slots != 0 || p.line.Len() != 0 {
		t.Errorf("%+v is left", p.line)
	}
}

// A refused caller counts among those before the next one until it comes back.
func TestWhoIsAwayKeepsItsPlace(t *testing.T) {
	p := newPartition()
	first, m := p.waits(claim("a", 1)), claim("b", 1)
	m.Cost, m.Costs = 2, map[string]int64{"tokens": 7}
	second, third := p.waits(m), p.waits(claim("c", 1))
	p.Take(first, claimant.Settle, pace.Never)
	p.line.SendAway(first, origin+5*ms)
	for _, c := range []struct {
		away  bool
		at    pace.Instant
		slots int64
	}{{false, 0, 2}, {true, 4 * ms, 3}, {true, 5 * ms, 2}} {
		before := p.line.Before(third, c.away, origin+c.at)
		if before.Slots != c.slots {
			t.Errorf("%+v: %d slots", c, before.Slots)
		}
		others := quota.Ahead{Jobs: 4, Units: func(string) int64 { return 100 }}
		with := before.With(others)
		got := []int64{with.Jobs, with.Units("tokens"), with.Units("")}
		if want := []int64{c.slots + 3, c.slots + 105, c.slots + 100}; !slices.Equal(got, want) {
			t.Errorf("%+v: jobs and units are %v, want %v", c, got, want)
		}
	}
	if none := p.line.Before(second, false, origin); none.Slots != 0 ||
		none.With(quota.Ahead{Jobs: 3}).Jobs != 3 {
		t.Errorf("%+v is before the first", none)
	}
	for range mostAway + 1 {
		p.line.SendAway(third, pace.Never)
	}
	if len(p.line.away) != mostAway {
		t.Errorf("%d are away", len(p.line.away))
	}
}
