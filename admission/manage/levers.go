package manage

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/policy/store"
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
	return s.pull(ctx, name, what, w, func(l policy.Levers) (policy.Levers, error) {
		return l.Patch(patch, lever)
	})
}

// RestorePolicy removes all overrides of a whole policy, which also ends its pause.
func (s *Service) RestorePolicy(ctx context.Context, name string, w Write) (Policy, error) {
	return s.pull(ctx, name, "overrides of the policy removed", w,
		func(policy.Levers) (policy.Levers, error) { return nil, nil })
}

func (s *Service) pull(ctx context.Context, name, what string, w Write,
	next func(policy.Levers) (policy.Levers, error)) (Policy, error) {

	p, _, err := s.change(ctx, name, what, w, store.Change{Act: store.Pull,
		Edit: func(before policy.Entry, after *policy.Entry) (err error) {
			if after.Levers, err = next(before.Levers); err != nil {
				return err
			}
			o := after.Levers.Override()
			if len(policy.Diff(before.Levers.Override(), o)) == 0 {
				return nil
			}
			problems := o.ValidateAll(before.Written)
			if len(problems) == 0 {
				problems = s.options.Possible(before.Policy, o.ApplyAll(before.Written))
			}
			return policy.Invalid(problems)
		}})
	return p, err
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
	if err := policy.CheckSet(set); err != nil {
		return Policy{}, policy.Invalid([]policy.Problem{{Field: "set", Reason: err.Error()}})
	}
	p, _, err := s.change(ctx, name, "policy offered to the file of set "+set, Write{},
		store.Change{Act: store.Offer, Set: set})
	return p, err
}

// ReleasePolicy makes a file's policy the API's, whatever the file says.
func (s *Service) ReleasePolicy(ctx context.Context, name string) (Policy, error) {
	p, _, err := s.change(ctx, name, "policy released to the API", Write{},
		store.Change{Act: store.Release})
	return p, err
}
