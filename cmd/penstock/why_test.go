package main

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/queue/job"
)

func TestEachReasonToWaitIsASentence(t *testing.T) {
	now := time.Date(2026, 11, 23, 14, 32, 0, 0, time.Local)
	later := now.Add(7 * time.Second)
	tomorrow := now.Add(24 * time.Hour)
	q := question{policy: "mail", key: "a b", now: now,
		rate:        algorithms.Rate{Count: 48, Per: time.Second},
		total:       algorithms.Rate{Count: 100, Per: time.Second},
		concurrency: 20, lastError: "target answered 503:"}
	for by, want := range map[string]string{
		job.HeldByRate:         "the bucket keeps to its rate of 48/s",
		job.HeldByTotalRate:    "the policy keeps to its rate for all keys together of 100/s",
		job.HeldByConcurrency:  "as many jobs of its bucket run as may (20)",
		job.HeldByPaused:       `an operator paused the bucket; penstock resume mail --key 'a b' lets it go on`,
		job.HeldByPolicyPaused: "an operator paused the policy; penstock resume mail lets it go on",
		job.HeldByCooling:      `the target asked for a pause, which ends at 14:32:07: target answered 503`,
		job.HeldByBreaker:      `the target is down, and one job looks at 14:32:07 whether it is back: target answered 503`,
		job.HeldByBackoff:      `what the bucket holds has failed, and is tried again at 14:32:07: target answered 503`,
		job.HeldByNotBefore:    "it is not due; the first job is at 14:32:07",
		job.HeldByNoWorker:     `nobody has workers for policy mail: it has no target, and no program runs its jobs`,
		job.HeldByWorkersBusy:  `the workers all have jobs, or as many of this bucket as it may have`,
		job.HeldByNoDrainer:    "no drainer answers for its partition",
		job.HeldByStorage:      `its drainer cannot write to JetStream, or is still reading the queue`,
		"limit:tokens": "the limit tokens is used up, and lets the next job start at " +
			"14:32:07",
		"moon": "held by moon",
	} {
		q.hold = job.Hold{By: by, Until: &later}
		if got := q.cause(); got != want {
			t.Errorf("%s: %q, want %q", by, got, want)
		}
	}

	n := func(n int) *int { return &n }
	ms := func(ms int64) *int64 { return &ms }
	for _, c := range []struct {
		job  jobAnswer
		want string
	}{
		{jobAnswer{State: job.Waiting, Position: n(214), ExpectMS: ms(7000)},
			"mail:42 of a b waits for its turn: 214 before it at 48/s, starts at 14:32:07"},
		{jobAnswer{State: job.Waiting, Position: n(2), Calls: 1, ExpectMS: ms(7000)},
			"mail:42 of a b waits for its turn: 2 before it, beside 1 call at 48/s, " +
				"starts at 14:32:07"},
		{jobAnswer{State: job.Waiting, Position: n(0), ExpectMS: ms(0)},
			"mail:42 of a b waits for its turn: it is the next at 48/s, starts now"},
		{jobAnswer{State: job.Waiting, Position: n(3), Hold: job.Hold{By: job.HeldByTotalRate}},
			`mail:42 of a b waits for its turn: 3 before it in its bucket, at 100/s for all keys together`},
		{jobAnswer{State: job.Waiting, Position: n(3), Hold: job.Hold{By: job.HeldByConcurrency}},
			"mail:42 of a b waits: as many jobs of its bucket run as may (20); 3 before it"},
		{jobAnswer{State: job.Delayed, Attempts: n(0), NotBefore: &tomorrow},
			"mail:42 of a b is not due yet: it starts at 2026-11-24 14:32:00 at the earliest"},
		{jobAnswer{State: job.Running}, "mail:42 of a b runs now"},
		{jobAnswer{State: job.Finishing}, `mail:42 of a b has ended, and that is being written down`},
		{jobAnswer{State: "stored"}, `mail:42 of a b is stored, and a drainer takes it up in a moment`},
		{jobAnswer{State: "done"}, "mail:42 of a b is done"},
		{jobAnswer{State: "purged"}, "mail:42 of a b is purged"},
		{jobAnswer{State: "dead", Reason: "deadline", Attempts: n(0)}, `mail:42 of a b is dead: its ` +
			"deadline passed, or it became too old, before it was done: target answered 503"},
		{jobAnswer{State: "dead"}, "mail:42 of a b is dead: its dead letter is gone"},
		{jobAnswer{State: "replayed", ReplayedAs: "mail:50"},
			"mail:42 of a b died and was replayed as mail:50"},
	} {
		c.job.Job, c.job.Key = "mail:42", "a b"
		q.hold = c.job.Hold
		if got := q.job(&c.job); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestEscapeSequencesDoNotReachTheTerminal(t *testing.T) {
	for text, want := range map[string]string{
		"plain":           "plain",
		"größe 日本":        "größe 日本",
		"two\nlines":      "two\nlines",
		"\x1b[2J":         `"\x1b[2J"`,
		"\u009b2J":        `"\u009b2J"`,
		"\u202egnp.exe":   `"\u202egnp.exe"`,
		"a\tb":            `"a\tb"`,
		string([]byte{0}): `"\x00"`,
	} {
		if got := plain(text); got != want {
			t.Errorf("%q is printed as %s, want %s", text, got, want)
		}
	}
	if got := line("a\nb", 10); got != `"a\nb"` {
		t.Errorf("a line is %s", got)
	}
}
