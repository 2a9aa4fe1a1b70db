package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/access"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/nearest"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// management answers operators.
type management struct {
	service *manage.Service
	clients func() *access.Clients // nil: no access control
}

// rights returns a new pointer once the clients have changed.
func (m management) rights() *access.Clients {
	if m.clients == nil {
		return nil
	}
	return m.clients()
}

const (
	defaultLimit = 100  // default size of a page
	maxLimit     = 1000 // largest page

	// maxID is the largest id of a dead letter; one more still fits.
	maxID = 1<<63 - 1
)

// client answers with the client's rights, so that a page can hide other actions.
func (m management) client(at *place) looking {
	return func(context.Context) (any, error) { return at.client.Grant(), nil }
}

func (m management) drainers(*place) looking {
	return func(ctx context.Context) (any, error) {
		drainers, err := m.service.Drainers(ctx)
		return map[string]any{"drainers": drainers}, err
	}
}

func (m management) buckets(at *place) looking {
	limit, offset := at.limit(), at.number("offset", 0, 0, manage.MaxListed)
	return func(ctx context.Context) (any, error) {
		return m.service.Buckets(ctx, at.policy, int(offset), limit)
	}
}

func (m management) allBuckets(at *place) looking {
	limit, by := at.limit(), job.ByDepth
	if at.query.Has("by") {
		by = at.query.Get("by")
	}
	if !slices.Contains(job.BucketOrders, by) {
		at.fail(bad("by", "%.64q is none of %s%s", by, strings.Join(job.BucketOrders, ", "),
			nearest.Hint(by, job.BucketOrders)))
	}
	return func(ctx context.Context) (any, error) {
		return m.service.AllBuckets(ctx, at.mayRead, by, limit)
	}
}

func (at *place) mayRead(policy string) bool { return at.client.MayPolicy(access.Read, policy) }

func (m management) jobs(at *place) looking {
	limit, after := at.limit(), at.number("after", 0, 0, maxID)
	only := manage.Only{State: at.query.Get("state")}
	if at.query.Has("state") && !slices.Contains(manage.JobStates, only.State) {
		at.fail(bad("state", "%.64q is none of %s", only.State,
			strings.Join(manage.JobStates, ", ")))
	}
	if at.query.Has("tag") {
		only.Tag = at.tag()
	}
	return func(ctx context.Context) (any, error) {
		return m.service.Jobs(ctx, at.policy, at.key, after, limit, only)
	}
}

func (m management) cancelTagged(keyed bool) call {
	return look(func(at *place) looking {
		after, tag := at.number("after", 0, 0, maxID), at.tag()
		var key *job.Key
		if keyed {
			key = &at.key
		}
		return func(ctx context.Context) (any, error) {
			return m.service.CancelTagged(ctx, at.policy, key, tag, after)
		}
	})
}

func (at *place) tag() string {
	tag := at.query.Get("tag")
	if err := job.CheckTag(tag); err != nil {
		at.fail(bad("tag", "%v", err))
	}
	return tag
}

func (m management) job(at *place) looking {
	read := m.service.Job
	if at.number("body", 0, 0, 1) == 1 {
		read = m.service.WholeJob
	}
	return func(ctx context.Context) (any, error) {
		return m.service.JobOrEnd(ctx, read, at.policy, at.seq)
	}
}

func (m management) editJob(at *place) looking {
	want := at.edit(time.Now())
	return func(ctx context.Context) (any, error) {
		return m.service.Edit(ctx, at.policy, at.seq, want)
	}
}

func (at *place) edit(now time.Time) (want job.Edit) {
	if len(at.query) == 0 {
		at.fail(bad("query", "says nothing: want run=1, front=1, priority= or deadline="))
	}
	want.Run, want.Front = at.number("run", 0, 1, 1) == 1, at.number("front", 0, 1, 1) == 1
	if at.query.Has("priority") {
		priority, err := strconv.Atoi(at.query.Get("priority"))
		if err != nil || priority < job.MinPriority || priority > job.MaxPriority {
			at.fail(bad("priority", "must be a whole number from %d to %d", job.MinPriority,
				job.MaxPriority))
		}
		want.Priority = &priority
	}
	if at.query.Has("deadline") {
		want.Deadline = new(time.Time)
		if text := at.query.Get("deadline"); text != "none" {
			var err error
			if *want.Deadline, err = job.ParseInstant(text, now, 1); err != nil {
				at.fail(bad("deadline", "%v, or none", err))
			}
		}
	}
	return want
}

func (m management) history(at *place) looking {
	limit, before := at.limit(), at.number("before", 0, 0, maxID)
	return func(ctx context.Context) (any, error) {
		return m.service.History(ctx, at.policy, at.key, before, limit)
	}
}

func (m management) deadPolicies(at *place) looking {
	return func(ctx context.Context) (any, error) {
		policies, err := m.service.DeadPolicies(ctx, at.mayRead)
		return map[string]any{"policies": policies}, err
	}
}

func (m management) deadLetters(at *place) looking {
	limit, after := at.limit(), at.number("after", 0, 0, maxID)
	return func(ctx context.Context) (any, error) {
		return m.service.DeadLetters(ctx, at.policy, after, limit)
	}
}

func (m management) discardAll(at *place) looking {
	some := at.some()
	some.Through = at.number("through", 0, 1, maxID)
	return func(ctx context.Context) (any, error) {
		return m.service.DiscardSome(ctx, at.policy, some)
	}
}

func (m management) discard(ctx context.Context, policy string, id uint64) (
	manage.Discarded, error) {

	return manage.Discarded{Discarded: 1}, m.service.Discard(ctx, policy, id)
}

func (m management) replayAll(at *place) looking {
	some := at.some()
	return func(ctx context.Context) (any, error) {
		return m.service.ReplaySome(ctx, at.policy, some)
	}
}

func (m management) replay(r *http.Request, at place) (answer.Answer, error) {
	outcome, err := m.service.Replay(r.Context(), at.policy, at.seq)
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.Submitted(outcome), nil
}

// some reads a selection of dead letters.
func (at *place) some() (some queue.DeadLetterFilter) {
	var err error
	if some.Keyed = at.query.Has("key"); some.Keyed {
		if some.Key, err = job.EncodeKey(at.query.Get("key")); err != nil {
			at.fail(admission.InvalidKey(err))
		}
	}
	if at.query.Has("reason") {
		some.Reason = job.Reason(at.query.Get("reason"))
		if !slices.Contains(job.Reasons, some.Reason) {
			at.fail(bad("reason", "%.64q is none of %v", some.Reason, job.Reasons))
		}
	}
	at.time("since", &some.Since)
	at.time("before", &some.Before)
	return some
}

func (at *place) time(name string, into *time.Time) {
	if !at.query.Has(name) {
		return
	}
	text := at.query.Get(name)
	if ago, err := algorithms.ParseDuration(text); err == nil && ago > 0 {
		*into = time.Now().Add(-ago)
	} else if *into, err = time.Parse(time.RFC3339, text); err != nil {
		at.fail(bad(name, "%.64q: want RFC 3339, or how long ago, such as 90m or 2d", text))
	}
}
