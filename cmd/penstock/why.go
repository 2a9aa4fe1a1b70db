package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

func (a *app) why() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why JOB | why POLICY [--key KEY]",
		Short: "Explain why a job or bucket waits",
		Long: "Explains in a sentence why a job waits, when it starts or how it ended. For a\n" +
			"policy, it explains why its deepest buckets wait, or with --key one bucket.",
		Example: "  penstock why mail:42\n  penstock why mail --key big",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case strings.Contains(args[0], ":") && !isJob(args[0]):
				return usageError{fmt.Errorf("%q is not a job id such as mail:42", args[0])}
			case !isJob(args[0]):
				return a.whyBuckets(cmd.Context())
			case a.keyed:
				return usageError{errors.New("--key requires a POLICY, not a JOB")}
			}
			return a.whyJob(cmd.Context(), args[0])
		},
	}
	a.keyFlag(cmd, "the bucket of this `key`")
	return cmd
}

type reason struct {
	Job       string     `json:"job,omitempty"`
	Policy    string     `json:"policy"`
	Key       *string    `json:"key,omitempty"`
	State     string     `json:"state,omitempty"`
	BlockedBy string     `json:"blocked_by,omitempty"`
	Until     *time.Time `json:"until,omitempty"`
	Starts    *time.Time `json:"starts_at,omitempty"`
	Why       string     `json:"why"`
}

func (a *app) tell(r reason) error {
	return a.document(r, func() error { return a.printf("%s\n", plain(r.Why)) })
}

func (a *app) whyJob(ctx context.Context, id string) error {
	var j jobAnswer
	if _, err := a.get(ctx, path("jobs", id), &j); err != nil {
		return err
	}
	q := question{now: time.Now()}
	q.policy, _, _ = job.ParseID(id)
	q.key, q.hold, q.lastError = j.Key, j.Hold, j.LastError
	if j.State == job.Waiting {
		if err := a.limits(ctx, &q); err != nil {
			return err
		}
	}
	why := q.job(&j)
	if news := q.news(); news != "" {
		why += "; " + news
	}
	return a.tell(reason{Job: j.Job, Policy: q.policy, Key: &j.Key, State: j.State, BlockedBy: j.By,
		Until: j.Until, Starts: q.in(j.ETAMS), Why: why})
}

const deepest = 5

func (a *app) whyBuckets(ctx context.Context) error {
	var page api.Buckets
	var err error
	if a.keyed {
		page.Buckets, page.Total = make([]api.Bucket, 1), 1
		_, err = a.get(ctx, a.path("buckets"), &page.Buckets[0])
	} else {
		_, err = a.get(ctx, fmt.Sprintf("%s?limit=%d", a.path("buckets"), deepest), &page)
	}
	if err != nil {
		return err
	}
	news := ""
	for _, b := range page.Buckets {
		if b.BucketState == nil {
			b.BucketState = &api.BucketState{}
		}
		q := question{policy: a.policy, key: b.Key, now: time.Now(), hold: b.Hold,
			lastError: b.LastError}
		if err := a.limits(ctx, &q); err != nil {
			return err
		}
		err := a.tell(reason{Policy: q.policy, Key: &b.Key, BlockedBy: b.By, Until: b.Until,
			Starts: q.in(b.ETAMS), Why: q.bucket(&b)})
		if err != nil {
			return err
		}
		news = cmp.Or(news, q.news())
	}
	if news != "" {
		if err := a.tell(reason{Policy: a.policy, Why: news}); err != nil {
			return err
		}
	}
	full, err := a.room(ctx)
	if err == nil && full != "" {
		err = a.tell(reason{Policy: a.policy, Why: full})
	}
	if err != nil {
		return err
	}
	switch {
	case len(page.Unanswered) > 0:
		err = a.tell(reason{Policy: a.policy, BlockedBy: job.BlockedByNoDrainer,
			Why: "no drainer answers for " + partitions(page.Unanswered) + " of " + a.policy +
				"; its jobs start when one runs: drainer, or admitter --drain"})
	case page.Total == 0:
		err = a.tell(reason{Policy: a.policy, Why: a.policy +
			" holds no jobs and no calls; --key KEY says when one of a key would start"})
	case page.Total > len(page.Buckets) && !a.json:
		err = a.printf("and %s\n", count(page.Total-len(page.Buckets), "more bucket",
			"more buckets"))
	}
	return err
}

func (a *app) limits(ctx context.Context, q *question) error {
	var p policyDocument
	_, err := a.get(ctx, path("policies", q.policy), &p)
	if err == nil {
		now := p.current()
		q.rate, q.total, q.concurrency = now.Outflow, now.OutflowTotal, now.Concurrency
		q.capacity, q.last, q.overridden = now.Capacity, p.Last, p.Overridden
		q.rules = now.Limits
		var o struct{ Override policy.Override }
		_, err = a.get(ctx, path("policies", q.policy, "keys", q.key), &o)
		if own := o.Override.Outflow; own != nil {
			q.rate = *own
		}
		if own := o.Override.Concurrency; own != nil {
			q.concurrency = *own
		}
	}
	if err == nil && strings.HasPrefix(q.hold.By, job.BlockedByLimit) && p.Policy.CountsArrivals() {
		b := api.Bucket{BucketState: &api.BucketState{}}
		_, err = a.get(ctx, path("buckets", q.policy, q.key), &b)
		q.left = b.Limits
	}
	if p, ok := errors.AsType[*problem](err); ok &&
		(p.Status == http.StatusNotFound || statusOf(p.Status) == exitForbidden) {
		return nil
	}
	return err
}

type question struct {
	policy, key string
	now         time.Time
	hold        api.Hold
	lastError   string

	rate, total algorithms.Rate // of the bucket and of the policy; zero: unknown
	concurrency int
	capacity    int64
	rules       policy.Limits   // of the policy
	left        []api.LimitLeft // of the bucket, if one of the rules counts from the answer
	last        *api.LastChange // of the policy; nil: unknown
	overridden  []string        // the policy's overrides, in words
}

const recent = 24 * time.Hour

// news reports overrides of the policy, or a recent change, that may explain the wait.
func (q *question) news() string {
	if len(q.overridden) > 0 {
		return q.policy + " is overridden: " + line(strings.Join(q.overridden, "; "), 300)
	}
	switch q.hold.By {
	case job.BlockedByPaused, job.BlockedByPolicyPaused, job.BlockedByNoDrainer,
		job.BlockedByStorage:
		return ""
	}
	if q.last == nil || q.now.Sub(q.last.At) >= recent {
		return ""
	}
	return q.policy + " was changed " + short(max(0, q.now.Sub(q.last.At))) + " ago: " +
		line(strings.Join(q.last.Changed, ", "), 300)
}

func (q *question) in(ms *int64) *time.Time {
	if ms == nil {
		return nil
	}
	t := q.now.Add(milliseconds(*ms)).Truncate(time.Millisecond)
	return &t
}

func (q *question) at(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " at " + clock(*t, q.now)
}

func (q *question) starts(ms *int64) string {
	switch {
	case ms == nil:
		return ""
	case *ms < 1000:
		return ", starts now"
	}
	return ", starts" + q.at(q.in(ms))
}

func (q *question) job(j *jobAnswer) string {
	name := j.Job
	if j.Key != "" {
		name += " of " + keyName(j.Key)
	}
	switch j.State {
	case job.Waiting:
		switch q.hold.By {
		case "", job.BlockedByRate, job.BlockedByTotalRate:
			return name + " waits for its turn: " + q.turn(j) + q.starts(j.ETAMS)
		}
		before := ""
		if value(j.Position) > 0 || j.Calls > 0 {
			before = "; " + ahead(j)
		}
		return name + " waits: " + q.cause() + before
	case job.Delayed:
		if q.hold.By == job.BlockedByNotBefore || j.Attempts != nil && *j.Attempts == 0 {
			return name + " is not due yet: it starts" + q.at(cmp.Or(j.NotBefore, q.hold.Until)) +
				" at the earliest"
		}
		return name + " has failed " + count(value(j.Attempts), "time", "times") +
			" and is retried" + q.at(q.hold.Until) + q.because()
	case job.Running:
		if j.Progress != "" {
			return name + " runs now: " + line(j.Progress, 300)
		}
		return name + " runs now"
	case job.Finishing:
		return name + " has ended; its outcome is being stored"
	case "stored":
		if q.hold.By == job.BlockedByNoDrainer {
			return name + " is stored and waits: " + q.cause()
		}
		return name + " is stored; a drainer will load it shortly"
	case string(job.EndDead):
		return name + " is dead: " + q.dead(j)
	case string(job.EndReplayed):
		return name + " died and was replayed as " + j.ReplayedAs
	}
	return name + " is " + j.State
}

func ahead(j *jobAnswer) string {
	line := "it is next"
	if j.Position == nil {
		line = "its place is unknown"
	} else if *j.Position > 0 {
		line = fmt.Sprintf("%d ahead of it", *j.Position)
	}
	if j.Calls > 0 {
		line += ", along with " + count(j.Calls, "call", "calls")
	}
	return line
}

func (q *question) turn(j *jobAnswer) string {
	inTotal := q.hold.By == job.BlockedByTotalRate || q.rate.IsZero()
	switch {
	case inTotal && !q.total.IsZero():
		return ahead(j) + " in its bucket, at " + q.total.String() + " for all keys together"
	case !q.rate.IsZero():
		return ahead(j) + " at " + q.rate.String()
	}
	return ahead(j)
}

var deadReasons = map[string]string{
	string(job.ReasonPermanent): "its target or handler rejected it permanently",
	string(job.ReasonAttempts):  "all its attempts failed",
	string(job.ReasonDeadline):  "its deadline or maximum age passed before it was done",
	string(job.ReasonMalformed): "its key or headers are invalid",
	string(job.ReasonCrashed):   "its drainer crashed three times while running it",
}

func (q *question) dead(j *jobAnswer) string {
	text := deadReasons[j.Reason]
	if text == "" {
		text = "reason " + j.Reason
	}
	if j.Reason == "" {
		return "its dead letter is gone"
	}
	if value(j.Attempts) > 0 {
		text += ", after " + count(*j.Attempts, "attempt", "attempts")
	}
	text += q.because()
	if j.Letter > 0 && j.Reason != string(job.ReasonMalformed) {
		text += fmt.Sprintf("; penstock dead replay %s %d retries it", q.policy, j.Letter)
	}
	return text
}

func (q *question) because() string {
	if q.lastError == "" {
		return ""
	}
	return ": " + line(strings.TrimSuffix(strings.TrimSpace(q.lastError), ":"), 200)
}

var causes = map[string]string{
	job.BlockedByRate:        "the bucket keeps to its rate{rate}",
	job.BlockedByTotalRate:   "the policy keeps to its rate for all keys together{total}",
	job.BlockedByConcurrency: "its bucket runs its maximum number of jobs{most}",
	job.BlockedByPaused: "an operator paused the bucket; penstock resume {policy} --key {key} " +
		"resumes it",
	job.BlockedByPolicyPaused: "an operator paused the policy; penstock resume {policy} " +
		"resumes it",
	job.BlockedByThrottled: "the target asked for a pause, which ends{at}{because}; " +
		"penstock resume {policy} --key {key} ends it now",
	job.BlockedByBreaker: "the target is down, or cannot be called; one job probes it{at}" +
		"{because}; penstock resume {policy} --key {key} probes it now",
	job.BlockedByBackoff:     "its jobs have failed and will be retried{at}{because}",
	job.BlockedByNotBefore:   "no job is due yet; the first starts{at}",
	job.BlockedByNoWorker:    "policy {policy} has neither a target nor a running worker",
	job.BlockedByWorkersBusy: "all workers are busy, or the bucket has its maximum number of them",
	job.BlockedByNoDrainer: "no drainer answers for its partition; " +
		"start drainer, or admitter --drain",
	job.BlockedByStorage: "its drainer cannot write to JetStream, or is reading the queue",
}

func (q *question) cause() string {
	text, known := causes[q.hold.By]
	if limit, ok := strings.CutPrefix(q.hold.By, job.BlockedByLimit); ok {
		text = q.exhausted(limit)
	} else if !known {
		text = "blocked by " + q.hold.By
	}
	most := ""
	if q.concurrency > 0 {
		most = fmt.Sprintf(" (%d)", q.concurrency)
	}
	return strings.NewReplacer("{rate}", amount(q.rate), "{total}", amount(q.total), "{most}", most,
		"{policy}", q.policy, "{key}", word(q.key), "{at}", q.at(q.hold.Until),
		"{because}", q.because()).Replace(text)
}

// exhausted says what uses a limit up.
func (q *question) exhausted(limit string) string {
	used := slices.IndexFunc(q.left, func(l api.LimitLeft) bool {
		return l.Name == limit && l.Open > 0
	})
	switch {
	case used >= 0:
	case q.hold.Until == nil:
		return "the limit " + limit + " is shared with other policies and kept by another drainer"
	default:
		return "the limit " + limit + " is exhausted; the next job starts{at}"
	}
	l, within, units := q.left[used], "counted", ""
	for _, rule := range q.rules {
		if rule.Name != limit {
			continue
		}
		if rule.Algorithm == policy.SlidingLog {
			within = "answered within " + rule.Window.String()
		}
		if rule.Cost != "" {
			units = " " + rule.Cost
		}
	}
	text := fmt.Sprintf("the limit %s is exhausted: %d%s unanswered, %d %s; next ", limit, l.Open,
		units, max(0, l.Most-l.Left-l.Open), within)
	if q.hold.Until == nil {
		return text + "after an answer"
	}
	if wait := q.hold.Until.Sub(q.now); wait < 10*time.Second {
		return text + "in " + algorithms.FormatDuration(max(0, wait).Round(time.Millisecond))
	}
	return text + strings.TrimSpace(q.at(q.hold.Until))
}

func amount(rate algorithms.Rate) string {
	if rate.IsZero() {
		return ""
	}
	return " of " + rate.String()
}

func (q *question) bucket(b *api.Bucket) string {
	name := "the bucket " + keyName(b.Key) + " of " + q.policy
	calls := b.Calls + b.CallsRunning
	text := name + " holds no jobs"
	if b.Depth > 0 {
		text = name + " holds " + count(b.Depth, "job", "jobs")
		if q.capacity > 0 {
			text = fmt.Sprintf("%s holds %d of %d jobs", name, b.Depth, q.capacity)
			if int64(b.Depth) >= q.capacity {
				text += " and is full, so new ones are refused"
			}
		}
		text += stages(b.Waiting, b.Delayed, b.Running-b.CallsRunning)
	}
	if calls > 0 {
		text += " and " + count(calls, "call", "calls") + stages(b.Calls, 0, b.CallsRunning)
	}
	if q.hold.By == "" && b.ThrottledMS > 0 { // nothing waits yet
		q.hold = api.Hold{By: job.BlockedByThrottled, Until: q.in(&b.ThrottledMS)}
	}
	used := slices.IndexFunc(b.Limits, func(l api.LimitLeft) bool { return l.Left <= 0 })
	switch {
	case q.hold.By != "":
		text += ": " + q.cause()
	case b.Depth+calls == 0 && used >= 0 && value(b.ETAMS) >= 1000:
		text += ": the limit " + b.Limits[used].Name + " is exhausted"
	case b.Calls > 0:
		text += ": its next call starts now"
	case b.Waiting > 0:
		text += ": its next job starts now"
	}
	if b.ETAMS != nil {
		if b.Depth+calls == 0 && *b.ETAMS < 1000 {
			text += "; a job accepted now starts immediately"
		} else if b.Depth+calls != 1 {
			text += "; a job accepted now would start" + q.at(q.in(b.ETAMS))
		}
	}
	return text
}

func stages(waiting, delayed, running int) string {
	var parts []string
	for _, part := range []struct {
		n    int
		word string
	}{{waiting, "waiting"}, {delayed, "delayed"}, {running, "running"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.word))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
