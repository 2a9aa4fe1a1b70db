package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// asked is a loop for questions about one partition, without NATS.
type asked struct {
	t       *testing.T
	core    *Core
	part    *partition
	now     pace.Instant
	answers []job.Answer
}

// crowded owns a partition with a job for each of so many keys.
func crowded(t *testing.T, p policy.Policy, keys int) *asked {
	p.Partitions = 1
	c := coreBench(t, p)
	part, now := takeOver(c, Opened{})
	jobs := make([]job.Arrived, keys)
	for i := range jobs {
		jobs[i] = job.Arrived{
			Seq: uint64(i + 1), Key: job.Key(fmt.Sprintf("k%d", i)), Cost: 1, Stored: originWall,
			Body: []byte{},
		}
	}
	c.Handle(Arrived{part.Partition, part.Epoch, jobs}, now)
	return &asked{t: t, core: c, part: part, now: now}
}

func (a *asked) ask(q job.Question) {
	a.core.Handle(Asked{a.part.Partition, q, func(answer job.Answer) {
		a.answers = append(a.answers, answer)
	}}, a.now)
}

// arrive has jobs of a key arrive, from one sequence to before another.
func (a *asked) arrive(key job.Key, from, to uint64) {
	var arrived []job.Arrived
	for seq := from; seq < to; seq++ {
		arrived = append(arrived,
			job.Arrived{Seq: seq, Key: key, Cost: 1, Stored: originWall, Body: []byte{}})
	}
	a.core.Handle(Arrived{a.part.Partition, a.part.Epoch, arrived}, a.now)
}

// aside does what can be done elsewhere.
func (a *asked) aside() {
	for _, x := range a.core.out.asides {
		x.Work()
		a.core.Handle(Worked{x}, a.now)
	}
}

// turns lets the loop work on the questions until they are answered, each piece of work taking 50
// µs, and returns how many turns of the loop that took. What the core wants is done in between.
func (a *asked) turns() (n int) {
	for len(a.core.questions.waiting) > 0 {
		began, readings := a.now, 0
		a.core.Ponder(func() pace.Instant {
			readings++
			a.now = a.now.Add(50 * time.Microsecond)
			return a.now
		})
		if took := a.now.Since(began); took > questionsFor+100*time.Microsecond {
			a.t.Fatalf("questions kept the loop for %v, in %d pieces of work", took, readings-1)
		}
		a.core.advance(a.now)
		answerPuts(a.core, a.now)
		if !a.core.Open(a.now) {
			a.t.Fatal("the lease has ended meanwhile")
		}
		a.aside()
		a.core.out = actions{}
		n++
	}
	return n
}

// A list of all buckets, many expected starts and a purge each take many turns of the loop, in
// which jobs start and the lease is renewed.
func TestQuestionsLeaveTheLoopItsTime(t *testing.T) {
	const keys = 40_000
	for name, c := range map[string]struct {
		ask   func(a *asked)
		least int // turns
		check func(a *asked)
	}{
		"a list": {func(a *asked) {
			a.ask(job.Question{Op: job.OpBuckets, Limit: 500})
		}, keys / walkPiece / 11, func(a *asked) {
			answer := a.answers[0]
			if answer.Total < keys-100 || len(answer.Buckets) != 500 ||
				answer.Buckets[0].ExpectMS == nil {
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
			if b := a.answers[0].Bucket; b == nil || b.Depth != 1 || b.ExpectMS == nil {
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

// A purge of many jobs drops some in a turn, and no job that comes meanwhile.
func TestAPurgeLeavesTheLoopItsTime(t *testing.T) {
	a := crowded(t, leaky("api", "1/h"), 1)
	const jobs = 10_000
	a.arrive("k0", 2, jobs+2)
	a.core.advance(a.now)
	a.ask(job.Question{Op: job.OpPurge, Key: "k0"})
	a.core.Ponder(func() pace.Instant { return a.now })
	if held := len(a.part.buckets["k0"].ready); held < jobs-2*purgePiece ||
		!a.core.questions.behind {
		t.Errorf("after a turn %d of %d jobs are left", held, jobs)
	}
	a.arrive("k0", jobs+2, jobs+5)
	a.turns()
	if len(a.answers) != 1 || a.answers[0].Removed < jobs {
		t.Errorf("answered %+v", a.answers)
	}
	if left := len(a.part.buckets["k0"].ready); left != 3 {
		t.Errorf("%d jobs are left, want the three that came meanwhile", left)
	}
}

// A job whose start depends on a person, a target or a busy worker is answered in the turn that
// asks, with its position and the depth of its bucket: nobody waits for what nobody can tell.
func TestAJobWhoseStartNobodyCanTellIsAnsweredAtOnce(t *testing.T) {
	for name, hold := range map[string]func(a *asked, v *valve){
		"paused by an operator": func(a *asked, v *valve) {
			v.setOverride("k0", policy.Override{Paused: true}, a.now)
			v.setOverride("k1", policy.Override{Paused: true}, a.now)
		},
		"no worker here": func(_ *asked, v *valve) { v.local, v.claims.declined = false, true },
		"a target down":  func(_ *asked, v *valve) { v.breaker.open = true },
	} {
		t.Run(name, func(t *testing.T) {
			a := crowded(t, leaky("api", "10/s"), 2)
			a.arrive("k1", 3, 6)
			hold(a, a.core.valves["api"])
			a.ask(job.Question{Op: job.OpExpect, Jobs: []uint64{1, 5}})
			a.core.Ponder(func() pace.Instant { return a.now })
			want := []job.ExpectedStart{{Seq: 1, Depth: 1}, {Seq: 5, Position: 3, Depth: 4}}
			if len(a.answers) != 1 || !slices.Equal(a.answers[0].Starts, want) {
				t.Errorf("answered %+v, want at once %+v", a.answers, want)
			}
		})
	}
}

// A job that has not arrived is waited for, and answered in the turn in which it does. While its
// partition is being opened it is not, for that takes as long as reading the whole backlog.
func TestAnAnswerWaitsForAJobThatHasNotArrived(t *testing.T) {
	a := crowded(t, leaky("api", "10/s"), 1)
	ponder := func() { a.core.Ponder(func() pace.Instant { return a.now }) }
	a.ask(job.Question{Op: job.OpExpect, Jobs: []uint64{2}})
	if ponder(); len(a.answers) != 0 {
		t.Fatalf("answered %+v about a job that has not arrived", a.answers)
	}
	a.arrive("k0", 2, 3)
	if ponder(); len(a.answers) != 1 || a.answers[0].Starts[0].Depth != 2 {
		t.Fatalf("answered %+v after it arrived", a.answers)
	}
	a.part.state = partitionOpening
	a.ask(job.Question{Op: job.OpExpect, Jobs: []uint64{3}})
	if ponder(); len(a.answers) != 2 || a.answers[1].Starts[0].Known {
		t.Errorf("answered %+v while the partition is being opened", a.answers)
	}
}

// So many questions wait, and another is refused.
func TestSoManyQuestionsWait(t *testing.T) {
	a := crowded(t, leaky("api", "10/s"), 1)
	for range mostQuestions {
		a.ask(job.Question{Op: job.OpExpect, Jobs: []uint64{1000}}) // has not arrived
	}
	a.ask(job.Question{Op: job.OpBuckets, Limit: 1})
	if len(a.answers) != 1 || a.answers[0].Error == "" {
		t.Errorf("answered %+v", a.answers)
	}
	if due := a.core.questions.due(); due != a.now.Add(askPatience) {
		t.Errorf("the questions are due in %v", due.Since(a.now))
	}
	a.now = a.now.Add(askPatience)
	a.turns()
	if len(a.answers) != 1+mostQuestions || a.answers[1].Starts[0].Known {
		t.Errorf("%d answers: %+v", len(a.answers), a.answers[1])
	}
}

// However many lists are asked for at once, only a few are in the making, for each of those holds
// all buckets.
func TestFewListsAreInTheMaking(t *testing.T) {
	const keys = 10_000
	a := crowded(t, leaky("api", "10/s"), keys)
	for range mostQuestions {
		a.ask(job.Question{Op: job.OpBuckets, Limit: 1})
	}
	most := 0
	for len(a.core.questions.waiting) > 0 {
		readings := pace.Instant(0)
		a.core.Ponder(func() pace.Instant {
			most = max(most, len(a.part.walks))
			readings++
			return a.now.Add(time.Duration(readings) * 50 * time.Microsecond)
		})
		a.aside()
		a.core.out.asides = nil
	}
	if most > mostWalks {
		t.Errorf("%d lists were in the making", most)
	}
	if len(a.answers) != mostQuestions || a.answers[mostQuestions-1].Total < keys-100 {
		t.Errorf("%d answers, the last of %d buckets", len(a.answers),
			a.answers[len(a.answers)-1].Total)
	}
}
