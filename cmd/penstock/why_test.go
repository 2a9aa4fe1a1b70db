package main

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/policy"
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
		job.BlockedByRate:        "the bucket keeps to its rate of 48/s",
		job.BlockedByTotalRate:   "the policy keeps to its rate for all keys together of 100/s",
		job.BlockedByConcurrency: "its bucket runs its maximum number of jobs (20)",
		job.BlockedByPaused:      `an operator paused the bucket; penstock resume mail --key 'a b' resumes it`,
		job.BlockedByPolicyPaused: "" +
			"an operator paused the policy; penstock resume mail resumes it",
		job.BlockedByThrottled: "the target asked for a pause, which ends at 14:32:07: target " +
			"answered 503; penstock resume mail --key 'a b' ends it now",
		job.BlockedByBreaker: "the target is down, or cannot be called; one job probes it at " +
			"14:32:07: target answered 503; penstock resume mail --key 'a b' probes it now",
		job.BlockedByBackoff:     `its jobs have failed and will be retried at 14:32:07: target answered 503`,
		job.BlockedByNotBefore:   "no job is due yet; the first starts at 14:32:07",
		job.BlockedByNoWorker:    `policy mail has neither a target nor a running worker`,
		job.BlockedByWorkersBusy: `all workers are busy, or the bucket has its maximum number of them`,
		job.BlockedByNoDrainer: "no drainer answers for its partition; " +
			"start drainer, or admitter --drain",
		job.BlockedByStorage: "its drainer cannot write to JetStream, or is reading the queue",
		"limit:tokens": "the limit tokens is exhausted; the next job starts at " +
			"14:32:07",
		"moon": "blocked by moon",
	} {
		q.hold = api.Hold{By: by, Until: &later}
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
		{jobAnswer{pending: pending{State: job.Waiting, Position: n(214), ETAMS: ms(7000)}},
			"mail:42 of a b waits for its turn: 214 ahead of it at 48/s, starts at 14:32:07"},
		{jobAnswer{pending: pending{State: job.Waiting, Position: n(2), Calls: 1, ETAMS: ms(7000)}},
			"mail:42 of a b waits for its turn: 2 ahead of it, along with 1 call at 48/s, " +
				"starts at 14:32:07"},
		{jobAnswer{pending: pending{State: job.Waiting, Position: n(0), ETAMS: ms(0)}},
			"mail:42 of a b waits for its turn: it is next at 48/s, starts now"},
		{jobAnswer{pending: pending{State: job.Waiting, Position: n(3),
			Hold: api.Hold{By: job.BlockedByTotalRate}}},
			`mail:42 of a b waits for its turn: 3 ahead of it in its bucket, at 100/s for all keys together`},
		{jobAnswer{pending: pending{State: job.Waiting, Position: n(3),
			Hold: api.Hold{By: job.BlockedByConcurrency}}},
			"mail:42 of a b waits: its bucket runs its maximum number of jobs (20); 3 ahead of it"},
		{jobAnswer{pending: pending{State: job.Delayed, Attempts: n(0), NotBefore: &tomorrow}},
			"mail:42 of a b is not due yet: it starts at 2026-11-24 14:32:00 at the earliest"},
		{jobAnswer{pending: pending{State: job.Running}}, "mail:42 of a b runs now"},
		{jobAnswer{pending: pending{State: job.Finishing}}, `mail:42 of a b has ended; its outcome is being stored`},
		{jobAnswer{pending: pending{State: "stored"}}, `mail:42 of a b is stored; a drainer will load it shortly`},
		{jobAnswer{pending: pending{State: "done"}}, "mail:42 of a b is done"},
		{jobAnswer{pending: pending{State: "purged"}}, "mail:42 of a b is purged"},
		{jobAnswer{pending: pending{State: "dead", Attempts: n(0)}, Reason: "deadline"}, `mail:42 of a b is dead: its ` +
			"deadline or maximum age passed before it was done: target answered 503"},
		{jobAnswer{pending: pending{State: "dead"}},
			"mail:42 of a b is dead: its dead letter is gone"},
		{jobAnswer{pending: pending{State: "replayed"}, ReplayedAs: "mail:50"},
			"mail:42 of a b died and was replayed as mail:50"},
	} {
		c.job.Job, c.job.Key = "mail:42", "a b"
		q.hold = c.job.Hold
		if got := q.job(&c.job); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestALimitThatCountsFromTheAnswerSaysWhatItHolds(t *testing.T) {
	now := time.Date(2026, 11, 23, 14, 32, 0, 0, time.Local)
	soon, later := now.Add(140*time.Millisecond), now.Add(time.Minute)
	log := policy.Limit{Name: "calls", Rule: policy.Rule{
		Algorithm: policy.SlidingLog, Window: policy.Duration(time.Second)}}
	tokens := policy.Limit{Name: "calls", Cost: "tokens", Rule: policy.Rule{
		Algorithm: policy.TokenBucket}}
	for _, c := range []struct {
		rule  policy.Limit
		left  api.LimitLeft
		until *time.Time
		want  string
	}{
		{log, api.LimitLeft{Most: 50, Open: 12}, &soon,
			"the limit calls is exhausted: 12 unanswered, 38 answered within 1s; next in 140ms"},
		{log, api.LimitLeft{Most: 50, Open: 50}, nil,
			"the limit calls is exhausted: 50 unanswered, 0 answered within 1s; next after an " +
				"answer"},
		{tokens, api.LimitLeft{Most: 50, Left: 3, Open: 12}, &later,
			"the limit calls is exhausted: 12 tokens unanswered, 35 counted; next at 14:33:00"},
		{log, api.LimitLeft{Most: 50}, &later,
			"the limit calls is exhausted; the next job starts at 14:33:00"},
		{log, api.LimitLeft{Most: 50}, nil,
			"the limit calls is shared with other policies and kept by another drainer"},
	} {
		c.left.Name = "calls"
		q := question{policy: "api", now: now, rules: policy.Limits{c.rule},
			left: []api.LimitLeft{{Name: "day", Most: 9}, c.left},
			hold: api.Hold{By: job.BlockedByLimit + "calls", Until: c.until}}
		if got := q.cause(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// Refused calls of the proxy wait in no bucket.
func TestAnEmptyBucketNamesTheLimitThatRefuses(t *testing.T) {
	q := question{policy: "llm", now: time.Date(2026, 11, 23, 14, 32, 0, 0, time.Local)}
	eta := int64(7000)
	b := api.Bucket{Key: "all", BucketState: &api.BucketState{ETAMS: &eta,
		Limits: []api.LimitLeft{{Name: "calls", Left: 1, Most: 9}, {Name: "tokens", Most: 9}}}}
	for wait, want := range map[int64]string{
		7000: "holds no jobs: the limit tokens is exhausted; a job accepted now would start at " +
			"14:32:07",
		0: "holds no jobs; a job accepted now starts immediately"} {
		eta = wait
		if got := q.bucket(&b); got != "the bucket all of llm "+want {
			t.Errorf("%q, want %q", got, want)
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
