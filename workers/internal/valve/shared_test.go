package valve

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

type sharing struct {
	limit *valveBench
	by    []*valveBench
}

func newSharing(t *testing.T, names ...string) *sharing {
	return newSharingBeside(t, nil, names...)
}

func newSharingBeside(t *testing.T, own policy.Limits, names ...string) *sharing {
	account := policy.Limit{Name: "account", Key: policy.KeyGlobal, Cost: "tokens",
		Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 10,
			Window: policy.Duration(10 * time.Second)}}
	p := policy.Policy{Name: "account", Limits: policy.Limits{account},
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 100_000}}
	s := &sharing{limit: unownedValve(t, p)}
	var line []*Valve
	for _, name := range names {
		p.Name, p.Limits = name, append(policy.Limits{account}, own...)
		p.Limits[0].Shared = "account"
		b := newValveBench(t, p)
		b.v.ShareLimits([]SharedLimit{{"account", s.limit.v}})
		s.by, line = append(s.by, b), append(line, b.v)
	}
	Join(line)
	return s
}

// comes moves the limit to the policies' drainer, with its former owner's state.
func (s *sharing) comes(in *inheritance.State) {
	s.limit.own()
	s.limit.p.Opened(originWall, 0, in, s.limit.now)
	s.limit.p.GoLive(s.limit.now)
	s.limit.noted()
}

func (s *sharing) at(d time.Duration) {
	s.limit.at(d)
	for _, b := range s.by {
		b.at(d)
	}
}

func (s *sharing) until(end time.Duration) string {
	var all []string
	for {
		next, some := pace.Never, false
		s.by[0].v.Advance(s.by[0].now, pace.Never)
		for _, b := range s.by {
			for _, r := range b.out.Starts {
				all, some = append(all, fmt.Sprintf("%s/%s@%v", r.Part.Policy, r.Key,
					b.now.Since(origin).Round(10*ms))), true
				if _, passed := r.Decide(atOnce(r), nil); !passed {
					b.t.Fatal("a start did not pass its last check")
				}
				b.done(r)
			}
			b.out.Starts = nil
			next = min(next, b.v.Wake(true))
		}
		if s.limit.p != nil {
			s.limit.noted()
		}
		switch at := next.Since(origin); {
		case some:
		case next == pace.Never || at > end:
			s.at(end)
			return strings.Join(all, " ")
		default:
			s.at(max(at, s.by[0].now.Since(origin)))
		}
	}
}

func TestPoliciesTakeTurnsUnderALimitThatTheyShare(t *testing.T) {
	s := newSharing(t, "import", "mail")
	s.comes(nil)
	crowd, mail := s.by[0], s.by[1]
	heavy := mail.v.Policy
	heavy.Weight = 3
	mail.v.Change(heavy, false, mail.now)
	for i := range 20 {
		crowd.arrive(fmt.Sprintf("a%d", i), tokens(1))
	}
	for range 9 {
		mail.arrive("b", tokens(1))
	}
	if of, to := crowd.view().slotsOfLine(5), mail.view().slotsOfLine(5); of != 9 || to != 2 {
		t.Errorf("%d slots of mail come before five others, and %d of import, want 9 and 2", of, to)
	}
	got := s.until(9 * second)
	if n := strings.Count(got, "mail/b@0s"); n != 7 || strings.Count(got, "import/") != 3 {
		t.Errorf("%s, want ten starts, of which three quarters are mail's", got)
	}
	after := s.until(11 * second)
	if strings.Count(after, "mail/b@10.05s") != 2 || strings.Count(after, "@10.05s") != 10 {
		t.Errorf("%s, want ten more when the window has passed", after)
	}
}

func TestPoliciesTakeTurnsWithCostlyJobs(t *testing.T) {
	s := newSharing(t, "import", "mail")
	s.comes(nil)
	heavy := s.by[1].v.Policy
	heavy.Weight = 3
	s.by[1].v.Change(heavy, false, s.by[1].now)
	for range 20 {
		s.by[0].arrive("a", tokens(4))
		s.by[1].arrive("b", tokens(4))
	}
	got := s.until(75 * second)
	if n := strings.Count(got, "mail/"); n != 12 || strings.Count(got, "import/") != 4 {
		t.Errorf("%s, want three quarters of 16 to be of mail", got)
	}
}

func TestALeaderOfALineStartsOver(t *testing.T) {
	s := newSharing(t, "import", "mail")
	s.comes(nil)
	s.by[0].arrive("a", tokens(1), cost(5))
	s.limit.p.Checkpoints.Cost("", 5)
	s.limit.noted()
	s.until(11 * second)
	for range 10 {
		s.by[0].arrive("a", tokens(1))
		s.by[1].arrive("b", tokens(1))
	}
	if got := s.until(12 * second); strings.Count(got, "import/") != 5 {
		t.Errorf("%s, want half of ten starts to be import's", got)
	}
}

func TestNothingStartsWhileASharedLimitIsElsewhere(t *testing.T) {
	s := newSharing(t, "import", "mail")
	b := s.by[0]
	b.arrive("a", tokens(4))
	if got := s.until(second); got != "" {
		t.Fatalf("%s starts though nobody here knows what is left", got)
	}
	a := b.p.buckets["a"]
	if by, until := b.view().held(a); by != job.BlockedByLimit+"account" || until != 0 {
		t.Errorf("held by %q until %v", by, until)
	}
	if at := b.view().expectBucket(a, 0, oneSlot); at != pace.Never {
		t.Errorf("a start is foretold, in %v", at.Since(b.now))
	}
	told := time.Duration(0)
	b.v.TakeHeld(b.now.Add(second), second, func(limit string, held time.Duration) {
		if limit == "account" {
			told += held
		}
	})
	if told != second {
		t.Errorf("the limit held it for %v, it is told, want 1s", told)
	}
	s.comes(nil)
	if got := s.until(2 * second); got != "import/a@1s" {
		t.Errorf("%q, want its job as soon as the limit is here", got)
	}
	s.limit.p.Quiesce()
	b.arrive("a", tokens(4))
	if got := s.until(3 * second); got != "" {
		t.Errorf("%s starts though the limit is handed over", got)
	}
}

// The limit's state moves with it, and a crash charges it with the most that can have started.
func TestASharedLimitIsHandedOverAndChargedByACrash(t *testing.T) {
	for crashed, want := range map[bool]string{false: "mail/b@0s mail/b@9.05s",
		true: "mail/b@10.05s mail/b@10.05s"} {
		s := newSharing(t, "import", "mail")
		s.comes(nil)
		s.by[0].arrive("a", tokens(4))
		s.until(second)
		if !s.limit.p.Checkpoints.Changed {
			t.Error("no checkpoint of the limit is due")
		}
		h := s.limit.p.Handover(s.limit.now)
		next := newSharing(t, "import", "mail")
		next.comes(&inheritance.State{Handover: h, Crashed: crashed,
			Elapsed: 0, Age: second, Fence: ms})
		next.by[1].arrive("b", tokens(6))
		next.by[1].arrive("b", tokens(1))
		if got := next.until(12 * second); got != want {
			t.Errorf("crashed %v: %s, want %s", crashed, got, want)
		}
	}
}

func TestACheckpointTellsOfASharedLimitsStarts(t *testing.T) {
	s := newSharing(t, "import")
	s.comes(nil)
	b := s.by[0]
	b.arrive("a", tokens(2))
	s.limit.p.Checkpoints.Changed = false
	if n := len(b.start()); n != 1 || !s.limit.p.Checkpoints.Changed {
		t.Errorf("%d start; a checkpoint is due: %v", n, s.limit.p.Checkpoints.Changed)
	}
}

var keyed = policy.Limits{{Name: "own", Key: policy.PlaceholderKey, Rule: policy.Rule{
	Algorithm: policy.SlidingLog, Limit: 100, Window: policy.Duration(10 * time.Second)}}}

// Shared limits are evaluated again, because another policy may have started a job; a bucket's own
// are not.
func TestAllowedCountsOtherPoliciesTurns(t *testing.T) {
	s := newSharingBeside(t, keyed, "import", "mail")
	s.comes(nil)
	for _, b := range s.by {
		b.arrive("k", tokens(6))
	}
	for _, b := range s.by {
		b.v.placeChanged(b.now)
		if b.p.buckets["k"].Allowed.Seq == 0 {
			t.Fatal("a limit of its own has not let the job start")
		}
	}
	if got, want := s.until(9*second), "import/k@0s"; got != want {
		t.Errorf("starts %s, want %s: 12 of 10 tokens", got, want)
	}
}

func TestAllowedWaitsForASharedCheckpoint(t *testing.T) {
	s := newSharingBeside(t, keyed, "import", "mail")
	s.comes(nil)
	b := s.by[1]
	b.arrive("b", tokens(1))
	b.v.placeChanged(b.now)
	if b.p.buckets["b"].Allowed.Seq == 0 {
		t.Fatal("a limit of its own has not let the job start")
	}
	s.limit.p.Checkpoints.Noted.Stored = 0 // as of an owner that begins
	if n := len(b.start()); n > 0 {
		t.Errorf("a job starts before the first checkpoint of the limit's owner")
	}
}

func TestUseOfASharedLimitOwnedElsewhereCounts(t *testing.T) {
	s := newSharing(t, "import", "mail")
	s.comes(nil)
	b := s.by[0]
	b.arrive("a", tokens(1))
	b.v.Advance(b.now, pace.Never)
	r := b.out.Starts[0]
	b.out.Starts = nil
	r.Decide(atOnce(r), nil)
	h := s.limit.p.Surrender(s.limit.now)
	b.end(r, record.Outcome{Kind: record.OutcomeDone, Used: map[string]int64{"tokens": 10}})
	s.comes(&inheritance.State{Handover: h})
	b.arrive("a", tokens(1))
	if got := s.until(9 * second); got != "" {
		t.Errorf("%s starts though 10 of 10 are used", got)
	}
}

// Others wait once for a job that they let through and that something else holds back.
func TestAHeldPolicyDelaysNoOther(t *testing.T) {
	s := newSharing(t, "import", "mail")
	s.comes(nil)
	second := newSharing(t, "import")
	second.comes(nil)
	costly, mail := s.by[0], s.by[1]
	costly.v.ShareLimits([]SharedLimit{{"account", s.limit.v}, {"second", second.limit.v}})
	mail.arrive("b", tokens(5))
	s.until(ms)
	costly.arrive("a", tokens(10))
	s.until(6 * time.Second)
	mail.arrive("b", tokens(4))
	s.until(11 * time.Second)
	second.limit.p.Quiesce()
	for range 3 {
		mail.arrive("b", tokens(1))
	}
	if got := s.until(17 * time.Second); strings.Count(got, "mail/b@16.05s") != 3 {
		t.Errorf("%q, want three of mail at 16.05s", got)
	}
}

func TestAClaimIsATurnUnderASharedLimit(t *testing.T) {
	s := newSharing(t, "import", "mail")
	s.comes(nil)
	far := s.by[1]
	far.v.Crew.Local = false
	for range 9 {
		s.by[0].arrive("a", tokens(2))
		far.arrive("b", tokens(2))
	}
	for i := range 3 {
		far.v.Crew.Claim(crew.Claim{Worker: fmt.Sprint("w", i), Until: far.now.Add(crew.HoldFor)})
	}
	if n := strings.Count(s.until(ms), "mail/b@"); n < 2 {
		t.Errorf("%d of five starts are of the policy whose workers are elsewhere", n)
	}
}

func TestAPolicyThatJoinsALineStartsOver(t *testing.T) {
	a, b := newValveBench(t, leaky("a", "1/s")), newValveBench(t, leaky("b", "1/s"))
	a.v.taken = 100
	Join([]*Valve{a.v, b.v})
	if a.v.taken != b.v.taken || b.v.line != a.v.line || !a.v.Leads() || b.v.Leads() {
		t.Errorf("they have taken %v and %v turns", a.v.taken, b.v.taken)
	}
	if Join([]*Valve{b.v}); !b.v.Leads() {
		t.Error("it does not leave")
	}
}

func TestTheRemainderOfASharedLimitIsReportedByItsOwner(t *testing.T) {
	s := newSharing(t, "import", "mail")
	if got := s.by[0].v.View(s.by[0].now).LeftOfAll(); got != nil {
		t.Errorf("%s is left, says who does not know", told(got))
	}
	s.comes(nil)
	s.limit.p.Checkpoints.Cost("", 1)
	s.by[0].arrive("a", tokens(3))
	s.until(second)
	for _, b := range s.by {
		if got := told(b.view().LeftOfAll()); got != "account 7/10" {
			t.Errorf("%s is left", got)
		}
	}
}

func TestPoliciesTakeTurnsForScarceSlots(t *testing.T) {
	weighed := func(name string, weight int64) *valveBench {
		p := leaky(name, "1000/s")
		p.Weight = weight
		return newValveBench(t, p)
	}
	a, b := weighed("a", 3), weighed("b", 1)
	slots := &crew.Slots{Most: 2}
	a.v.Crew.Slots, b.v.Crew.Slots = slots, slots
	Join([]*Valve{a.v, b.v})
	var order strings.Builder
	running := map[*valveBench][]Run{}
	turn := func() {
		a.v.Advance(a.now, pace.Never)
		for _, v := range []*valveBench{a, b} {
			for _, r := range v.start() {
				order.WriteString(v.v.Policy.Name)
				running[v] = append(running[v], r)
			}
		}
		if n := len(running[a]) + len(running[b]); n > 2 || n != slots.Used {
			t.Fatalf("%d jobs run, and %d slots are used", n, slots.Used)
		}
	}
	end := func(v *valveBench) {
		v.done(running[v][0])
		running[v] = running[v][1:]
	}
	for i := range 12 {
		a.arrive(fmt.Sprint(i))
		b.arrive(fmt.Sprint(i))
	}
	for range 16 {
		turn()
		if len(running[a]) > 0 {
			end(a)
		} else {
			end(b)
		}
		a.now, b.now = a.now.Add(second), b.now.Add(second)
	}
	// a has no more than twelve jobs: then b has all slots.
	if got, want := order.String(), "abaaabaaabaaabaab"; got != want {
		t.Errorf("they start in the order %s, want %s", got, want)
	}
}
