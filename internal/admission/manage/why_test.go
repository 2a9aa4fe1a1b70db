package manage

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

var then = time.Date(2026, 11, 23, 14, 32, 0, 0, time.UTC)

func mails() wording {
	return wording{now: then, p: policy.Policy{Name: "mail", Concurrency: 20,
		OutflowTotal: algorithms.Rate{Count: 100, Per: time.Second},
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 5,
			Outflow: algorithms.Rate{Count: 48, Per: time.Second}}}}
}

func TestEachReasonToWaitIsASentence(t *testing.T) {
	later := then.Add(7 * time.Second)
	for by, want := range map[string]string{
		job.BlockedByRate:         "the bucket keeps to its rate of 48/s",
		job.BlockedByTotalRate:    "the policy keeps to its rate of 100/s for all keys together",
		job.BlockedByConcurrency:  "its bucket runs its maximum number of jobs (20)",
		job.BlockedByPaused:       "an operator paused the bucket",
		job.BlockedByPolicyPaused: "an operator paused the policy",
		job.BlockedByThrottled: "the target asked for a pause, which ends in 7s: target answered " +
			"503",
		job.BlockedByBreaker: "the target is down; one job at a time probes it, without counting " +
			"attempts, the next in 7s: target answered 503",
		job.BlockedByBackoff: "its jobs have failed and will be retried in 7s: target answered " +
			"503",
		job.BlockedByNotBefore: "no job is due yet; the first starts in 7s",
		job.BlockedByNoWorker:  "policy mail has neither a target nor a running worker",
		job.BlockedByWorkersBusy: "all workers are busy, or the bucket has its maximum number of " +
			"them",
		job.BlockedByNoDrainer: "no drainer answers for its partition; start drainer, or " +
			"admitter --drain",
		job.BlockedByStorage: "its drainer cannot write to JetStream, or is reading the queue",
		"limit:tokens":       "the limit tokens is exhausted; the next job starts in 7s",
		"moon":               "blocked by moon",
	} {
		got := mails().cause(api.Hold{By: by, Until: &later}, "target answered 503:")
		if got != want {
			t.Errorf("%s: %q, want %q", by, got, want)
		}
	}
	for lastError, want := range map[string]string{
		"": "the target is down, or cannot be called; one job at a time probes it, without " +
			"counting attempts, the next",
		"a mistake at the drainer: no key": "its drainer cannot call the target; one job at a " +
			"time probes it, without counting attempts, the next: a mistake at the drainer: no key",
	} {
		got := mails().cause(api.Hold{By: job.BlockedByBreaker}, lastError)
		if got != want {
			t.Errorf("after %q: %q, want %q", lastError, got, want)
		}
	}
	slow := mails()
	slow.own = inforce.Override{Outflow: &algorithms.Rate{Count: 1, Per: time.Hour}}
	if got := slow.cause(api.Hold{By: job.BlockedByRate}, ""); got !=
		"the bucket keeps to its rate of 1/h" {
		t.Errorf("of a key with a rate of its own: %q", got)
	}
}

func TestEachStateOfAJobIsASentence(t *testing.T) {
	n := func(n int) *int { return &n }
	ms := func(ms int64) *int64 { return &ms }
	tomorrow := then.Add(24 * time.Hour)
	for _, c := range []struct {
		job  api.Job
		want string
	}{
		{api.Job{State: job.Waiting, Position: n(214), ETAMS: ms(7000)},
			"waits for its turn: 214 ahead of it at 48/s, starts in 7s"},
		{api.Job{State: job.Waiting, Position: n(2), Calls: 1, ETAMS: ms(7000)},
			"waits for its turn: 2 ahead of it, along with 1 call at 48/s, starts in 7s"},
		{api.Job{State: job.Waiting, Position: n(0), ETAMS: ms(0)},
			"waits for its turn: it is next at 48/s, starts now"},
		{api.Job{State: job.Waiting, Position: n(3), Hold: api.Hold{By: job.BlockedByTotalRate}},
			"waits for its turn: 3 ahead of it in its bucket, at 100/s for all keys together"},
		{api.Job{State: job.Waiting, Position: n(3), Hold: api.Hold{By: job.BlockedByConcurrency}},
			"waits: its bucket runs its maximum number of jobs (20); 3 ahead of it"},
		{api.Job{State: job.Delayed, Attempts: n(0), NotBefore: &tomorrow},
			"is not due yet: it starts in 1d at the earliest"},
		{api.Job{State: job.Delayed, Attempts: n(2), Hold: api.Hold{By: job.BlockedByBackoff,
			Until: &tomorrow}}, "has failed 2 times and is retried in 1d"},
		{api.Job{State: job.Running}, "runs now"},
		{api.Job{State: job.Running, Progress: "40 %"}, "runs now: 40 %"},
		{api.Job{State: job.Finishing}, "has ended; its outcome is being stored"},
		{api.Job{State: JobStored}, "is stored; a drainer will load it shortly"},
		{api.Job{State: JobCancelled}, "is cancelled"},
	} {
		if got := mails().job(&c.job); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	for want, j := range map[string]api.EndedJob{
		"is done":   {State: "done"},
		"is purged": {State: "purged"},
		"is dead: its deadline or maximum age passed before it was done: target answered 503": {
			State: "dead", Attempts: n(0), Reason: "deadline", LastError: "target answered 503"},
		"is dead: all its attempts failed, after 1 attempt": {State: "dead", Attempts: n(1),
			Reason: "attempts"},
		"is dead: its dead letter is gone": {State: "dead"},
		"died and was replayed as mail:50": {State: "replayed", ReplayedAs: "mail:50"},
	} {
		if got := howItEnded(&j); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestALimitThatCountsFromTheAnswerSaysWhatItHolds(t *testing.T) {
	soon, later := then.Add(140*time.Millisecond), then.Add(time.Minute)
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
			"the limit calls is exhausted: 12 tokens unanswered, 35 counted; next in 1m"},
		{log, api.LimitLeft{Most: 50}, &later,
			"the limit calls is exhausted; the next job starts in 1m"},
		{log, api.LimitLeft{Most: 50}, nil,
			"the limit calls is shared with other policies and kept by another drainer"},
	} {
		c.left.Name = "calls"
		w := mails()
		w.p.Limits, w.left = policy.Limits{c.rule}, []api.LimitLeft{{Name: "day", Most: 9}, c.left}
		got := w.cause(api.Hold{By: job.BlockedByLimit + "calls", Until: c.until}, "")
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestABucketSaysWhatItHoldsAndWhy(t *testing.T) {
	eta := int64(7000)
	for _, c := range []struct {
		bucket api.Bucket
		want   string
	}{
		{api.Bucket{}, "holds no jobs"},
		{api.Bucket{Unanswered: []int{0}},
			"holds no jobs, and no drainer answers for its partition"},
		{api.Bucket{Depth: 3, Hold: api.Hold{By: job.BlockedByNoDrainer}}, "holds 3 of 5 jobs: " +
			"no drainer answers for its partition; start drainer, or admitter --drain"},
		{api.Bucket{Depth: 5, Hold: api.Hold{By: job.BlockedByPaused},
			BucketState: &api.BucketState{Waiting: 3, Delayed: 1, Running: 1}},
			"holds 5 of 5 jobs and is full, so new ones are refused (3 waiting, 1 delayed, 1 " +
				"running): an operator paused the bucket"},
		{api.Bucket{Depth: 1, BucketState: &api.BucketState{Waiting: 1, ETAMS: &eta}},
			"holds 1 of 5 jobs (1 waiting): its next job starts now"},
		{api.Bucket{Depth: 2, Hold: api.Hold{By: job.BlockedByRate},
			BucketState: &api.BucketState{Waiting: 2, ETAMS: &eta}},
			"holds 2 of 5 jobs (2 waiting): the bucket keeps to its rate of 48/s; a job accepted " +
				"now would start in 7s"},
		{api.Bucket{BucketState: &api.BucketState{Calls: 2, CallsRunning: 1, Running: 1}},
			"holds no jobs and 3 calls (2 waiting, 1 running): its next call starts now"},
		{api.Bucket{BucketState: &api.BucketState{ThrottledMS: 9000}},
			"holds no jobs: the target asked for a pause, which ends in 9s"},
		// Refused calls of the proxy wait in no bucket.
		{api.Bucket{BucketState: &api.BucketState{ETAMS: &eta, Limits: []api.LimitLeft{
			{Name: "calls", Left: 1, Most: 9}, {Name: "tokens", Most: 9}}}},
			"holds no jobs: the limit tokens is exhausted; a job accepted now would start in 7s"},
		{api.Bucket{BucketState: &api.BucketState{ETAMS: new(int64)}},
			"holds no jobs; a job accepted now starts immediately"},
	} {
		if got := mails().bucket(&c.bucket); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestNewsOfAPolicyIsASentence(t *testing.T) {
	changed := []string{"burst 1 → 2"}
	for want, p := range map[string]api.PolicyState{
		"": {Last: &api.LastChange{At: then.Add(-25 * time.Hour), Changed: changed}},
		"was changed at 11:32 UTC: burst 1 → 2": {Last: &api.LastChange{
			At: then.Add(-3 * time.Hour), Changed: changed}},
		"is overridden: a; b": {Overridden: []string{"a", "b"}},
	} {
		if got := news(p, then); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAPolicyThatIsNearlyFullByBytesSaysSo(t *testing.T) {
	all := api.AllBuckets{Depths: map[string]uint64{"mail": 20, "bulk": 25},
		Bytes: map[string]api.Fill{"mail": {Used: 1_999_000, Max: 2 << 20}, "old": {Used: 1},
			"bulk": {Used: 2_500_000, Max: 16 << 20}}}
	mail := mails().p
	mail.MaxBytes = 2 << 20
	for _, p := range []policy.Policy{mail, {Name: "bulk"}, {Name: "old"}} {
		explainFill(&all, p)
	}
	const want = "the jobs of mail take 1.91 MiB of 2 MiB, its max_bytes, so new ones are " +
		"refused; those of bulk take most, 2.38 MiB"
	mine, others := all.Bytes["mail"].Why, all.Bytes["bulk"].Why+all.Bytes["old"].Why
	if mine != want || others != "" {
		t.Errorf("%+v, want %q", all.Bytes, want)
	}
}
