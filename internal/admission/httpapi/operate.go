package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/answer"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/base/nearest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

type management struct {
	*manage.Service
	clients func() *access.Clients
}

// rights returns another pointer once the clients have changed.
func (m management) rights() *access.Clients {
	if m.clients == nil {
		return nil
	}
	return m.clients()
}

// A page hides actions without rights.
func (m management) client(_ context.Context, at place) (any, error) {
	return at.client.Grant(), nil
}

func (m management) drainers(ctx context.Context, _ place) (any, error) {
	return m.Drainers(ctx)
}

func (m management) buckets(ctx context.Context, at place) (any, error) {
	return m.Buckets(ctx, at.policy, at.number("offset"), at.number("limit"))
}

func (m management) allBuckets(ctx context.Context, at place) (any, error) {
	by := job.ByDepth
	if at.query.Has("by") {
		by = at.query.Get("by")
	}
	if !slices.Contains(job.BucketOrders, by) {
		return nil, bad("by", "%.64q: want one of %s%s", by, strings.Join(job.BucketOrders, ", "),
			nearest.Hint(by, job.BucketOrders))
	}
	return m.AllBuckets(ctx, at.mayRead, by, at.number("limit"))
}

func (at place) mayRead(policy string) bool { return at.client.MayPolicy(access.Read, policy) }

func (m management) jobs(ctx context.Context, at place) (any, error) {
	only := manage.Only{State: at.query.Get("state"), Tag: at.query.Get("tag")}
	if at.query.Has("state") && !slices.Contains(manage.JobStates, only.State) {
		return nil, bad("state", "%.64q: want one of %s", only.State,
			strings.Join(manage.JobStates, ", "))
	}
	if err := at.checkTag(); err != nil && at.query.Has("tag") {
		return nil, err
	}
	return m.Jobs(ctx, at.policy, at.key, at.numbers["after"], at.number("limit"), only)
}

func (m management) cancelTagged(keyed bool) call {
	return look(func(ctx context.Context, at place) (any, error) {
		var key *queue.Key
		if keyed {
			key = &at.key
		}
		if err := at.checkTag(); err != nil {
			return nil, err
		}
		return m.CancelTagged(ctx, at.policy, key, at.query.Get("tag"), at.numbers["after"])
	})
}

func (at place) checkTag() error {
	if err := job.CheckTag(at.query.Get("tag")); err != nil {
		return bad("tag", "%v", err)
	}
	return nil
}

func (m management) job(ctx context.Context, at place) (any, error) {
	if at.number("body") == 1 {
		return m.WholeJobOrEnd(ctx, at.policy, at.seq)
	}
	return m.JobOrEnd(ctx, at.policy, at.seq)
}

func (m management) editJob(ctx context.Context, at place) (any, error) {
	want, err := at.edit(time.Now())
	if err != nil {
		return nil, err
	}
	return m.Edit(ctx, at.policy, at.seq, want)
}

func (at place) edit(now time.Time) (want job.Edit, err error) {
	if len(at.query) == 0 {
		return want, bad("query", "is empty: want run=1, front=1, priority= or deadline=")
	}
	want.Run, want.Front = at.number("run") == 1, at.number("front") == 1
	if at.query.Has("priority") {
		priority, err := strconv.Atoi(at.query.Get("priority"))
		if err != nil || priority < job.MinPriority || priority > job.MaxPriority {
			return want, bad("priority", "must be a whole number from %d to %d", job.MinPriority,
				job.MaxPriority)
		}
		want.Priority = &priority
	}
	if at.query.Has("deadline") {
		want.Deadline = new(time.Time)
		if text := at.query.Get("deadline"); text != "none" {
			if *want.Deadline, err = job.ParseInstant(text, now, 1); err != nil {
				return want, bad("deadline", "%v, or none", err)
			}
		}
	}
	return want, nil
}

func (m management) history(ctx context.Context, at place) (any, error) {
	return m.History(ctx, at.policy, at.key, at.numbers["before"], at.number("limit"))
}

func (m management) audit(ctx context.Context, at place) (any, error) {
	return m.Audit(ctx, "", at.numbers["before"], at.number("limit"))
}

func (m management) auditOfPolicy(ctx context.Context, at place) (any, error) {
	if !policy.IsName(at.policy) {
		return nil, admit.UnknownPolicy(at.policy)
	}
	return m.Audit(ctx, at.policy, at.numbers["before"], at.number("limit"))
}

func (m management) deadPolicies(ctx context.Context, at place) (any, error) {
	return m.DeadPolicies(ctx, at.mayRead)
}

func (m management) deadLetters(ctx context.Context, at place) (any, error) {
	return m.DeadLetters(ctx, at.policy, at.numbers["after"], at.number("limit"))
}

func selected[T any](do func(ctx context.Context, policy string, some jet.DeadLetterFilter) (T,
	error)) call {

	return look(func(ctx context.Context, at place) (any, error) {
		some, err := at.some()
		if err != nil {
			return nil, err
		}
		return do(ctx, at.policy, some)
	})
}

func (m management) replay(r *http.Request, at place) (answer.Answer, error) {
	outcome, err := m.Replay(r.Context(), at.policy, at.seq)
	return answer.Submitted(outcome), err
}

func (at place) some() (some jet.DeadLetterFilter, err error) {
	some.Through = at.numbers["through"]
	if some.Keyed = at.query.Has("key"); some.Keyed {
		if some.Key, err = queue.EncodeKey(at.query.Get("key")); err != nil {
			return some, admit.InvalidKey(err)
		}
	}
	if at.query.Has("reason") {
		some.Reason = queue.Reason(at.query.Get("reason"))
		if !slices.Contains(job.Reasons, some.Reason) {
			return some, bad("reason", "%.64q: want one of %v", some.Reason, job.Reasons)
		}
	}
	if some.Since, err = at.time("since"); err == nil {
		some.Before, err = at.time("before")
	}
	return some, err
}

// RFC 3339, or a duration before now
func (at place) time(name string) (t time.Time, err error) {
	if !at.query.Has(name) {
		return t, nil
	}
	text := at.query.Get(name)
	if ago, err := algorithms.ParseDuration(text); err == nil && ago > 0 {
		return time.Now().Add(-ago), nil
	}
	if t, err = time.Parse(time.RFC3339, text); err != nil {
		err = bad(name, "%.64q: want a time (RFC 3339) or an age such as 90m or 2d", text)
	}
	return t, err
}

func (m management) policies(ctx context.Context, at place) (any, error) {
	policies, err := m.Policies(ctx)
	return manage.Policies{Policies: slices.DeleteFunc(policies, func(p manage.Policy) bool {
		return !at.mayRead(p.Policy.Name)
	})}, err
}

func (m management) putPolicy(ctx context.Context, at place) (any, error) {
	document, paused, err := unwrapPolicy(at.document)
	if err != nil {
		return nil, err
	}
	p, err := policy.Parse(document)
	if err == nil && p.Name != "" && p.Name != at.policy {
		err = bad("name", "%.64q differs from the name in the path", p.Name)
	}
	if err != nil {
		return nil, err
	}
	p.Name, at.write.Paused = at.policy, paused
	put, created, err := m.PutPolicy(ctx, p, at.write)
	if created && !put.DryRun {
		return withStatus{put, http.StatusCreated}, err
	}
	return put, err
}

func (m management) patchPolicy(ctx context.Context, at place) (any, error) {
	patch, paused, err := unwrapPolicy(at.document)
	if err != nil {
		return nil, err
	}
	at.write.Paused = paused
	return m.PatchPolicy(ctx, at.policy, patch, at.write)
}

func (m management) overridePolicy(ctx context.Context, at place) (any, error) {
	return m.OverridePolicy(ctx, at.policy, at.document, at.write)
}

func (m management) restorePolicy(ctx context.Context, at place) (any, error) {
	return m.RestorePolicy(ctx, at.policy, at.write)
}

func (m management) takePolicy(ctx context.Context, at place) (any, error) {
	return m.TakePolicy(ctx, at.policy, cmp.Or(at.query.Get("set"), policy.DefaultSet))
}

// lasting reads how long an override lasts, and why it is made.
func (at place) lasting() (lasts time.Duration, because string, err error) {
	if because = at.query.Get("because"); len(because) > inforce.MaxBecause {
		return 0, "", bad("because", "must have at most %d bytes", inforce.MaxBecause)
	}
	if !at.query.Has("for") {
		return 0, because, nil
	}
	var d policy.Duration
	if err := d.UnmarshalText([]byte(at.query.Get("for"))); err != nil || d <= 0 {
		return 0, "", bad("for", "must be a time with a unit, such as 1h")
	}
	return time.Duration(d), because, nil
}

func (m management) deletePolicy(ctx context.Context, at place) (any, error) {
	deleted, err := m.DeletePolicy(ctx, at.policy, at.number("purge") == 1, at.write)
	if !deleted.Deleted {
		return withStatus{deleted, http.StatusAccepted}, err
	}
	return deleted, err
}

func (m management) pausePolicy(paused bool) call {
	return look(func(ctx context.Context, at place) (any, error) {
		return m.PausePolicy(ctx, at.policy, paused, at.write)
	})
}

func (m management) pauseKey(paused bool) call {
	return look(func(ctx context.Context, at place) (any, error) {
		return m.PauseKey(ctx, at.policy, at.key, paused)
	})
}

func (m management) overrides(ctx context.Context, at place) (any, error) {
	after := queue.Key("")
	if at.query.Has("after") {
		var err error
		if after, err = queue.EncodeKey(at.query.Get("after")); err != nil {
			return nil, bad("after", "is not a valid key")
		}
	}
	return m.Overrides(ctx, at.policy, after, at.number("limit"))
}

func (m management) writeOverride(patch bool) call {
	return write(patch, func(ctx context.Context, at place) (any, error) {
		document, err := unwrapOverride(at.document, at.key)
		if err != nil {
			return nil, err
		}
		next := func(o inforce.Override) (inforce.Override, error) { return o.Patch(document) }
		if !patch {
			put, err := inforce.ParseOverride(document)
			if err != nil {
				return nil, err
			}
			next = func(inforce.Override) (inforce.Override, error) { return put, nil }
		}
		return m.ChangeOverride(ctx, at.policy, at.key, at.write, next)
	})
}

func (m management) deleteOverride(ctx context.Context, at place) (any, error) {
	return manage.Override{Key: at.key.Raw()}, m.DeleteOverride(ctx, at.policy, at.key, at.write)
}
