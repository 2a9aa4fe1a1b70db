package httpapi

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/access"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

// What operators ask about policies and the limits of single keys.

func (m management) policies(r *http.Request, at place) (answer.Answer, error) {
	list, err := plain(func(ctx context.Context, at place) (any, error) {
		policies, err := m.service.Policies(ctx)
		policies = slices.DeleteFunc(policies, func(p manage.Policy) bool {
			return !at.client.MayPolicy(access.Read, p.Policy.Name)
		})
		return map[string]any{"policies": policies}, err
	})(r, at)
	if err != nil {
		return list, err
	}
	// The list has no revision of its own, and the console asks for it every few seconds.
	sum := fnv.New64a()
	sum.Write(list.Body)
	list.Header = append(list.Header, answer.Field{Name: "ETag", Value: tag(sum.Sum64())})
	return unlessKnown(r, list, sum.Sum64()), nil
}

func (m management) getPolicy(r *http.Request, at place) (answer.Answer, error) {
	if err := noBody(r); err != nil {
		return answer.Answer{}, err
	}
	p, err := m.service.Policy(r.Context(), at.policy)
	if err != nil {
		return answer.Answer{}, err
	}
	return unlessKnown(r, revised(http.StatusOK, p, p.Revision), p.Revision), nil
}

func (m management) putPolicy(r *http.Request, at place) (answer.Answer, error) {
	w, document, err := writing(r, at)
	if err != nil {
		return answer.Answer{}, err
	}
	if document, w.Paused, err = unwrapPolicy(document); err != nil {
		return answer.Answer{}, err
	}
	p, err := policy.Parse(document)
	if err != nil {
		return answer.Answer{}, err
	}
	if p.Name == "" {
		p.Name = at.policy
	}
	if p.Name != at.policy {
		return answer.Answer{}, &admission.RequestError{Field: "name",
			Reason: fmt.Sprintf("%.64q is not the name in the path", p.Name)}
	}
	put, created, err := m.service.PutPolicy(r.Context(), p, w)
	return written(put, put.Revision, w, created, err)
}

func (m management) patchPolicy(r *http.Request, at place) (answer.Answer, error) {
	if a := notAPatch(r); a != nil {
		return *a, nil
	}
	w, patch, err := writing(r, at)
	if err == nil {
		patch, w.Paused, err = unwrapPolicy(patch)
	}
	if err != nil {
		return answer.Answer{}, err
	}
	patched, err := m.service.PatchPolicy(r.Context(), at.policy, patch, w)
	return written(patched, patched.Revision, w, false, err)
}

func (m management) deletePolicy(r *http.Request, at place) (answer.Answer, error) {
	if err := noBody(r); err != nil {
		return answer.Answer{}, err
	}
	purge, err := at.number("purge", 0, 0, 1)
	if err != nil {
		return answer.Answer{}, err
	}
	may, err := precondition(r.Header)
	if err != nil {
		return answer.Answer{}, err
	}
	deleted, err := m.service.DeletePolicy(r.Context(), at.policy, purge == 1,
		manage.Write{If: may})
	switch {
	case err != nil:
		return answer.Answer{}, err
	case deleted.Deleted:
		return answer.JSON(http.StatusOK, deleted), nil
	}
	return answer.JSON(http.StatusAccepted, deleted), nil
}

// pausePolicy holds a policy's jobs back, or lets them go on.
func (m management) pausePolicy(paused bool) call {
	return plain(func(ctx context.Context, at place) (manage.Policy, error) {
		return m.service.PausePolicy(ctx, at.policy, paused)
	})
}

// pauseKey holds a bucket's jobs back, or lets them go on.
func (m management) pauseKey(paused bool) call {
	return plain(func(ctx context.Context, at place) (manage.Override, error) {
		return m.service.PauseKey(ctx, at.policy, at.key, paused)
	})
}

func (m management) overrides(r *http.Request, at place) (answer.Answer, error) {
	limit, err := at.number("limit", defaultLimit, 1, maxLimit)
	if err != nil {
		return answer.Answer{}, err
	}
	var after job.Key
	if at.query.Has("after") {
		if after, err = job.EncodeKey(at.query.Get("after")); err != nil {
			return answer.Answer{}, &admission.RequestError{Field: "after", Reason: "is not a key"}
		}
	}
	return document(m.service.Overrides(r.Context(), at.policy, after, int(limit)))
}

func (m management) getOverride(r *http.Request, at place) (answer.Answer, error) {
	if err := noBody(r); err != nil {
		return answer.Answer{}, err
	}
	o, err := m.service.Override(r.Context(), at.policy, at.key)
	if err != nil {
		return answer.Answer{}, err
	}
	return unlessKnown(r, revised(http.StatusOK, o, o.Revision), o.Revision), nil
}

func (m management) putOverride(r *http.Request, at place) (answer.Answer, error) {
	w, document, err := writing(r, at)
	if err != nil {
		return answer.Answer{}, err
	}
	if document, err = unwrapOverride(document, at.key); err != nil {
		return answer.Answer{}, err
	}
	o, err := policy.ParseOverride(document)
	if err != nil {
		return answer.Answer{}, err
	}
	put, err := m.service.PutOverride(r.Context(), at.policy, at.key, o, w)
	return written(put, put.Revision, w, false, err)
}

func (m management) patchOverride(r *http.Request, at place) (answer.Answer, error) {
	if a := notAPatch(r); a != nil {
		return *a, nil
	}
	w, patch, err := writing(r, at)
	if err == nil {
		patch, err = unwrapOverride(patch, at.key)
	}
	if err != nil {
		return answer.Answer{}, err
	}
	patched, err := m.service.PatchOverride(r.Context(), at.policy, at.key, patch, w)
	return written(patched, patched.Revision, w, false, err)
}

func (m management) deleteOverride(r *http.Request, at place) (answer.Answer, error) {
	if err := noBody(r); err != nil {
		return answer.Answer{}, err
	}
	may, err := precondition(r.Header)
	if err == nil {
		err = m.service.DeleteOverride(r.Context(), at.policy, at.key, manage.Write{If: may})
	}
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.JSON(http.StatusOK, manage.Override{Key: at.key.Raw()}), nil
}
