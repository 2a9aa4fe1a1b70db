package audit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

func arriving(limits ...policy.Limit) func(*policy.Policy) {
	return func(p *policy.Policy) {
		p.Outflow, p.Limits = algorithms.Rate{}, limits
		for i := range p.Limits {
			l := &p.Limits[i]
			l.Name = "target"
			if l.CountFrom == "" {
				l.CountFrom = policy.CountFromAnswer
			}
			if l.Algorithm == "" {
				l.Algorithm, l.Limit = policy.SlidingLog, 2
				l.Window = policy.Duration(time.Second)
			}
		}
	}
}

// run is a run of key k: begun, answered and ended so many milliseconds after the beginning.
type run struct {
	job                int
	begun, answer, end int
	cost, used         int64
	unsent             bool
}

func (r run) events() (begins, ends queue.Event) {
	at := began.Add(time.Duration(r.begun) * time.Millisecond)
	begins = queue.Event{Type: queue.EventStarted, Job: fmt.Sprint("api:", r.job), Key: "k", At: at}
	ends = queue.Event{Type: queue.EventDone, Job: begins.Job, Key: "k",
		DurationMS: int64(r.end - r.begun)}
	if r.cost > 0 {
		begins.Costs = map[string]int64{"tokens": r.cost}
		ends.Used = map[string]int64{"tokens": r.used}
	}
	if !r.unsent {
		ends.Started, ends.AnswerMS = at, int64(r.answer-r.begun)
	}
	return begins, ends
}

// whole tells both events of a run.
func (s *scene) whole(from string, r run) []Breach {
	begins, ends := r.events()
	broken := s.tell(from, begins, begins.At)
	return append(broken, s.tell(from, ends, begins.At)...)
}

func TestOpenRunsCountWithThoseAnsweredInTheWindow(t *testing.T) {
	for name, l := range map[string]policy.Limit{"key": {Key: "{key}"},
		"all keys": {Key: policy.KeyGlobal}, "shared": {Key: policy.KeyGlobal, Shared: "account"}} {
		s := newScene(arriving(l))
		for _, r := range []run{
			{job: 1, begun: 0, answer: 100, end: 900}, {job: 2, begun: 10, answer: 1500, end: 1600},
			{job: 3, begun: 1150, answer: 1160, end: 1200}, // the first counted until 1100
		} {
			if broken := s.whole("d", r); len(broken) > 0 {
				t.Fatalf("%s: job %d: %v", name, r.job, broken)
			}
		}
		// Two starts in any second, but the second job was open.
		broken := s.whole("d", run{job: 4, begun: 1250, answer: 1300, end: 1400})
		if len(broken) != 1 || broken[0].Window.Units != 3 || broken[0].Window.Limit != "target" ||
			!slices.Equal(broken[0].Starts, []string{"api:2", "api:3", "api:4"}) {
			t.Errorf("%s: a start too many: %v", name, broken)
		}
		if b, _ := s.Bucket("api", "k", began); name == "key" && b.Broken != 1 {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

// Starts that keep a rate may be too many at the target, if earlier ones are still open.
func TestOpenRunsCountForARateToo(t *testing.T) {
	s := newScene(arriving(policy.Limit{Key: "{key}", Rule: policy.Rule{Capacity: 2,
		Algorithm: policy.TokenBucket, Refill: algorithms.Rate{Count: 2, Per: time.Second}}}))
	for i, begun := range []int{0, 0, 500, 1000} {
		if b := s.whole("d", run{job: i, begun: begun, answer: 3000, end: 3000}); len(b) > 0 {
			t.Fatalf("four may be open or refilled in a second: %v", b)
		}
	}
	if b := s.whole("d", run{job: 5, begun: 1500, answer: 3000, end: 3000}); len(b) != 1 ||
		b[0].Window.Units != 5 || b[0].Window.Most != 4 {
		t.Errorf("five are open: %v", b)
	}
}

func TestAWindowOfTheClockCountsTheRunsOpenInIt(t *testing.T) {
	s := newScene(arriving(policy.Limit{Key: "{key}", Rule: policy.Rule{Limit: 2,
		Algorithm: policy.FixedWindow, Window: policy.Duration(time.Second)}}))
	for _, r := range []run{{job: 1, begun: 100, answer: 950, end: 950},
		{job: 2, begun: 900, answer: 1100, end: 1100},
		{job: 3, begun: 1200, answer: 1300, end: 1300},
	} {
		if broken := s.whole("d", r); len(broken) > 0 {
			t.Fatalf("job %d: %v", r.job, broken)
		}
	}
	if b := s.whole("d", run{job: 4, begun: 1400, answer: 1450, end: 1450}); len(b) != 1 {
		t.Errorf("the second was answered in the window of the third and fourth: %v", b)
	}
}

// A unit that counts from the end is open until then. Of an estimate and the usage the lesser one
// certainly counted.
func TestUsageCountsFromTheEnd(t *testing.T) {
	s := newScene(arriving(policy.Limit{Key: "{key}", Cost: "tokens", CountFrom: "end",
		Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 100,
			Window: policy.Duration(time.Second)}}))
	for _, r := range []run{{job: 1, begun: 0, answer: 10, end: 500, cost: 90, used: 40},
		{job: 2, begun: 600, answer: 610, end: 700, cost: 30, used: 80},
		{job: 3, begun: 1300, answer: 1310, end: 1320, cost: 30, used: 30}} {
		if broken := s.whole("d", r); len(broken) > 0 {
			t.Fatalf("job %d: %v", r.job, broken)
		}
	}
	if b := s.whole("d", run{job: 4, begun: 1400, answer: 1410, end: 1420, cost: 1, used: 1}); len(
		b) != 1 || b[0].Window.Units != 101 {
		t.Errorf("the first counts until 1500: %v", b)
	}
}

func TestOnlyRunsThatAreCertainlyOpenCount(t *testing.T) {
	open := run{job: 2, begun: 10, answer: 1500, end: 1600}
	for name, tell := range map[string]func(*scene){
		"unsent": func(s *scene) {
			unsent := open
			unsent.unsent = true
			s.whole("d", unsent)
		},
		"no end": func(s *scene) {
			begins, _ := open.events()
			s.tell("d", begins, began)
		},
		"no start": func(s *scene) {
			_, ends := open.events()
			s.tell("d", ends, began)
		},
		"another process": func(s *scene) { s.whole("other", open) },
		"a run of the process before": func(s *scene) {
			begins, ends := open.events()
			s.tell("other", begins, begins.At)
			s.whole("d", run{job: 9, begun: 20, answer: 30, end: 40})
			s.tell("other", ends, begins.At)
		},
		"the end of an earlier attempt": func(s *scene) {
			begins, _ := open.events()
			_, ends := open.events()
			ends.Started = ends.Started.Add(-time.Minute)
			s.tell("d", begins, began)
			s.tell("d", ends, began)
		},
		"an answer that a clock may have dated early": func(s *scene) {
			s.whole("d", run{job: 2, begun: 10, answer: 259, end: 300})
		},
	} {
		s := newScene(arriving(policy.Limit{Key: "{key}"}))
		tell(s)
		for i, at := range []int{1250, 1255} {
			r := run{job: 3 + i, begun: at, answer: at + 50, end: at + 60}
			if broken := s.whole("d", r); len(broken) > 0 {
				t.Errorf("%s: %v", name, broken)
			}
		}
	}
}

// model starts jobs of a bucket under a limit of most in a second, and returns their events.
func model(draw *rand.Rand, most int, fromStart bool) []queue.Event {
	type counted struct{ decided, until int }
	var open []counted
	var all []queue.Event
	for now, seq := 0, 1; seq <= 200; now += draw.IntN(30) {
		n := 0
		for _, c := range open {
			if c.decided <= now && now < c.until {
				n++
			}
		}
		if n >= most {
			continue
		}
		r := run{job: seq, begun: now + draw.IntN(2)*draw.IntN(300), unsent: draw.IntN(10) == 0}
		r.answer = r.begun + draw.IntN(2)*draw.IntN(1500) + 1
		r.end = r.answer + draw.IntN(200)
		c := counted{now, r.answer + 1000}
		switch {
		case fromStart:
			c.until = r.begun + 1000
		case r.unsent:
			c.until = r.end
		}
		open = append(open, c)
		seq++
		begins, ends := r.events()
		begins.Accepted, ends.Accepted = begins.At, began.Add(time.Duration(r.end)*time.Millisecond)
		all = append(all, begins, ends)
	}
	slices.SortStableFunc(all, func(a, b queue.Event) int { return a.Accepted.Compare(b.Accepted) })
	return all
}

func TestLossAndReorderingMakeNoBreach(t *testing.T) {
	seen := 0
	for seed := range uint64(200) {
		for _, wrong := range []bool{false, true} {
			draw := rand.New(rand.NewPCG(seed, 3))
			s := newScene(arriving(policy.Limit{Key: "{key}", Rule: policy.Rule{Limit: 8,
				Algorithm: policy.SlidingLog, Window: policy.Duration(time.Second)}}))
			told := model(draw, 8, wrong)
			for range draw.IntN(1000) {
				i := draw.IntN(len(told) - 20)
				j := i + draw.IntN(20)
				told[i], told[j] = told[j], told[i]
			}
			var broken []Breach
			for _, e := range told {
				if s.number["d"]++; !wrong && draw.IntN(10) == 0 {
					continue // lost
				}
				broken = append(broken, s.Heard("api", e, began)...)
			}
			if !wrong && len(broken) > 0 {
				t.Fatalf("seed %d: a false alarm: %v", seed, broken)
			}
			seen += min(1, len(broken))
		}
	}
	if seen < 150 {
		t.Errorf("a limit that counts from the start is told in %d of 200 runs", seen)
	}
}

// The fullest instant is that of a direct count, in whatever order runs are told.
func TestTheFullestInstantIsFound(t *testing.T) {
	for seed := range uint64(200) {
		draw := rand.New(rand.NewPCG(seed, 4))
		law := &openLaw{spec: spec{window: time.Second, most: 1}}
		var runs []start
		for seq := range uint64(60) {
			at := draw.Int64N(int64(9 * time.Second))
			runs = append(runs, start{at, seq, 1 + draw.Int64N(3),
				at + int64(time.Second) + draw.Int64N(int64(2*time.Second))})
		}
		var got, want int64
		for _, r := range runs {
			got = max(got, law.add(r).units)
			n := int64(0)
			for _, o := range runs {
				if o.at <= r.at && r.at < o.until {
					n += o.units
				}
			}
			want = max(want, n)
		}
		if got != want {
			t.Fatalf("seed %d: %d units, want %d", seed, got, want)
		}
	}
}

// Rates are judged by starts, but a request that was never sent gave its unit back.
func TestUnsentRequestsDoNotCountForARate(t *testing.T) {
	s := newScene(arriving(policy.Limit{Key: "{key}", Rule: policy.Rule{Window: 1, Capacity: 2,
		Algorithm: policy.TokenBucket, Refill: algorithms.Rate{Count: 1, Per: time.Minute}}}))
	for i := range 6 {
		r := run{job: i + 1, begun: i * 10, answer: i*10 + 1, end: i*10 + 2,
			unsent: i%4 > 0 && i < 4}
		if broken := s.whole("d", r); len(broken) > 0 != (i == 5) {
			t.Fatalf("start %d: %v", i, broken)
		}
	}
}

func TestIdleRunsAreForgotten(t *testing.T) {
	s := newScene(arriving(policy.Limit{Key: "{key}"}))
	for i := range 100 {
		s.whole("d", run{job: i + 1, begun: i * 1000, answer: i*1000 + 10, end: i*1000 + 20})
	}
	b := s.policies["api"].buckets[queue.Key("k")]
	if n := b.laws[0].size(); n > 13 || len(b.running) > 0 {
		t.Errorf("%d runs are remembered, %d run", n, len(b.running))
	}
}
