package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Override is the document of a key's own limits.
type Override struct {
	Key      string           `json:"key"`
	Override inforce.Override `json:"override"`
	Revision uint64           `json:"-"`
	api.Written
}

// Overrides is a page of them.
type Overrides struct {
	Overrides []Override `json:"overrides"`
	Next      *string    `json:"next,omitempty"` // the next page's `after`; missing on the last page
}

// Overrides lists the overridden keys of a policy in their order, at most limit, after a key.
func (s *Service) Overrides(ctx context.Context, name string, after queue.Key,
	limit int) (Overrides, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.entry(ctx, name); err != nil {
		return Overrides{}, err
	}
	found, err := s.policies.Overrides(ctx, name, after, limit+1)
	if err != nil {
		return Overrides{}, translate(err)
	}
	page := Overrides{Overrides: make([]Override, 0, len(found))}
	for i, o := range found {
		if i == limit {
			page.Next = &page.Overrides[limit-1].Key
			break
		}
		page.Overrides = append(page.Overrides, Override{Key: o.Key.Raw(), Override: o.Override})
	}
	return page, nil
}

// Override returns a key's override, or admission.ErrNotFound.
func (s *Service) Override(ctx context.Context, name string, key queue.Key) (Override, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.entry(ctx, name); err != nil {
		return Override{}, err
	}
	o, err := s.policies.Override(ctx, name, key)
	if errors.Is(err, jet.ErrNotFound) {
		return Override{}, fmt.Errorf("%w: key %q has no limits of its own", admission.ErrNotFound,
			key.Raw())
	}
	if err != nil {
		return Override{}, translate(err)
	}
	return Override{Key: key.Raw(), Override: o.Override, Revision: o.Revision}, nil
}

// ChangeOverride writes what next makes of an override and its pause. An empty one is removed.
func (s *Service) ChangeOverride(ctx context.Context, name string, key queue.Key, w Write,
	next func(inforce.Override) (inforce.Override, error)) (Override, error) {

	return s.changeOverride(ctx, name, key, "override written through the API", w,
		func(e inforce.Entry, o inforce.Override) (inforce.Override, error) {
			o, err := next(o)
			if err == nil {
				err = policy.Invalid(o.Validate(e.Policy))
			}
			return o, cmp.Or(err, takesOverrides(e))
		})
}

// PauseKey leaves the rest of the override unchanged. The end of a pause ends a cool-down too.
func (s *Service) PauseKey(ctx context.Context, name string, key queue.Key,
	paused bool) (Override, error) {
	var of policy.Policy
	o, err := s.changeOverride(ctx, name, key, "override written through the API", Write{},
		func(e inforce.Entry, o inforce.Override) (inforce.Override, error) {
			of, o.Paused = e.Policy, paused
			return o, takesOverrides(e)
		})
	if o.Changed = nil; err == nil && !paused {
		o.Resumed = s.resume(ctx, of, key)
	}
	return o, err
}

// DeleteOverride has a key follow its policy again.
func (s *Service) DeleteOverride(ctx context.Context, name string, key queue.Key, w Write) error {
	_, err := s.changeOverride(ctx, name, key, "override deleted through the API", w,
		func(inforce.Entry, inforce.Override) (o inforce.Override, err error) { return o, nil })
	return err
}

func takesOverrides(e inforce.Entry) error {
	if e.Draining {
		return fmt.Errorf("%w: policy %q is draining", admission.ErrConflict, e.Policy.Name)
	}
	return nil
}

func (s *Service) changeOverride(ctx context.Context, name string, key queue.Key, what string,
	w Write, change func(inforce.Entry, inforce.Override) (inforce.Override, error)) (Override,
	error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	entry, err := s.queued(ctx, name)
	if err != nil {
		return Override{}, err
	}
	o := Override{Key: key.Raw(), Written: api.Written{DryRun: w.DryRun}}
	written, err := s.policies.ChangeOverride(ctx, name, key, func(
		current store.Override) (next inforce.Override, err error) {
		if err = w.check(current.Revision); err == nil {
			next, err = change(entry, current.Override)
		}
		o.Override, o.Changed = next, inforce.Diff(current.Override, next)
		if w.DryRun {
			next = current.Override
		}
		return next, err
	})
	if invalid, ok := errors.AsType[*policy.InvalidError](err); ok {
		return Override{}, invalid
	}
	if err = translate(err); !w.DryRun {
		s.NoteTried(ctx, err, what, "policy", name, "key", key.Raw(), "revision",
			written.Revision, "changed", inforce.Changes(o.Changed))
	}
	if err != nil {
		return Override{}, err
	}
	o.Revision = written.Revision
	return o, nil
}

// resume ends a bucket's cool-down and probes its target, or without a key does so for all buckets
// of the policy.
func (s *Service) resume(ctx context.Context, p policy.Policy, key queue.Key) *api.Resumed {
	look, cancel := context.WithTimeout(ctx, 2*s.options.Timeout/5)
	defer cancel()
	first, end := 0, p.Partitions
	if key != "" {
		first = s.partitionOf(p, key)
		end = first + 1
	}
	var r api.Resumed
	var mu sync.Mutex
	var asking sync.WaitGroup
	for number := first; number < end; number++ {
		asking.Go(func() {
			a, err := s.ask(look, p.Name, number, job.Question{Op: job.OpResume, Key: key})
			mu.Lock()
			defer mu.Unlock()
			r.Ended, r.Probes = r.Ended+a.Ended, r.Probes+a.Probes
			if err != nil {
				r.Unanswered = append(r.Unanswered, number)
			}
		})
	}
	asking.Wait()
	slices.Sort(r.Unanswered)
	note := func(what, of string, n int) {
		args := []any{"policy", p.Name, of, n}
		if key != "" {
			args = append(args, "key", key.Raw())
		}
		if n > 0 {
			s.Note(ctx, what, args...)
		}
	}
	note("cool-down ended", "ended", r.Ended)
	note("target probed", "probes", r.Probes)
	return &r
}
