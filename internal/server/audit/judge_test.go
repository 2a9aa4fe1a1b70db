package audit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

type scene struct {
	*Judge
	policy policy.Policy
	number map[string]uint64
	jobs   int
}

var began = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func newScene(change func(*policy.Policy)) *scene {
	p := policy.Policy{Name: "api", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
		Outflow: algorithms.Rate{Count: 10, Per: time.Second}, Capacity: 1000}}
	if change != nil {
		change(&p)
	}
	s := &scene{Judge: NewJudge(100_000), policy: p.WithDefaults(), number: map[string]uint64{}}
	s.Follow(inforce.Entries{"api": {Policy: s.policy}}, began)
	return s
}

func (s *scene) tell(from string, e queue.Event, at time.Time) []Breach {
	s.number[from]++
	e.From, e.N = from, s.number[from]
	return s.Heard("api", e, at.Add(time.Millisecond))
}

func (s *scene) start(from string, key queue.Key, after time.Duration) []Breach {
	s.jobs++
	return s.tell(from, queue.Event{Type: queue.EventStarted, Job: fmt.Sprint("api:", s.jobs),
		Key: key, At: began.Add(after)}, began.Add(after))
}

func TestABrokenLimitNamesItsStarts(t *testing.T) {
	s := newScene(nil)
	for i := range 50 {
		if b := s.start("d", "k", time.Duration(i)*100*time.Millisecond); len(b) > 0 {
			t.Fatalf("a bucket at its rate: %v", b)
		}
	}
	broken := s.start("d", "k", 4950*time.Millisecond)
	if len(broken) != 1 || broken[0].Window.Limit != "outflow" || broken[0].Key != "k" ||
		broken[0].Starts[len(broken[0].Starts)-1] != "api:51" || broken[0].Window.Units < 12 {
		t.Fatalf("one start too many: %v", broken)
	}
	if b := s.start("d", "other", 4951*time.Millisecond); len(b) > 0 {
		t.Errorf("another bucket's: %v", b)
	}
	if f := s.Figures(began.Add(5 * time.Second)); len(f) != 1 || f[0].Broken != 1 ||
		f[0].Worst <= 1 || f[0].Incomplete {
		t.Errorf("figures %+v", f)
	}
}

func TestWindowsOfOneLengthAreShownOnce(t *testing.T) {
	s := newScene(nil)
	for i := range 5 {
		s.start("d", "k", time.Duration(i)*100*time.Millisecond)
	}
	if b, _ := s.Bucket("api", "k", began.Add(time.Second)); len(b.Worst) != 1 ||
		b.Worst[0].Units != 5 || time.Duration(b.Worst[0].Length) != time.Second {
		t.Errorf("worst %+v", b.Worst)
	}
}

func TestLostEventsMakeFiguresIncomplete(t *testing.T) {
	s := newScene(nil)
	s.start("d", "k", 0)
	s.start("d", "k", time.Second)
	at := began.Add(2 * time.Second)
	if b, known := s.Bucket("api", "k", at); !known || b.Incomplete || len(b.Worst) != 1 {
		t.Fatalf("nothing is lost: %+v", b)
	}
	s.number["d"]++
	s.start("d", "other", 2*time.Second)
	if b, _ := s.Bucket("api", "k", at); !b.Incomplete {
		t.Errorf("an event is lost: %+v", b)
	}
	if f := s.Figures(at); !f[0].Incomplete {
		t.Errorf("an event is lost: %+v", f)
	}
	if b, _ := s.Bucket("api", "k", at.Add(3*time.Hour)); b.Incomplete || len(b.Worst) != 0 {
		t.Errorf("hours later: %+v", b)
	}
}

func TestADrainerThatTakesOverMakesABucketIncomplete(t *testing.T) {
	s := newScene(nil)
	s.start("a", "k", 0)
	s.start("b", "other", 0)
	s.start("b", "k", 100*time.Millisecond)
	if b, _ := s.Bucket("api", "k", began); !b.Incomplete {
		t.Errorf("the last events of the drainer before may be lost: %+v", b)
	}
	if b, _ := s.Bucket("api", "other", began); b.Incomplete {
		t.Errorf("another bucket: %+v", b)
	}
}

func TestStartsAfterAChangeAreNotJudgedUntilAllFollowIt(t *testing.T) {
	s := newScene(nil)
	s.start("d", "k", 0)
	slower := s.policy
	slower.Outflow.Count = 1
	s.Follow(inforce.Entries{"api": {Policy: slower}}, began.Add(time.Second))
	for i := range 20 {
		if b := s.start("d", "k", time.Second+time.Duration(i)*100*time.Millisecond); len(b) > 0 {
			t.Fatalf("too early: %v", b)
		}
	}
	s.start("d", "k", 7*time.Second)
	s.start("d", "k", 7100*time.Millisecond)
	if b := s.start("d", "k", 7200*time.Millisecond); len(b) != 1 {
		t.Errorf("the limit of now: %v", b)
	}
	fast := algorithms.Rate{Count: 100, Per: time.Second}
	s.Override("api", "k", inforce.Override{Outflow: &fast}, began.Add(8*time.Second))
	for i := range 100 {
		after := 14*time.Second + time.Duration(i)*10*time.Millisecond
		if b := s.start("d", "k", after); len(b) > 0 {
			t.Fatalf("the key's own limit: %v", b)
		}
	}
}

func TestCostsAreSettled(t *testing.T) {
	s := newScene(func(p *policy.Policy) {
		p.Outflow = algorithms.Rate{}
		p.Limits = policy.Limits{{Name: "tokens", Cost: "tokens", Key: "{key}", Rule: policy.Rule{
			Algorithm: policy.SlidingLog, Limit: 100, Window: policy.Duration(time.Minute)}}}
	})
	run := func(id string, after time.Duration, estimated, used int64) []Breach {
		at := began.Add(after)
		broken := s.tell("d", queue.Event{Type: queue.EventStarted, Job: id, Key: "k", At: at,
			Costs: map[string]int64{"tokens": estimated}}, at)
		s.tell("d", queue.Event{Type: queue.EventDone, Job: id, Key: "k",
			Used: map[string]int64{"tokens": used}}, at)
		return broken
	}
	for i, broken := range [][]Breach{
		run("api:1", 0, 90, 10), run("api:2", time.Second, 90, 40),
		run("api:3", 2*time.Second, 50, 50),
	} {
		if len(broken) > 0 {
			t.Errorf("start %d: %v", i, broken)
		}
	}
	if b := run("api:4", 3*time.Second, 1, 1); len(b) != 1 || b[0].Window.Units != 101 {
		t.Errorf("all is used up: %v", b)
	}
}

func TestPoliciesThatShareALimitAreCountedTogether(t *testing.T) {
	j, set := NewJudge(1000), inforce.Entries{}
	for _, name := range []string{"mail", "push"} {
		set[name] = &inforce.Entry{Policy: policy.Policy{Name: name, Rule: policy.Rule{
			Algorithm: policy.LeakingBucket, Capacity: 1000},
			Limits: policy.Limits{{Name: "account", Shared: "account", Key: policy.KeyGlobal,
				Cost: "tokens", Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 100,
					Window: policy.Duration(time.Minute)}}}}.WithDefaults()}
	}
	j.Follow(set, began)
	numbers := map[string]uint64{}
	run := func(name string, seq uint64, after time.Duration, estimated, used int64) []Breach {
		numbers[name] += 2
		at := began.Add(after)
		e := queue.Event{Type: queue.EventStarted, Job: job.ID(name, seq), Key: "k", From: "d",
			N: numbers[name] - 1, At: at, Costs: map[string]int64{"tokens": estimated}}
		broken := j.Heard(name, e, at)
		e.Type, e.N, e.Used = queue.EventDone, numbers[name], map[string]int64{"tokens": used}
		return append(broken, j.Heard(name, e, at)...)
	}
	for i, broken := range [][]Breach{
		run("mail", 1, 0, 90, 10), run("push", 1, 0, 90, 40), run("mail", 2, time.Second, 50, 50),
	} {
		if len(broken) > 0 {
			t.Errorf("start %d: %v", i, broken)
		}
	}
	at := began.Add(2 * time.Second)
	for name := range set {
		if b, _ := j.Bucket(name, "k", at); len(b.Worst) != 1 || b.Worst[0].Units != 100 ||
			b.Broken > 0 || b.Incomplete {
			t.Errorf("%s, while nothing is broken: %+v", name, b)
		}
	}
	broken := run("push", 2, 2*time.Second, 1, 1)
	if len(broken) != 1 || broken[0].Policy != "push" || broken[0].Window.Units != 101 ||
		!slices.Equal(broken[0].Starts, []string{"mail:1", "push:1", "mail:2", "push:2"}) {
		t.Errorf("one too many: %v", broken)
	}
	numbers["push"]++
	run("push", 3, 2*time.Minute, 1, 1)
	if b, _ := j.Bucket("mail", "k", at); !b.Incomplete || b.Broken != 1 {
		t.Errorf("an event of the other policy is lost: %+v", b)
	}
	for _, f := range j.Figures(at) {
		if !f.Incomplete || f.Limit != "account" {
			t.Errorf("an event of the other policy is lost: %+v", f)
		}
	}
	delete(set, "push")
	if j.Follow(set, at); len(j.shared) != 1 {
		t.Errorf("a policy is gone: %v", j.shared)
	}
	delete(set, "mail")
	if j.Follow(set, at); len(j.shared) != 0 {
		t.Errorf("all who shared the limit are gone: %v", j.shared)
	}
}

func TestAJudgeForgetsTheBucketThatIsIdleLongest(t *testing.T) {
	s := newScene(nil)
	s.most = 10 * (bucketSize + 10)
	for i := range 1000 {
		s.start("d", queue.Key(fmt.Sprint("k", i)), time.Duration(i)*time.Millisecond)
	}
	if n := len(s.policies["api"].buckets); n > 12 || s.held > s.most+bucketSize+10 {
		t.Errorf("%d buckets, %d starts", n, s.held)
	}
	if b, known := s.Bucket("api", "k999", began.Add(time.Second)); !known || !b.Incomplete {
		t.Errorf("the last: %+v", b)
	}
}
