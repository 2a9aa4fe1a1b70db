package valve

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

type asked struct {
	*valveBench
	qs      Questions
	answers []job.Answer
}

func crowded(t *testing.T, p policy.Policy, keys int) *asked {
	a := &asked{valveBench: newValveBench(t, p)}
	for i := range keys {
		a.arrive(fmt.Sprintf("k%d", i))
	}
	return a
}

func (a *asked) ask(q job.Question) {
	a.qs.Ask(a.p, q, func(answer job.Answer) { a.answers = append(a.answers, answer) }, a.now)
}

func (a *asked) arriveMany(key string, n int) {
	for range n {
		a.arrive(key)
	}
}

func (a *asked) ponder() { a.qs.Ponder(func() pace.Instant { return a.now }) }

// turns answers the questions in pieces of 50 µs, performs actions in between, and returns the
// number of iterations.
func (a *asked) turns() (n int) {
	for len(a.qs.waiting) > 0 {
		began, readings := a.now, 0
		a.qs.Ponder(func() pace.Instant {
			readings++
			a.now = a.now.Add(50 * time.Microsecond)
			return a.now
		})
		if took := a.now.Since(began); took > questionsFor+100*time.Microsecond {
			a.t.Fatalf("questions kept the loop for %v, in %d pieces of work", took, readings-1)
		}
		a.start()
		a.out.Reset()
		n++
	}
	return n
}

func TestQuestionsLeaveTheLoopItsTime(t *testing.T) {
	const keys = 40_000
	for name, c := range map[string]struct {
		ask   func(a *asked)
		least int
		check func(a *asked)
	}{
		"a list": {func(a *asked) {
			a.ask(job.Question{Op: job.OpBuckets, Limit: 500})
		}, keys / walkPiece / 11, func(a *asked) {
			answer := a.answers[0]
			if answer.Total < keys-100 || len(answer.Buckets) != 500 ||
				answer.Buckets[0].ETAMS == nil {
				t.Errorf("%d buckets of %d: %+v", len(answer.Buckets), answer.Total,
					answer.Buckets[0])
			}
		}},
		"expected starts": {func(a *asked) {
			for i := range 30 {
				var jobs []uint64
				for k := range 100 {
					jobs = append(jobs, uint64(keys-100*i-k))
				}
				a.ask(job.Question{Op: job.OpExpect, Jobs: jobs})
			}
		}, keys / walkPiece / 11, func(a *asked) {
			for _, answer := range a.answers {
				if len(answer.Starts) != 100 || !answer.Starts[0].Known ||
					answer.Starts[0].DelayMS < 1000 {
					t.Errorf("%+v", answer)
				}
			}
		}},
		"a bucket": {func(a *asked) {
			a.ask(job.Question{Op: job.OpBucket, Key: "k7"})
		}, keys / walkPiece / 11, func(a *asked) {
			if b := a.answers[0].Bucket; b == nil || b.Depth != 1 || b.ETAMS == nil {
				t.Errorf("%+v", a.answers[0])
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := crowded(t, total("10/s"), keys)
			c.ask(a)
			if n := a.turns(); n < c.least {
				t.Errorf("answered in %d turns, want at least %d", n, c.least)
			}
			if len(a.answers) == 0 {
				t.Fatal("no answer")
			}
			c.check(a)
		})
	}
}

func TestAPurgeLeavesTheLoopItsTime(t *testing.T) {
	a := crowded(t, leaky("api", "1/h"), 1)
	const jobs = 10_000
	a.arriveMany("k0", jobs)
	a.start()
	a.ask(job.Question{Op: job.OpPurge, Key: "k0"})
	a.ponder()
	if held := a.p.buckets["k0"].queue.Near(); held < jobs-2*purgePiece ||
		a.qs.Due() > a.now {
		t.Errorf("after a turn %d of %d jobs are left", held, jobs)
	}
	a.arriveMany("k0", 3)
	a.turns()
	if len(a.answers) != 1 || a.answers[0].Removed < jobs {
		t.Errorf("answered %+v", a.answers)
	}
	if left := a.p.buckets["k0"].queue.Near(); left != 3 {
		t.Errorf("%d jobs are left, want the three that came meanwhile", left)
	}
}

// Unacknowledged dropped jobs take memory, and the server's time: a large purge waits for their
// acknowledgements, and for as long again.
func TestAPurgeOfDeepJobsAwaitsItsAcknowledgements(t *testing.T) {
	a := crowded(t, leaky("api", "1/h"), 1)
	a.v.texts.memory.most = 1
	const jobs, took = 20 * deepPiece, 200 * purgePause
	a.arriveMany("k0", jobs)
	a.start()
	a.ask(job.Question{Op: job.OpPurge, Key: "k0"})
	for range took / purgePause {
		a.ponder()
		a.now = a.now.Add(purgePause)
	}
	if n := len(a.p.jobs); n < deepPiece || n > 2*deepPiece {
		t.Errorf("%d jobs that are dropped are in memory", n)
	}
	confirm := func() {
		for _, r := range a.out.Acks {
			a.p.Confirmed(r.Seq, a.now)
		}
		a.out.Acks = nil
	}
	confirm()
	a.ponder()
	if a.ponder(); len(a.out.Acks) > 0 {
		t.Errorf("%d jobs are dropped at once after others", len(a.out.Acks))
	}
	a.now = a.now.Add(took)
	a.ponder()
	if a.ponder(); len(a.out.Acks) < deepPiece {
		t.Errorf("%d jobs are dropped after a pause", len(a.out.Acks))
	}
	last, removed, early := a.p.highest, 0, 0
	a.arriveMany("k0", 3)
	for step := 0; ; step++ {
		if len(a.answers) > 0 {
			some := a.answers[0]
			a.answers = nil
			if removed += some.Removed; some.More == 0 {
				break
			}
			if early++; some.More != last {
				t.Fatalf("goes on until %d, not %d", some.More, last)
			}
			a.ask(job.Question{Op: job.OpPurge, Key: "k0", Jobs: []uint64{some.More}})
		}
		if step%200 == 199 {
			confirm()
		}
		a.ponder()
		a.now = a.now.Add(purgePause)
	}
	if early == 0 {
		t.Error("the asker had to wait for all")
	}
	if left := a.p.buckets["k0"].queue.Len(); left != 3 || removed < jobs || removed > jobs+1 {
		t.Errorf("%d jobs were dropped, and %d are left", removed, left)
	}
}

func TestAnUnknownStartIsAnsweredAtOnce(t *testing.T) {
	for name, hold := range map[string]func(a *asked, v *Valve){
		"paused by an operator": func(a *asked, v *Valve) {
			v.SetOverride("k0", inforce.Override{Paused: true}, a.now)
			v.SetOverride("k1", inforce.Override{Paused: true}, a.now)
		},
		"no worker here": func(_ *asked, v *Valve) { v.Crew.Local, v.Crew.Declined = false, true },
		"a target down":  func(_ *asked, v *Valve) { v.health.All.Open = true },
	} {
		t.Run(name, func(t *testing.T) {
			a := crowded(t, leaky("api", "10/s"), 2)
			a.arriveMany("k1", 3)
			hold(a, a.v)
			a.ask(job.Question{Op: job.OpExpect, Jobs: []uint64{1, 5}})
			a.ponder()
			want := []job.ExpectedStart{{Seq: 1, Depth: 1}, {Seq: 5, Position: 3, Depth: 4}}
			if len(a.answers) != 1 || !slices.Equal(a.answers[0].Starts, want) {
				t.Errorf("answered %+v, want at once %+v", a.answers, want)
			}
		})
	}
}

// A question waits for a job that has not arrived, but not for the opening of its partition, which
// reads the whole backlog.
func TestAnAnswerWaitsForAJobThatHasNotArrived(t *testing.T) {
	a := crowded(t, leaky("api", "10/s"), 1)
	a.ask(job.Question{Op: job.OpExpect, Jobs: []uint64{2}})
	if a.ponder(); len(a.answers) != 0 {
		t.Fatalf("answered %+v about a job that has not arrived", a.answers)
	}
	a.arrive("k0")
	if a.ponder(); len(a.answers) != 1 || a.answers[0].Starts[0].Depth != 2 {
		t.Fatalf("answered %+v after it arrived", a.answers)
	}
	a.p.state = partitionOpening
	a.ask(job.Question{Op: job.OpExpect, Jobs: []uint64{3}})
	if a.ponder(); len(a.answers) != 2 || a.answers[1].Starts[0].Known {
		t.Errorf("answered %+v while the partition is being opened", a.answers)
	}
}

func TestPendingQuestionsAreBounded(t *testing.T) {
	a := crowded(t, leaky("api", "10/s"), 1)
	for range mostQuestions {
		a.ask(job.Question{Op: job.OpExpect, Jobs: []uint64{1000}})
	}
	a.ask(job.Question{Op: job.OpBuckets, Limit: 1})
	if len(a.answers) != 1 || a.answers[0].Error == "" {
		t.Errorf("answered %+v", a.answers)
	}
	if due := a.qs.Due(); due != a.now.Add(askPatience) {
		t.Errorf("the questions are due in %v", due.Since(a.now))
	}
	a.now = a.now.Add(askPatience)
	a.turns()
	if len(a.answers) != 1+mostQuestions || a.answers[1].Starts[0].Known {
		t.Errorf("%d answers: %+v", len(a.answers), a.answers[1])
	}
}

// Each list in progress holds all buckets.
func TestConcurrentListsAreBounded(t *testing.T) {
	const keys = 10_000
	a := crowded(t, leaky("api", "10/s"), keys)
	for range mostQuestions {
		a.ask(job.Question{Op: job.OpBuckets, Limit: 1})
	}
	most := 0
	for len(a.qs.waiting) > 0 {
		readings := pace.Instant(0)
		a.qs.Ponder(func() pace.Instant {
			most = max(most, a.p.list.Walks())
			readings++
			return a.now.Add(time.Duration(readings) * 50 * time.Microsecond)
		})
	}
	if most > mostWalks {
		t.Errorf("%d lists were in the making", most)
	}
	if len(a.answers) != mostQuestions || a.answers[mostQuestions-1].Total < keys-100 {
		t.Errorf("%d answers, the last of %d buckets", len(a.answers),
			a.answers[len(a.answers)-1].Total)
	}
}

// Counting the jobs ahead takes time, so a page of jobs takes many iterations.
func TestManyJobsAreLookedAtOneByOne(t *testing.T) {
	a := crowded(t, leaky("api", "1/h"), 0)
	a.arriveMany("a", 300)
	a.start()
	seqs := []uint64{9999}
	for seq := uint64(1); seq <= 300; seq++ {
		seqs = append(seqs, seq)
	}
	a.ask(job.Question{Op: job.OpJobs, Jobs: seqs})
	if turns, least := a.turns(), 300*50/600; turns < least {
		t.Errorf("%d turns, want at least %d", turns, least)
	}
	states := a.answers[0].States
	if len(states) != 300 {
		t.Fatalf("%d states", len(states))
	}
	if states[0].State != job.Running || states[0].Position != nil {
		t.Errorf("the first is %+v", states[0])
	}
	last := states[299]
	if last.Seq != 300 || last.Position == nil || *last.Position != 298 {
		t.Errorf("the last is %+v", last)
	}
	a.ask(job.Question{Op: job.OpJobs, Jobs: make([]uint64, job.MaxExpected+1)})
	if len(a.answers) != 2 || a.answers[1].Error == "" {
		t.Errorf("too many jobs are answered with %+v", a.answers[1:])
	}
}
