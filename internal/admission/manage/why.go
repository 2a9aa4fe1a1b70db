package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Sentences say why jobs wait. Clients print them as they are: times are told as durations, because
// a client's zone is unknown.

// wording knows what the sentences about a policy's jobs and buckets need.
type wording struct {
	p    policy.Policy    // in force
	own  inforce.Override // of the key, if that is known
	left []api.LimitLeft  // of the bucket
	now  time.Time
}

func (s *Service) whyJob(ctx context.Context, entry inforce.Entry, key queue.Key, j *api.Job) (
	string, error) {

	w := wording{p: entry.Policy, now: time.Now()}
	limit := strings.HasPrefix(j.By, job.BlockedByLimit) && entry.Policy.CountsArrivals()
	if j.State == job.Waiting {
		own, err := s.policies.Override(ctx, entry.Policy.Name, key)
		if err != nil && !errors.Is(err, jet.ErrNotFound) {
			return "", translate(err)
		}
		w.own = own.Override
	}
	if limit {
		b, err := s.bucket(ctx, entry, key)
		if err != nil {
			return "", err
		}
		if b.BucketState != nil {
			w.left = b.Limits
		}
	}
	why := w.job(j)
	recent := news(described(entry).PolicyState, w.now)
	if recent != "" && !job.Causes[j.By].Evident &&
		slices.Contains([]string{job.Waiting, JobStored}, j.State) {
		why += "; " + entry.Policy.Name + " " + recent
	}
	return why, nil
}

// news is that a policy is overridden, or was changed within the last day.
func news(p api.PolicyState, now time.Time) string {
	switch {
	case len(p.Overridden) > 0:
		return "is overridden: " + strings.Join(p.Overridden, "; ")
	case p.Last == nil || now.Sub(p.Last.At) >= 24*time.Hour:
		return ""
	}
	// An instant, because the list's ETag is that of its content.
	return "was changed at " + p.Last.At.UTC().Format("15:04 UTC") + ": " +
		strings.Join(p.Last.Changed, ", ")
}

// short has the significant parts of a duration.
func short(d time.Duration) string {
	unit := time.Minute
	switch {
	case d < time.Second:
		unit = time.Millisecond
	case d < time.Minute:
		unit = 100 * time.Millisecond
	case d < time.Hour:
		unit = time.Second
	}
	return algorithms.FormatDuration(max(d, 0).Round(unit))
}

// in is when something happens, after a space, or "" if that is unknown.
func (w wording) in(t *time.Time) string {
	switch {
	case t == nil:
		return ""
	case t.Sub(w.now) < time.Second:
		return " now"
	}
	return " in " + short(t.Sub(w.now))
}

func (w wording) after(ms *int64) *time.Time {
	if ms == nil {
		return nil
	}
	t := w.now.Add(time.Duration(min(*ms, 1<<43)) * time.Millisecond)
	return &t
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func because(lastError string) string {
	const most = 200
	if runes := []rune(lastError); len(runes) > most {
		lastError = string(runes[:most]) + "…"
	}
	if lastError = strings.TrimSuffix(strings.TrimSpace(lastError), ":"); lastError == "" {
		return ""
	}
	return ": " + lastError
}

func (w wording) rate() algorithms.Rate {
	if w.own.Outflow != nil {
		return *w.own.Outflow
	}
	return w.p.Outflow
}

func of(rate algorithms.Rate) string {
	if rate.IsZero() {
		return ""
	}
	return " of " + rate.String()
}

// job says why a job waits, or what it does.
func (w wording) job(j *api.Job) string {
	attempts := 0
	if j.Attempts != nil {
		attempts = *j.Attempts
	}
	switch j.State {
	case job.Waiting:
		switch j.By {
		case "", job.BlockedByRate, job.BlockedByTotalRate:
			text := "waits for its turn: " + w.turn(j)
			if j.ETAMS != nil {
				text += ", starts" + w.in(w.after(j.ETAMS))
			}
			return text
		}
		before := ""
		if j.Position != nil && *j.Position > 0 || j.Calls > 0 {
			before = "; " + ahead(j)
		}
		return "waits: " + w.cause(j.Hold, j.LastError) + before
	case job.Delayed:
		if j.By == job.BlockedByNotBefore || attempts == 0 {
			return "is not due yet: it starts" + w.in(cmp.Or(j.NotBefore, j.Until)) +
				" at the earliest"
		}
		return "has failed " + count(attempts, "time", "times") + " and is retried" +
			w.in(j.Until) + because(j.LastError)
	case job.Running:
		return "runs now" + because(j.Progress)
	case job.Finishing:
		return "has ended; its outcome is being stored"
	case JobStored:
		if j.By == job.BlockedByNoDrainer {
			return "is stored and waits: " + w.cause(j.Hold, "")
		}
		return "is stored; a drainer will load it shortly"
	}
	return "is " + j.State
}

func ahead(j *api.Job) string {
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

func (w wording) turn(j *api.Job) string {
	inTotal := j.By == job.BlockedByTotalRate || w.rate().IsZero()
	switch {
	case inTotal && !w.p.OutflowTotal.IsZero():
		return ahead(j) + " in its bucket, at " + w.p.OutflowTotal.String() +
			" for all keys together"
	case !w.rate().IsZero():
		return ahead(j) + " at " + w.rate().String()
	}
	return ahead(j)
}

var deadReasons = map[string]string{
	string(queue.ReasonPermanent): "its target or handler rejected it permanently",
	string(queue.ReasonAttempts):  "all its attempts failed",
	string(queue.ReasonDeadline):  "its deadline or maximum age passed before it was done",
	string(queue.ReasonMalformed): "its key or headers are invalid",
	string(queue.ReasonCrashed):   "its drainer crashed three times while running it",
}

func howItEnded(j *api.EndedJob) string {
	switch {
	case j.State == string(queue.EndReplayed):
		return "died and was replayed as " + j.ReplayedAs
	case j.State != string(queue.EndDead):
		return "is " + j.State
	case j.Reason == "":
		return "is dead: its dead letter is gone"
	}
	text := "is dead: " + cmp.Or(deadReasons[j.Reason], "reason "+j.Reason)
	if j.Attempts != nil && *j.Attempts > 0 {
		text += ", after " + count(*j.Attempts, "attempt", "attempts")
	}
	return text + because(j.LastError)
}

// cause says what holds the next job back.
func (w wording) cause(h api.Hold, lastError string) string {
	text := cmp.Or(job.Causes[h.By].Why, "blocked by "+h.By)
	if limit, ok := strings.CutPrefix(h.By, job.BlockedByLimit); ok {
		text = w.exhausted(limit, h.Until)
	}
	most := w.p.Concurrency
	if w.own.Concurrency != nil {
		most = *w.own.Concurrency
	}
	inWords := ""
	if most > 0 {
		inWords = fmt.Sprintf(" (%d)", most)
	}
	down := "the target is down, or cannot be called"
	if strings.HasPrefix(lastError, "a mistake at the drainer") { // package workers has the words
		down = "its drainer cannot call the target"
	} else if lastError != "" {
		down = "the target is down"
	}
	return strings.NewReplacer("{down}", down, "{rate}", of(w.rate()),
		"{total}", of(w.p.OutflowTotal), "{most}", inWords, "{policy}", w.p.Name,
		"{in}", w.in(h.Until), "{because}", because(lastError)).Replace(text)
}

// exhausted says what uses a limit up.
func (w wording) exhausted(limit string, until *time.Time) string {
	used := slices.IndexFunc(w.left, func(l api.LimitLeft) bool {
		return l.Name == limit && l.Open > 0
	})
	switch {
	case used >= 0:
	case until == nil:
		return "the limit " + limit + " is shared with other policies and kept by another drainer"
	default:
		return "the limit " + limit + " is exhausted; the next job starts{in}"
	}
	l, within, units := w.left[used], "counted", ""
	for _, rule := range w.p.Limits {
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
	next := "after an answer"
	if until != nil {
		next = "in " + short(until.Sub(w.now))
	}
	return fmt.Sprintf("the limit %s is exhausted: %d%s unanswered, %d %s; next %s", limit, l.Open,
		units, max(0, l.Most-l.Left-l.Open), within, next)
}

// bucket says what a bucket holds and what holds it.
func (w wording) bucket(b *api.Bucket) string {
	state := api.BucketState{}
	if b.BucketState != nil {
		state = *b.BucketState
	}
	w.left = state.Limits
	calls := state.Calls + state.CallsRunning
	text := "holds no jobs"
	if b.Depth > 0 {
		text = "holds " + count(b.Depth, "job", "jobs")
		if w.p.Capacity > 0 {
			text = fmt.Sprintf("holds %d of %d jobs", b.Depth, w.p.Capacity)
			if int64(b.Depth) >= w.p.Capacity {
				text += " and is full, so new ones are refused"
			}
		}
		text += stages(state.Waiting, state.Delayed, state.Running-state.CallsRunning)
	}
	if calls > 0 {
		text += " and " + count(calls, "call", "calls") + stages(state.Calls, 0, state.CallsRunning)
	}
	hold := b.Hold
	if hold.By == "" && state.ThrottledMS > 0 { // nothing waits yet
		hold = api.Hold{By: job.BlockedByThrottled, Until: w.after(&state.ThrottledMS)}
	}
	empty := b.Depth+calls == 0
	used := slices.IndexFunc(state.Limits, func(l api.LimitLeft) bool { return l.Left <= 0 })
	switch {
	case hold.By != "":
		text += ": " + w.cause(hold, state.LastError)
	case empty && used >= 0 && state.ETAMS != nil && *state.ETAMS >= 1000:
		text += ": the limit " + state.Limits[used].Name + " is exhausted"
	case len(b.Unanswered) > 0:
		text += ", and no drainer answers for its partition"
	case state.Calls > 0:
		text += ": its next call starts now"
	case state.Waiting > 0:
		text += ": its next job starts now"
	}
	switch eta := w.after(state.ETAMS); {
	case eta == nil:
	case !empty && b.Depth+calls == 1: // it is the one that the sentence is about
	case *state.ETAMS < 1000:
		text += "; a job accepted now starts immediately"
	default:
		text += "; a job accepted now would start" + w.in(eta)
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

// explainFill says that a policy's jobs take nearly all bytes that they may, and whose take most.
func explainFill(all *api.AllBuckets, p policy.Policy) {
	is, jobs := all.Bytes[p.Name], all.Depths[p.Name]
	if is.Max == 0 || is.Used < is.Max/5*4 {
		return
	}
	bound := "its share of the store"
	if own := int64(p.MaxBytes); own > 0 && own <= is.Max {
		bound = "its max_bytes"
	}
	is.Why = fmt.Sprintf("the jobs of %s take %s of %s, %s", p.Name, size(is.Used), size(is.Max),
		bound)
	if jobs > 0 && is.Used+is.Used/int64(jobs) > is.Max { // one more of average size
		is.Why += ", so new ones are refused"
	}
	most := p.Name
	for name, fill := range all.Bytes {
		if fill.Used > all.Bytes[most].Used {
			most = name
		}
	}
	if most != p.Name {
		is.Why += fmt.Sprintf("; those of %s take most, %s", most, size(all.Bytes[most].Used))
	}
	all.Bytes[p.Name] = is
}

func size(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.3g GiB", float64(bytes)/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%.3g MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.3g KiB", float64(bytes)/(1<<10))
}
