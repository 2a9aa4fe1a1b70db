package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

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
	return write(patch, func(ctx context.Context, at place) (any, error) {
		document, err := unwrapOverride(at.document, at.key)
		if err != nil {
			return nil, err
		}
		next := func(o policy.Override) (policy.Override, error) { return o.Patch(document) }
		if !patch {
			put, err := policy.ParseOverride(document)
			if err != nil {
				return nil, err
			}
			next = func(policy.Override) (policy.Override, error) { return put, nil }
		}
		return m.ChangeOverride(ctx, at.policy, at.key, at.write, next)
	})
}

func (m management) deleteOverride(ctx context.Context, at place) (any, error) {
	return manage.Override{Key: at.key.Raw()}, m.DeleteOverride(ctx, at.policy, at.key, at.write)
}
