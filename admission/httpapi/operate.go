package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/access"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/admission/manage"
)

// What operators ask about buckets, jobs, dead letters and drainers.

// management is what answers operators.
type management struct{ service *manage.Service }

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
	return document(m.service.AllBuckets(r.Context(), func(policy string) bool {
		return at.client.MayPolicy(access.Read, policy)
	}, int(limit)))
}

// job returns a job, or what became of it.
func (m management) job(ctx context.Context, policy string, seq uint64) (any, error) {
	job, err := m.service.Job(ctx, policy, seq)
	if errors.Is(err, admission.ErrNotFound) || errors.Is(err, admission.ErrUnknownPolicy) {
		ended, endedErr := m.service.Ended(ctx, policy, seq)
		if !errors.Is(endedErr, admission.ErrNotFound) {
			return ended, endedErr
		}
	}
	return job, err
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
	through, err := at.number("through", 0, 1, maxID)
	if err != nil {
		return answer.Answer{}, err
	}
	return document(m.service.DiscardAll(r.Context(), at.policy, through))
}

func (m management) discard(ctx context.Context, policy string, id uint64) (
	manage.Discarded, error) {

	return manage.Discarded{Discarded: 1}, m.service.Discard(ctx, policy, id)
}

func (m management) replayAll(r *http.Request, at place) (answer.Answer, error) {
	return plain(func(ctx context.Context, at place) (manage.Replayed, error) {
		return m.service.ReplayAll(ctx, at.policy)
	})(r, at)
}

func (m management) replay(r *http.Request, at place) (answer.Answer, error) {
	outcome, err := m.service.Replay(r.Context(), at.policy, at.seq)
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.Submitted(outcome), nil
}
