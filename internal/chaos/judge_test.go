//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const (
	ms = time.Millisecond
	s  = time.Second
)

var paced = bucket{"steady", "k1"}

// calm is a flawless history: a hundred jobs of one bucket at 8/s, and the last becomes a dead
// letter.
func calm() *history {
	h := &history{rules: rules(6), lease: 15 * s, left: map[string]int{}}
	h.lives = []life{{"drainer-0.1", 0, 100 * s, stopped}, {"drainer-1.1", 0, 100 * s, stopped}}
	for i := range 100 {
		job, name, at := fmt.Sprintf("steady:%d", i+1), fmt.Sprintf("steady/k1/%d",
			i), time.Duration(i)*125*ms+s
		h.submissions = append(h.submissions,
			submission{bucket: paced, name: name, job: job, answer: accepted,
				status: 202, sent: at - s, answered: at - s + ms})
		h.starts = append(h.starts, start{paced, job, 1, at, "drainer-0.1", false})
		h.runs = append(h.runs, run{name, job, 1, at + ms, at + 2*ms, 200})
	}
	h.runs[99].status = 422
	h.letters = []letter{{paced, "steady:100", "permanent", 1, 14 * s}}
	h.submissions = append(h.submissions,
		submission{bucket: paced, name: "refused", answer: refused, status: 429},
		submission{bucket: paced, name: "unheard", answer: unknown, status: 503})
	h.depths = []depth{{paced, 5 * s, 60}}
	h.starts = append(h.starts, start{paced, "steady:call", 1, 15 * s, "drainer-0.1", false})
	h.requests = []request{{paced, 15 * s}}
	h.calls = []call{{bucket: paced, over: "nats", sent: 14 * s, answered: 15 * s, outcome: begun},
		{bucket: paced, over: "proxy", asked: "admitter-0", outcome: declined}}
	return h
}

func TestACalmHistoryHasNoFlaw(t *testing.T) {
	v := judge(calm())
	if len(v.violations) > 0 {
		t.Error(complaints(v))
	}
	if v.accepted != 100 || v.refused != 1 || v.unknown != 1 || v.started != 101 || v.ran != 100 ||
		v.lettered != 1 || v.begun != 1 || v.waited != s || v.declined != 1 {
		t.Errorf("counted %+v", v)
	}
}

func again(h *history, by string) {
	const at = 20 * s
	h.starts = append(h.starts, start{paced, "steady:10", 2, at, by, false})
	h.runs = append(h.runs, run{"steady/k1/9", "steady:10", 2, at + ms, at + 2*ms, 200})
}

func TestEachViolationIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name, law string
		change    func(h *history)
	}{
		{"a job that vanished", "no loss", func(h *history) {
			h.starts, h.runs = h.starts[1:], h.runs[1:]
		}},
		{"requests above the limit of their target", "rate", func(h *history) {
			strict := bucket{"strict", "k0"}
			for i := range 11 {
				at := 20*s + time.Duration(i)*99*ms
				h.starts = append(h.starts,
					start{strict, "strict:call", 1, at, "drainer-0.1", false})
				h.requests = append(h.requests, request{strict, at})
			}
		}},
		{"a job whose only run was cut off", "no loss", func(h *history) { h.runs[5].status = 0 }},
		{"a job that ran under another's id", "no loss", func(h *history) {
			h.runs[5].name = "other"
		}},
		{"two jobs with one id", "no loss", func(h *history) {
			h.submissions = append(h.submissions, h.submissions[5])
		}},
		{"a call that failed", "a clear no", func(h *history) {
			h.faults = append(h.faults, fault{kind: "admitter killed", whom: "admitter-1"})
			h.calls[1].outcome = failed
		}},
		{"a call that began without a start", "witnesses", func(h *history) {
			h.requests = append(h.requests, request{paced, 16 * s})
		}},
		{"a refused job that ran", "a clear no", func(h *history) {
			h.starts = append(h.starts,
				start{bucket{"door", "k0"}, "door:1", 1, 3 * s, "drainer-0.1", false})
			h.runs = append(h.runs, run{"refused", "door:1", 1, 3 * s, 3*s + ms, 200})
		}},
		{"a refused job that ran long after a server was frozen", "a clear no", func(h *history) {
			h.starts = append(h.starts,
				start{bucket{"door", "k0"}, "door:1", 1, 13 * s, "drainer-0.1", false})
			h.runs = append(h.runs, run{"refused", "door:1", 1, 13 * s, 13*s + ms, 200})
			h.submissions[100].sent, h.submissions[100].answered = 12*s, 12*s
			h.faults = []fault{{"server frozen", "nats-0", 2 * s, 6 * s, true}}
		}},
		{"a start too many in a second", "rate", func(h *history) {
			h.starts[50].at = h.starts[49].at
			h.starts[51].at = h.starts[49].at
		}},
		{"one percent above the peak for twelve seconds", "rate", func(h *history) {
			for i := range h.starts {
				h.starts[i].at = s + time.Duration(i)*122200*time.Microsecond
			}
		}},
		{"two owners at once", "rate", func(h *history) {
			for i := range h.starts {
				h.starts[i].at = s + time.Duration(i/2)*125*ms
				h.starts[i].by = fmt.Sprintf("drainer-%d.1", i%2)
			}
		}},
		{"a bucket that held too much", "bound", func(h *history) { h.depths[0].jobs = 61 }},
		{"more answers of accepted than places", "bound", func(h *history) {
			for i := range 100 {
				h.submissions[i].answered = 500 * ms
			}
		}},
		{"a job that overtook", "order", func(h *history) {
			for _, x := range []int{30, 31} {
				h.starts[x].job = fmt.Sprintf("steady:%d", 62-x)
			}
		}},
		{"a second run that nothing explains", "no needless repeat", func(h *history) {
			again(h, "drainer-0.1")
		}},
		{"a second run while the first still ran", "no needless repeat", func(h *history) {
			again(h, "drainer-0.1")
			h.runs[9].left, h.runs[9].status = 22*s, 0
		}},
		{"a freeze shorter than an attempt may take", "no needless repeat", func(h *history) {
			again(h, "drainer-0.1")
			h.faults = []fault{{"drainer frozen", "drainer-0", 2 * s, 6 * s, false}}
		}},
		{"the freeze of another", "no needless repeat", func(h *history) {
			again(h, "drainer-0.1")
			h.faults = []fault{{"drainer frozen", "drainer-1", 2 * s, 9 * s, false}}
		}},
		{"a parting that ended long before the attempt's time was up", "no needless repeat", func(
			h *history) {
			again(h, "drainer-1.1")
			h.faults = []fault{{"routes cut", "nats-0", 12 * s, 18 * s, true}}
		}},
		{"a parting that began when the outcome had been told", "no needless repeat", func(
			h *history) {
			again(h, "drainer-1.1")
			h.faults = []fault{{"routes cut", "nats-0", 17 * s, 22 * s, true}}
		}},
		{"a parting from neither of two owners", "no needless repeat", func(h *history) {
			again(h, "drainer-1.1")
			h.faults = []fault{{"link cut", "drainer-2", 14 * s, 22 * s, false}}
		}},
		{"a parting of one owner from itself", "no needless repeat", func(h *history) {
			again(h, "drainer-0.1")
			h.faults = []fault{{"routes cut", "nats-0", 14 * s, 22 * s, true}}
		}},
		{"a run elsewhere, and the link of a third was cut", "no needless repeat", func(
			h *history) {
			again(h, "drainer-0.1")
			h.starts = append(h.starts,
				start{paced, "steady:10", 1, h.starts[9].at, "drainer-1.1", true})
			h.faults = []fault{
				{"link cut", "drainer-2", 5 * s, 9 * s, false},
				{"link slow", "admitter-0 by 130ms", 5 * s, 9 * s, false},
				{"target hangs", "target", 5 * s, 9 * s, false},
			}
		}},
		{"a crash after the second run", "no needless repeat", func(h *history) {
			again(h, "drainer-1.1")
			h.lives[0].ending, h.lives[0].until = killed, 90*s
		}},
		{"a takeover of another partition", "no needless repeat", func(h *history) {
			again(h, "drainer-1.1")
			h.faults = []fault{{"link cut", "drainer-0", 0, 9 * s, false}}
			h.takeovers = []takeover{{"steady", (h.partition(paced) + 1) % 6, 10 * s,
				"drainer-1.1"}}
		}},
		{"a job that ran and has a letter", "no needless repeat", func(h *history) {
			h.letters = append(h.letters, letter{paced, "steady:99", "deadline", 0, 30 * s})
			h.submissions[98].deadline = 10 * s
		}},
		{"a letter of a job that never failed", "letters", func(h *history) {
			h.runs[99].status = 500
		}},
		{"attempts used up that nobody made", "letters", func(h *history) {
			h.letters[0].reason = "attempts"
		}},
		{"a deadline that the job did not have", "letters", func(h *history) {
			h.letters[0].reason = "deadline"
		}},
		{"a deadline that had not come", "letters", func(h *history) {
			h.letters[0].reason, h.submissions[99].deadline = "deadline", time.Minute
		}},
		{"a start after the deadline", "letters", func(h *history) {
			h.submissions[99].answered, h.submissions[99].deadline = 3*s, s
		}},
		{"crashes that there were not", "letters", func(h *history) {
			h.letters[0].reason = "crashed"
		}},
		{"an unknown reason", "letters", func(h *history) { h.letters[0].reason = "" }},
		{"two letters", "letters", func(h *history) {
			h.letters = append(h.letters, h.letters[0])
		}},
		{"jobs that nobody starts", "nothing stands still", func(h *history) {
			h.left["steady"] = 3
		}},
		{"a request that no drainer tells of", "witnesses", func(h *history) {
			h.starts = append(h.starts[:7], h.starts[8:]...)
		}},
		{"a takeover without any fault", "no needless death", func(h *history) {
			h.takeovers = []takeover{{"steady", 0, 60 * s, "drainer-1.1"}}
		}},
		{"a takeover when only admitters and the target suffered", "no needless death", func(
			h *history) {
			h.takeovers = []takeover{{"steady", 0, 60 * s, "drainer-1.1"}}
			h.faults = []fault{
				{"admitter killed", "admitter-0", 50 * s, 55 * s, false},
				{"one link stalled", "admitter-1 to nats-2", 50 * s, 59 * s, false},
				{"target down", "target", 50 * s, 55 * s, false},
			}
		}},
		{"a process that ended by itself", "processes", func(h *history) {
			h.lives[0].ending = fell
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := calm()
			c.change(h)
			v := judge(h)
			if len(v.violations) != 1 || len(v.violations[c.law]) == 0 {
				t.Errorf("want a violation of %q alone, got\n%s", c.law, complaints(v))
			}
		})
	}
	v := judge(&history{rules: rules(6)})
	if len(v.violations["witnesses"]) == 0 {
		t.Error("an empty history passed")
	}
}

func TestFaultsExcuseTheirConsequences(t *testing.T) {
	for name, change := range map[string]func(h *history){
		"its owner was killed": func(h *history) {
			again(h, "drainer-1.1")
			h.lives[0].ending, h.lives[0].until = killed, 10*s
		},
		"its owner was declared dead": func(h *history) {
			again(h, "drainer-1.1")
			h.faults = []fault{{"drainer frozen", "drainer-0", 0, 9 * s, false}}
			h.takeovers = []takeover{{"steady", h.partition(paced), 10 * s, "drainer-1.1"}}
		},
		"it stood still until the time of the attempt was up": func(h *history) {
			again(h, "drainer-0.1")
			h.faults = []fault{{"drainer frozen", "drainer-0", 2 * s, 9 * s, false}}
		},
		"it was frozen when the attempt timed out, for less than an attempt's time": func(
			h *history) {
			again(h, "drainer-0.1")
			h.faults = []fault{{"drainer frozen", "drainer-0", 3 * s, 7500 * ms, false}}
		},
		"what it came to could not be told to the next owner": func(h *history) {
			again(h, "drainer-1.1")
			h.faults = []fault{{"routes cut", "nats-0", 15 * s, 22 * s, true}}
		},
		"its owner was cut off until the next one waited no more": func(h *history) {
			again(h, "drainer-1.1")
			h.faults = []fault{{"link stalled", "drainer-0", 14 * s, 22 * s, false}}
		},
		"it hung at the target, and its owner was frozen before its time was up": func(h *history) {
			h.runs[98].left, h.runs[98].status = 22*s, 0
			h.starts = append(h.starts, start{paced, "steady:99", 1, 20 * s, "drainer-1.1", false})
			h.runs = append(h.runs,
				run{"steady/k1/98", "steady:99", 1, 20*s + ms, 20*s + 2*ms, 200})
			h.faults = []fault{{"drainer frozen", "drainer-0", 17500 * ms, 22 * s, false}}
		},
		"a former owner buried it": func(h *history) {
			h.letters = append(h.letters, letter{paced, "steady:99", "deadline", 0, 30 * s})
			h.submissions[98].deadline, h.submissions[98].sent = 10*s, 8*s
			h.faults = []fault{{"link cut", "drainer-1", 5 * s, 9 * s, false}}
			h.takeovers = []takeover{{"steady", h.partition(paced), 10 * s, "drainer-0.1"}}
		},
		"it ran elsewhere, and a link was cut": func(h *history) {
			again(h, "drainer-0.1")
			h.starts = append(h.starts,
				start{paced, "steady:10", 1, h.starts[9].at, "drainer-1.1", true})
			h.faults = []fault{{"link cut", "drainer-1", 5 * s, 9 * s, false}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := calm()
			change(h)
			if v := judge(h); len(v.violations) > 0 || v.duplicates != 1 {
				t.Errorf("%d duplicates\n%s", v.duplicates, complaints(v))
			}
		})
	}
}

func TestARefusalByAFormerLeaderIsCounted(t *testing.T) {
	h := calm()
	h.starts = append(h.starts,
		start{bucket{"door", "k0"}, "door:1", 1, 8 * s, "drainer-0.1", false})
	h.runs = append(h.runs, run{"refused", "door:1", 1, 8 * s, 8*s + ms, 200})
	h.submissions[100].sent, h.submissions[100].answered = 7*s, 7*s
	h.faults = []fault{{"server frozen", "nats-0", 2 * s, 6 * s, true}}
	if v := judge(h); len(v.violations) > 0 || v.misled != 1 {
		t.Errorf("%d misled\n%s", v.misled, complaints(v))
	}
}

func TestAFailedAttemptIsNoDuplicate(t *testing.T) {
	h := calm()
	again(h, "drainer-0.1")
	h.runs[9].status = 500
	if v := judge(h); len(v.violations) > 0 || v.duplicates != 0 {
		t.Errorf("%d duplicates\n%s", v.duplicates, complaints(v))
	}
}

func TestAStandstillIsReported(t *testing.T) {
	h := calm()
	for i := 40; i < 100; i++ {
		h.starts[i].at += 20 * s
	}
	h.faults = []fault{{"drainer killed", "drainer-0", 5 * s, 7 * s, false},
		{"admitter killed", "admitter-0", 40 * s, 41 * s, false}}
	r := recoveries(h, "steady")
	if r["admitter killed"].stood != 0 || r["drainer killed"].stood != 1 ||
		r["drainer killed"].from[0] != 21*s || r["drainer killed"].after[0] != 19*s {
		t.Errorf("got %+v, %+v", r["drainer killed"], r["admitter killed"])
	}
	if text := report(h, judge(h), "steady"); !strings.Contains(text, "drainer killed") {
		t.Error(text)
	}
}
