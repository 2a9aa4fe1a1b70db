package httpapi

import (
	"cmp"
	"context"
	"hash/fnv"
	"net/http"
	"slices"

	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

func (m management) policies(r *http.Request, at place) (answer.Answer, error) {
	list, err := look(func(at *place) looking {
		return func(ctx context.Context) (any, error) {
			policies, err := m.service.Policies(ctx)
			policies = slices.DeleteFunc(policies, func(p manage.Policy) bool {
				return !at.mayRead(p.Policy.Name)
			})
			return map[string]any{"policies": policies}, err
		}
	})(r, at)
	if err != nil {
		return list, err
	}
	// The list has no revision of its own, and the console polls it.
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

func (m management) putPolicy(ctx context.Context, at place, document []byte,
	w manage.Write) (written any, revision uint64, created bool, err error) {

	if document, w.Paused, err = unwrapPolicy(document); err != nil {
		return nil, 0, false, err
	}
	p, err := policy.Parse(document)
	if err == nil && p.Name != "" && p.Name != at.policy {
		err = bad("name", "%.64q is not the name in the path", p.Name)
	}
	if err != nil {
		return nil, 0, false, err
	}
	p.Name = at.policy
	put, created, err := m.service.PutPolicy(ctx, p, w)
	return put, put.Revision, created, err
}

func (m management) patchPolicy(ctx context.Context, at place, patch []byte,
	w manage.Write) (written any, revision uint64, created bool, err error) {

	if patch, w.Paused, err = unwrapPolicy(patch); err != nil {
		return nil, 0, false, err
	}
	patched, err := m.service.PatchPolicy(ctx, at.policy, patch, w)
	return patched, patched.Revision, false, err
}

func (m management) deletePolicy(r *http.Request, at place) (answer.Answer, error) {
	purge := at.number("purge", 0, 0, 1)
	may, err := precondition(r.Header)
	if err = cmp.Or(noBody(r), at.err, err); err != nil {
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

func (m management) pausePolicy(paused bool) call {
	return look(func(at *place) looking {
		return func(ctx context.Context) (any, error) {
			return m.service.PausePolicy(ctx, at.policy, paused)
		}
	})
}

func (m management) pauseKey(paused bool) call {
	return look(func(at *place) looking {
		return func(ctx context.Context) (any, error) {
			return m.service.PauseKey(ctx, at.policy, at.key, paused)
		}
	})
}

func (m management) minutes(at *place) looking {
	return func(ctx context.Context) (any, error) { return m.service.Day(ctx, at.policy) }
}

func (m management) overrides(at *place) looking {
	limit, after := at.limit(), job.Key("")
	if at.query.Has("after") {
		var err error
		if after, err = job.EncodeKey(at.query.Get("after")); err != nil {
			at.fail(bad("after", "is not a key"))
		}
	}
	return func(ctx context.Context) (any, error) {
		return m.service.Overrides(ctx, at.policy, after, limit)
	}
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

func (m management) putOverride(ctx context.Context, at place, document []byte,
	w manage.Write) (written any, revision uint64, created bool, err error) {

	if document, err = unwrapOverride(document, at.key); err != nil {
		return nil, 0, false, err
	}
	o, err := policy.ParseOverride(document)
	if err != nil {
		return nil, 0, false, err
	}
	put, err := m.service.PutOverride(ctx, at.policy, at.key, o, w)
	return put, put.Revision, false, err
}

func (m management) patchOverride(ctx context.Context, at place, patch []byte,
	w manage.Write) (written any, revision uint64, created bool, err error) {

	if patch, err = unwrapOverride(patch, at.key); err != nil {
		return nil, 0, false, err
	}
	patched, err := m.service.PatchOverride(ctx, at.policy, at.key, patch, w)
	return patched, patched.Revision, false, err
}

func (m management) deleteOverride(r *http.Request, at place) (answer.Answer, error) {
	may, err := precondition(r.Header)
	if err = cmp.Or(noBody(r), err); err == nil {
		err = m.service.DeleteOverride(r.Context(), at.policy, at.key, manage.Write{If: may})
	}
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.JSON(http.StatusOK, manage.Override{Key: at.key.Raw()}), nil
}
