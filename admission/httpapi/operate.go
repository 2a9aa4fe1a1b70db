package httpapi

import (
	"context"
	"fmt"
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

// What operators ask about buckets, jobs, dead letters and drainers.

// management is what answers operators.
type management struct {
	service *manage.Service
	clients func() *access.Clients // nil: everybody may ask for everything
}

// rights is who may ask now, and for what; another value once that has changed.
func (m management) rights() *access.Clients {
	if m.clients == nil {
		return nil
	}
	return m.clients()
}

const (
	defaultLimit = 100  // entries of a page
	maxLimit     = 1000 // most entries of a page

	// maxID is the largest number of a dead letter that is taken: the next one is a number, too.
	maxID = 1<<63 - 1
)

// client tells who asks, and what that client may do, so that a page need not offer what is
// refused.
func (m management) client(r *http.Request, at place) (answer.Answer, error) {
	if err := noBody(r); err != nil {
		return answer.Answer{}, err
	}
	return answer.JSON(http.StatusOK, at.client.Grant()), nil
}

func (m management) drainers(r *http.Request, at place) (answer.Answer, error) {
	return plain(func(ctx context.Context, _ place) (any, error) {
		drainers, err := m.service.Drainers(ctx)
		return map[string]any{"drainers": drainers}, err
	})(r, at)
}

func (m management) buckets(r *http.Request, at place) (answer.Answer, error) {
	limit, err := at.number("limit", defaultLimit, 1, maxLimit)
	if err != nil {
		return answer.Answer{}, err
	}
	offset, err := at.number("offset", 0, 0, manage.MaxListed)
	if err != nil {
		return answer.Answer{}, err
	}
	return document(m.service.Buckets(r.Context(), at.policy, int(offset), int(limit)))
}

func (m management) allBuckets(r *http.Request, at place) (answer.Answer, error) {
	limit, err := at.number("limit", defaultLimit, 1, maxLimit)
	if err != nil {
		return answer.Answer{}, err
	}
	by := job.ByDepth
	if at.query.Has("by") {
		by = at.query.Get("by")
	}
	if !slices.Contains(job.BucketOrders, by) {
		return answer.Answer{}, &admission.RequestError{Field: "by", Reason: fmt.Sprintf(
			"%.64q is none of %s%s", by, strings.Join(job.BucketOrders, ", "),
			nearest.Hint(by, job.BucketOrders))}
	}
	return document(m.service.AllBuckets(r.Context(), func(policy string) bool {
		return at.client.MayPolicy(access.Read, policy)
	}, by, int(limit)))
}

// jobs lists the jobs of a bucket.
func (m management) jobs(r *http.Request, at place) (answer.Answer, error) {
	if err := noBody(r); err != nil {
		return answer.Answer{}, err
	}
	limit, err := at.number("limit", defaultLimit, 1, maxLimit)
	if err != nil {
		return answer.Answer{}, err
	}
	after, err := at.number("after", 0, 0, maxID)
	if err != nil {
		return answer.Answer{}, err
	}
	state := at.query.Get("state")
	if at.query.Has("state") && !slices.Contains(manage.JobStates, state) {
		return answer.Answer{}, &admission.RequestError{Field: "state", Reason: fmt.Sprintf(
			"%.64q is none of %s", state, strings.Join(manage.JobStates, ", "))}
	}
	only := manage.Only{State: state}
	if at.query.Has("tag") {
		if only.Tag, err = at.tag(); err != nil {
			return answer.Answer{}, err
		}
	}
	return document(m.service.Jobs(r.Context(), at.policy, at.key, after, int(limit), only))
}

// cancelTagged cancels the jobs of a tag: those of the policy, or of one bucket.
func (m management) cancelTagged(keyed bool) call {
	return func(r *http.Request, at place) (answer.Answer, error) {
		after, err := at.number("after", 0, 0, maxID)
		if err != nil {
			return answer.Answer{}, err
		}
		tag, err := at.tag()
		if err != nil {
			return answer.Answer{}, err
		}
		var key *job.Key
		if keyed {
			key = &at.key
		}
		return plain(func(ctx context.Context, at place) (manage.CancelledTagged, error) {
			return m.service.CancelTagged(ctx, at.policy, key, tag, after)
		})(r, at)
	}
}

// tag reads the tag of a query.
func (at place) tag() (string, error) {
	tag := at.query.Get("tag")
	if err := job.CheckTag(tag); err != nil {
		return "", &admission.RequestError{Field: "tag", Reason: err.Error()}
	}
	return tag, nil
}

// job returns a job, or what became of it.
func (m management) job(r *http.Request, at place) (answer.Answer, error) {
	body, err := at.number("body", 0, 0, 1)
	if err != nil {
		return answer.Answer{}, err
	}
	look := m.service.Job
	if body == 1 {
		look = m.service.WholeJob
	}
	return plain(func(ctx context.Context, at place) (any, error) {
		return m.service.JobOrEnd(ctx, look, at.policy, at.seq)
	})(r, at)
}

// editJob changes a job that waits.
func (m management) editJob(r *http.Request, at place) (answer.Answer, error) {
	if err := noBody(r); err != nil {
		return answer.Answer{}, err
	}
	want, err := at.edit(time.Now())
	if err != nil {
		return answer.Answer{}, err
	}
	return document(m.service.Edit(r.Context(), at.policy, at.seq, want))
}

// edit reads what is to be changed of a job.
func (at place) edit(now time.Time) (want job.Edit, err error) {
	if len(at.query) == 0 {
		return want, &admission.RequestError{Field: "query",
			Reason: "says nothing: want run=1, front=1, priority= or deadline="}
	}
	for name, into := range map[string]*bool{"run": &want.Run, "front": &want.Front} {
		given, err := at.number(name, 0, 1, 1)
		if err != nil {
			return want, err
		}
		*into = given == 1
	}
	if at.query.Has("priority") {
		priority, err := strconv.Atoi(at.query.Get("priority"))
		if err != nil || priority < job.MinPriority || priority > job.MaxPriority {
			return want, &admission.RequestError{Field: "priority", Reason: fmt.Sprintf(
				"must be a whole number from %d to %d", job.MinPriority, job.MaxPriority)}
		}
		want.Priority = &priority
	}
	if at.query.Has("deadline") {
		want.Deadline = new(time.Time)
		if text := at.query.Get("deadline"); text != "none" {
			if *want.Deadline, err = job.ParseInstant(text, now, 1); err != nil {
				return want, &admission.RequestError{Field: "deadline", Reason: err.Error() +
					", or none"}
			}
		}
	}
	return want, nil
}

// history lists the jobs of a bucket that have ended, or of a policy.
func (m management) history(r *http.Request, at place) (answer.Answer, error) {
	if err := noBody(r); err != nil {
		return answer.Answer{}, err
	}
	limit, err := at.number("limit", defaultLimit, 1, maxLimit)
	if err != nil {
		return answer.Answer{}, err
	}
	before, err := at.number("before", 0, 0, maxID)
	if err != nil {
		return answer.Answer{}, err
	}
	return document(m.service.History(r.Context(), at.policy, at.key, before, int(limit)))
}

// deadPolicies lists the policies with dead letters.
func (m management) deadPolicies(ctx context.Context, at place) (any, error) {
	policies, err := m.service.DeadPolicies(ctx, func(policy string) bool {
		return at.client.MayPolicy(access.Read, policy)
	})
	return map[string]any{"policies": policies}, err
}

func (m management) deadLetters(r *http.Request, at place) (answer.Answer, error) {
	limit, err := at.number("limit", defaultLimit, 1, maxLimit)
	if err != nil {
		return answer.Answer{}, err
	}
	after, err := at.number("after", 0, 0, maxID)
	if err != nil {
		return answer.Answer{}, err
	}
	return document(m.service.DeadLetters(r.Context(), at.policy, after, int(limit)))
}

func (m management) discardAll(r *http.Request, at place) (answer.Answer, error) {
	some, err := at.some()
	if err == nil {
		some.Through, err = at.number("through", 0, 1, maxID)
	}
	if err != nil {
		return answer.Answer{}, err
	}
	return document(m.service.DiscardSome(r.Context(), at.policy, some))
}

func (m management) discard(ctx context.Context, policy string, id uint64) (
	manage.Discarded, error) {

	return manage.Discarded{Discarded: 1}, m.service.Discard(ctx, policy, id)
}

func (m management) replayAll(r *http.Request, at place) (answer.Answer, error) {
	some, err := at.some()
	if err != nil {
		return answer.Answer{}, err
	}
	return plain(func(ctx context.Context, at place) (manage.Replayed, error) {
		return m.service.ReplaySome(ctx, at.policy, some)
	})(r, at)
}

func (m management) replay(r *http.Request, at place) (answer.Answer, error) {
	outcome, err := m.service.Replay(r.Context(), at.policy, at.seq)
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.Submitted(outcome), nil
}

// some reads which dead letters are meant. A time may be how long ago it was.
func (at place) some() (some queue.Some, err error) {
	if some.Keyed = at.query.Has("key"); some.Keyed {
		if some.Key, err = job.EncodeKey(at.query.Get("key")); err != nil {
			return some, admission.InvalidKey(err)
		}
	}
	if at.query.Has("reason") {
		some.Reason = job.Reason(at.query.Get("reason"))
		if !slices.Contains(job.Reasons, some.Reason) {
			return some, &admission.RequestError{Field: "reason",
				Reason: fmt.Sprintf("%.64q is none of %v", some.Reason, job.Reasons)}
		}
	}
	for name, into := range map[string]*time.Time{"since": &some.Since, "before": &some.Before} {
		if !at.query.Has(name) {
			continue
		}
		text, now := at.query.Get(name), time.Now()
		if ago, ok := algorithms.ParseDuration(text); ok == nil && ago > 0 {
			*into = now.Add(-ago)
		} else if *into, err = time.Parse(time.RFC3339, text); err != nil {
			return some, &admission.RequestError{Field: name, Reason: fmt.Sprintf(
				"%.64q: want RFC 3339, or how long ago, such as 90m or 2d", text)}
		}
	}
	return some, nil
}
