package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// OverridePolicy applies a JSON merge patch of a [policy.Override] to a whole policy, of a file or
// the API. It lasts for w.For, and restores what the policy's master says then. null ends the
// override of a field.
func (s *Service) OverridePolicy(ctx context.Context, name string, patch []byte,
	w Write) (Policy, error) {
	return s.override(ctx, name, "policy overridden", patch, w)
}

func (s *Service) override(ctx context.Context, name, what string, patch []byte,
	w Write) (Policy, error) {

	by, _ := ctx.Value(clientKey{}).(client)
	host, _, err := net.SplitHostPort(by.address)
	if err != nil {
		host = by.address
	}
	lever := policy.Lever{By: cmp.Or(by.name, host), At: time.Now().UTC().
		Truncate(time.Second), Because: w.Because}
	if w.For > 0 {
		expires := lever.At.Add(w.For)
		lever.Expires = &expires
	}
	return s.changeLevers(ctx, name, what, w, func(e policy.Entry) (policy.Levers,
		error) {
		return e.Levers.Patch(patch, lever)
	})
}

// RestorePolicy removes all overrides of a whole policy, which also ends its pause.
func (s *Service) RestorePolicy(ctx context.Context, name string, w Write) (Policy, error) {
	return s.changeLevers(ctx, name, "overrides of the policy removed", w,
		func(policy.Entry) (policy.Levers, error) { return nil, nil })
}

func (s *Service) changeLevers(ctx context.Context, name, what string, w Write,
	change func(policy.Entry) (policy.Levers, error)) (Policy, error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var changed policy.Changes
	var revision uint64
	var refused error
	after, err := s.policies.ChangeLevers(ctx, name, w.DryRun, func(e policy.Entry) (policy.Levers,
		error) {
		revision = e.Revision
		refused = w.check(e.Revision)
		if w.Paused != nil && *w.Paused != e.Paused && refused == nil {
			refused = pausedOtherwise(e)
		}
		var levers policy.Levers
		if refused == nil {
			levers, refused = change(e)
		}
		if refused == nil {
			refused = s.fits(e, levers)
		}
		next := e
		next.Levers = levers
		next.InForce()
		changed = e.Difference(next)
		return levers, refused
	})
	switch {
	case refused != nil:
		return Policy{}, translate(refused)
	case errors.Is(err, queue.ErrNotFound):
		return Policy{}, admission.UnknownPolicy(name)
	}
	if err = translate(err); !w.DryRun && (err != nil || after.Revision != revision) {
		args := []any{"policy", name, "revision", after.Revision, "changed", changed}
		if w.For > 0 {
			args = append(args, "for", policy.Duration(w.For))
		}
		if w.Because != "" {
			args = append(args, "because", w.Because)
		}
		s.NoteTried(ctx, err, what, args...)
	}
	if err != nil {
		return Policy{}, err
	}
	if !w.DryRun {
		s.enforce(ctx, after, false)
	}
	answer := described(after)
	answer.Changed, answer.DryRun = changed, w.DryRun
	return answer, nil
}

// fits checks levers that differ from the present ones.
func (s *Service) fits(e policy.Entry, levers policy.Levers) error {
	o := levers.Override()
	if len(policy.Diff(e.Levers.Override(), o)) == 0 {
		return nil
	}
	problems := o.ValidateAll(e.Written)
	if len(problems) == 0 {
		problems = s.options.Possible(e.Policy, o.ApplyAll(e.Written))
	}
	return policy.Invalid(problems)
}

func pausedOtherwise(e policy.Entry) error {
	return fmt.Errorf("%w: paused is %t: change it with POST /v1/pause or /v1/resume",
		admission.ErrConflict, e.Paused)
}

// PausePolicy pauses or resumes all buckets by an override. The end of a pause ends their
// cool-downs too.
func (s *Service) PausePolicy(ctx context.Context, name string, paused bool,
	w Write) (Policy, error) {
	before, err := s.queued(ctx, name)
	if err != nil {
		return Policy{}, err
	}
	p := described(before)
	if paused != before.Paused || w.For > 0 || w.Because != "" {
		p, err = s.override(ctx, name, "policy paused or resumed",
			fmt.Appendf(nil, `{"paused":%t}`, paused), w)
		if err != nil {
			return Policy{}, err
		}
	}
	if p.Changed = nil; !paused {
		p.Resumed = s.resume(ctx, before.Policy, "")
	}
	return p, nil
}

// TakePolicy lets the file of a set take a policy of the API, from the time it has it.
func (s *Service) TakePolicy(ctx context.Context, name, set string) (Policy, error) {
	return s.changeMaster(ctx, name, "policy offered to the file of set "+set,
		func(ctx context.Context) (uint64, error) { return s.policies.Offer(ctx, name, set) })
}

// ReleasePolicy makes a file's policy the API's, whatever the file says.
func (s *Service) ReleasePolicy(ctx context.Context, name string) (Policy, error) {
	return s.changeMaster(ctx, name, "policy released to the API",
		func(ctx context.Context) (uint64, error) { return s.policies.Release(ctx, name) })
}

func (s *Service) changeMaster(ctx context.Context, name, what string,
	change func(context.Context) (uint64, error)) (Policy, error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	revision, err := change(ctx)
	if errors.Is(err, queue.ErrNotFound) {
		return Policy{}, admission.UnknownPolicy(name)
	}
	if invalid, ok := errors.AsType[*policy.InvalidError](err); ok {
		return Policy{}, invalid
	}
	err = translate(err)
	if s.NoteTried(ctx, err, what, "policy", name); err != nil {
		return Policy{}, err
	}
	s.awaitFollowed(ctx, name, revision)
	return s.Policy(ctx, name)
}
