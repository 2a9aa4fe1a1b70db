package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

func (m management) policies(ctx context.Context, at place) (any, uint64, error) {
	policies, err := m.Policies(ctx)
	policies = slices.DeleteFunc(policies, func(p manage.Policy) bool {
		return !at.mayRead(p.Policy.Name)
	})
	return manage.Policies{Policies: policies}, 0, err
}

func (m management) policy(ctx context.Context, at place) (any, uint64, error) {
	p, err := m.Policy(ctx, at.policy)
	return p, p.Revision, err
}

func (m management) override(ctx context.Context, at place) (any, uint64, error) {
	o, err := m.Override(ctx, at.policy, at.key)
	return o, o.Revision, err
}

func (m management) putPolicy(ctx context.Context, at place, document []byte,
	w manage.Write) (written any, revision uint64, created bool, err error) {

	if document, w.Paused, err = unwrapPolicy(document); err != nil {
		return nil, 0, false, err
	}
	p, err := policy.Parse(document)
	if err == nil && p.Name != "" && p.Name != at.policy {
		err = bad("name", "%.64q differs from the name in the path", p.Name)
	}
	if err != nil {
		return nil, 0, false, err
	}
	p.Name = at.policy
	put, created, err := m.PutPolicy(ctx, p, w)
	return put, put.Revision, created, err
}

func (m management) patchPolicy(ctx context.Context, at place, patch []byte,
	w manage.Write) (written any, revision uint64, created bool, err error) {

	if patch, w.Paused, err = unwrapPolicy(patch); err != nil {
		return nil, 0, false, err
	}
	patched, err := m.PatchPolicy(ctx, at.policy, patch, w)
	return patched, patched.Revision, false, err
}

func (m management) overridePolicy(ctx context.Context, at place, patch []byte,
	w manage.Write) (written any, revision uint64, created bool, err error) {

	p, err := m.OverridePolicy(ctx, at.policy, patch, w)
	return p, p.Revision, false, err
}

func (m management) restorePolicy(r *http.Request, at place) (answer.Answer, error) {
	may, err := precondition(r.Header)
	if err = cmp.Or(noBody(r), err); err != nil {
		return answer.Answer{}, err
	}
	p, err := m.RestorePolicy(r.Context(), at.policy, manage.Write{If: may})
	if err != nil {
		return answer.Answer{}, err
	}
	return revised(http.StatusOK, p, p.Revision), nil
}

func (m management) takePolicy(ctx context.Context, at place) (any, error) {
	return m.TakePolicy(ctx, at.policy, cmp.Or(at.query.Get("set"), policy.DefaultSet))
}

func (m management) releasePolicy(ctx context.Context, at place) (any, error) {
	return m.ReleasePolicy(ctx, at.policy)
}

// lasting reads how long an override lasts, and why it is made.
func (at place) lasting() (lasts time.Duration, because string, err error) {
	if because = at.query.Get("because"); len(because) > policy.MaxBecause {
		return 0, "", bad("because", "must have at most %d bytes", policy.MaxBecause)
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

func (m management) deletePolicy(r *http.Request, at place) (answer.Answer, error) {
	may, err := precondition(r.Header)
	if err = cmp.Or(noBody(r), err); err != nil {
		return answer.Answer{}, err
	}
	deleted, err := m.DeletePolicy(r.Context(), at.policy, at.number("purge") == 1,
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
	return look(func(ctx context.Context, at place) (any, error) {
		lasts, because, err := at.lasting()
		if err != nil {
			return nil, err
		}
		return m.PausePolicy(ctx, at.policy, paused, manage.Write{For: lasts, Because: because})
	})
}

func (m management) pauseKey(paused bool) call {
	return look(func(ctx context.Context, at place) (any, error) {
		return m.PauseKey(ctx, at.policy, at.key, paused)
	})
}

func (m management) minutes(ctx context.Context, at place) (any, error) {
	return m.Day(ctx, at.policy)
}

func (m management) overrides(ctx context.Context, at place) (any, error) {
	after := job.Key("")
	if at.query.Has("after") {
		var err error
		if after, err = job.EncodeKey(at.query.Get("after")); err != nil {
			return nil, bad("after", "is not a valid key")
		}
	}
	return m.Overrides(ctx, at.policy, after, at.number("limit"))
}

func (m management) writeOverride(patch bool) call {
	return write(patch, func(ctx context.Context, at place, document []byte, w manage.Write) (
		written any, revision uint64, created bool, err error) {

		if document, err = unwrapOverride(document, at.key); err != nil {
			return nil, 0, false, err
		}
		next := func(o policy.Override) (policy.Override, error) { return o.Patch(document) }
		if !patch {
			put, err := policy.ParseOverride(document)
			if err != nil {
				return nil, 0, false, err
			}
			next = func(policy.Override) (policy.Override, error) { return put, nil }
		}
		o, err := m.ChangeOverride(ctx, at.policy, at.key, w, next)
		return o, o.Revision, false, err
	})
}

func (m management) deleteOverride(r *http.Request, at place) (answer.Answer, error) {
	may, err := precondition(r.Header)
	if err = cmp.Or(noBody(r), err); err == nil {
		err = m.DeleteOverride(r.Context(), at.policy, at.key, manage.Write{If: may})
	}
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.JSON(http.StatusOK, manage.Override{Key: at.key.Raw()}), nil
}
