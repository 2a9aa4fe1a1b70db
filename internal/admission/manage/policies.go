package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Policy is a policy's document.
type Policy struct {
	Policy policy.Policy `json:"policy"` // as its source wrote it, without overrides
	// the policy with its overrides; without overrides it is missing
	InForce *policy.Policy `json:"in_force,omitempty"`
	// overrides of the whole policy, the oldest first
	Overrides inforce.Levers `json:"overrides,omitempty"`
	api.PolicyState
}

// Policies is the list of them.
type Policies struct {
	Policies []Policy `json:"policies"`
}

func described(e inforce.Entry) Policy {
	p := Policy{Policy: e.Written, Overrides: e.Levers, PolicyState: api.PolicyState{
		Revision: e.Revision, Source: e.Source, Set: e.Set, State: inforce.StateLive,
		Last: e.Last, Paused: e.Paused, Overridden: e.Overridden(time.Now())}}
	if e.Draining {
		p.State = inforce.StateDraining
	}
	if len(e.Levers) > 0 {
		p.InForce = &e.Policy
	}
	p.News = news(p.PolicyState, time.Now())
	return p
}

// Write is the conditions of a change.
type Write struct {
	// If reports whether this revision may be overwritten (0: the policy is new); nil: any.
	If     func(revision uint64) bool
	DryRun bool
	// why the caller must not write it
	Possible func(before, p policy.Policy) []policy.Problem
	Paused   *bool // as the caller assumes; otherwise ErrConflict
	// For is how long an override of a whole policy lasts (0: until it is removed), Because why it
	// was made.
	For     time.Duration
	Because string
}

func (w Write) check(revision uint64) error {
	switch {
	case w.If == nil || w.If(revision):
		return nil
	case revision == 0:
		return fmt.Errorf("%w: it does not exist", admit.ErrPrecondition)
	}
	return fmt.Errorf("%w: the revision is %d", admit.ErrPrecondition, revision)
}

// checkPolicy also checks the pause.
func (w Write) checkPolicy(e inforce.Entry) error {
	if err := w.check(e.Revision); err != nil || w.Paused == nil || *w.Paused == e.Paused {
		return err
	}
	return fmt.Errorf("%w: paused is %t: change it with POST /v1/pause or /v1/resume",
		admission.ErrConflict, e.Paused)
}

// Policies lists all policies by name.
func (s *Service) Policies(ctx context.Context) ([]Policy, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	set, err := s.policies.Policies(ctx)
	if err != nil {
		return nil, translate(err)
	}
	policies := make([]Policy, 0, len(set))
	for _, name := range slices.Sorted(maps.Keys(set)) {
		policies = append(policies, described(*set[name]))
	}
	return policies, nil
}

// Policy returns a policy, or admission.ErrUnknownPolicy.
func (s *Service) Policy(ctx context.Context, name string) (Policy, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	entry, err := s.entry(ctx, name)
	return described(entry), err
}

// Day returns a policy's counts of each minute of the last day.
func (s *Service) Day(ctx context.Context, name string) (api.Day, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.queued(ctx, name); err != nil {
		return api.Day{}, err
	}
	day, err := s.broker.Tally().Day(ctx, name)
	return day, translate(err)
}

// PutPolicy creates or replaces a policy of the API, or revives a draining one. Overrides persist.
// An impossible change, such as a capacity below a bucket's depth, is also an ErrConflict.
func (s *Service) PutPolicy(ctx context.Context, p policy.Policy,
	w Write) (written Policy, created bool, err error) {
	if err := policy.Invalid(p.Validate()); err != nil {
		return Policy{}, false, err
	}
	return s.writePolicy(ctx, p.Name, w, func(inforce.Entry) (policy.Policy, error) {
		return p, nil
	})
}

// PatchPolicy applies a JSON merge patch (RFC 7396). Of a file's policy it can only override
// numbers; see [Service.OverridePolicy].
func (s *Service) PatchPolicy(ctx context.Context, name string, patch []byte,
	w Write) (Policy, error) {
	entry, err := s.entry(ctx, name)
	if err != nil {
		return Policy{}, err
	}
	if entry.Source == inforce.SourceFile {
		if inforce.Overrides(patch) {
			return s.OverridePolicy(ctx, name, patch, w)
		}
		// A slip of the finger is no wish to change the file.
		if _, err := policy.Parse(patch); err != nil {
			return Policy{}, err
		}
	}
	patched, _, err := s.writePolicy(ctx, name, w, func(current inforce.Entry) (policy.Policy,
		error) {
		if current.Written.Name == "" {
			return policy.Policy{}, admit.UnknownPolicy(name)
		}
		if current.Draining {
			return policy.Policy{}, fmt.Errorf("%w: policy %q is draining: PUT revives it",
				admission.ErrConflict, name)
		}
		p, err := inforce.Patch(current.Written, patch)
		if err == nil && p.Name != name {
			err = &admission.RequestError{Field: "name",
				Reason: "cannot be changed: create another policy"}
		}
		if err == nil {
			err = policy.Invalid(p.Validate())
		}
		return p, err
	})
	return patched, err
}

func (s *Service) writePolicy(ctx context.Context, name string, w Write,
	next func(current inforce.Entry) (policy.Policy, error)) (Policy, bool, error) {

	return s.change(ctx, name, "policy written through the API", w, store.Change{Act: store.Write,
		Edit: func(before inforce.Entry, after *inforce.Entry) error {
			p, err := next(before)
			if err != nil {
				return err
			}
			p = inforce.Keeping(p, before.Written).WithDefaults()
			after.Written = p
			stands := before.Written
			if before.Draining {
				stands = policy.Policy{}
			}
			problems := append(s.options.Possible(stands, p),
				p.CheckPrefix(s.broker.Names().Prefix())...)
			if w.Possible != nil {
				problems = append(problems, w.Possible(before.Written, p)...)
			}
			return policy.Invalid(problems)
		}})
}

// change does an act to a whole policy, lists it, and returns the policy once this process follows
// it: the client may publish at once.
func (s *Service) change(ctx context.Context, name, what string, w Write, c store.Change) (Policy,
	bool, error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	edit, lowered, tried := c.Edit, false, false
	var refused error // by the caller's mistake
	c.Dry = w.DryRun
	c.Edit = func(before inforce.Entry, after *inforce.Entry) (err error) {
		if refused = w.checkPolicy(before); refused == nil && edit != nil {
			refused = edit(before, after)
		}
		if refused == nil && c.Act == store.Write {
			lowered, err = s.lower(ctx, before, *after, w.DryRun)
		}
		tried = refused == nil && err == nil
		return cmp.Or(refused, err)
	}
	before, after, err := s.policies.Change(ctx, name, c)
	if err != nil && lowered {
		s.restore(ctx, name)
	}
	switch {
	case refused != nil:
		return Policy{}, false, translate(refused)
	case errors.Is(err, jet.ErrNotFound):
		return Policy{}, false, admit.UnknownPolicy(name)
	}
	created, changed := before.Written.Name == "", inforce.Diff(before.Written, after.Written)
	switch {
	case created:
		changed = inforce.Fields(after.Written)
	case c.Act == store.Pull:
		changed = before.Difference(after)
	case c.Act == store.Delete:
		changed = inforce.Fields(before.Written)
	}
	err = conflict(err)
	if tried && !w.DryRun && (err != nil || after.Revision != before.Revision) {
		args := []any{"policy", name, "revision", after.Revision, "new", created,
			"changed", changed}
		if w.For > 0 {
			args = append(args, "for", policy.Duration(w.For))
		}
		if w.Because != "" {
			args = append(args, "because", w.Because)
		}
		s.NoteTried(ctx, err, what, args...)
	}
	if err != nil {
		return Policy{}, false, err
	}
	if !w.DryRun { // also a repeat: the first request may have been interrupted
		s.enforce(ctx, after, lowered)
	}
	answer := described(after)
	if answer.DryRun = w.DryRun; !created {
		answer.Changed = changed
	}
	return answer, created, nil
}

// enforce updates the stream, as every admitter does, and waits until this process follows the
// policy.
func (s *Service) enforce(ctx context.Context, entry inforce.Entry, lowered bool) {
	name := entry.Policy.Name
	if !lowered && !entry.Draining {
		if err := s.broker.Apply(ctx, entry.Policy); err != nil {
			s.options.Logger.Warn("the stream of a policy written through the API is not ready yet",
				"policy", name, "error", err)
		}
	}
	s.awaitFollowed(ctx, name, entry.Revision)
}

// lower rejects a capacity in use. Only the stream can tell without a race, so it is lowered before
// the record, except for a draining policy, which stays closed until its record opens it.
func (s *Service) lower(ctx context.Context, before, after inforce.Entry, dry bool) (bool, error) {
	after.InForce()
	if !before.Policy.HasQueue() || !after.Policy.HasQueue() ||
		!before.Draining && after.Policy.QueueCapacity() >= before.Policy.QueueCapacity() {
		return false, nil
	}
	if before.Draining || dry {
		return false, s.broker.CheckCapacity(ctx, after.Policy)
	}
	if err := inforce.CheckChange(before.Written, after.Written); err != nil {
		return false, err
	}
	return true, s.broker.Apply(ctx, after.Policy)
}

func (s *Service) restore(ctx context.Context, name string) {
	ctx, cancel := s.bounded(context.WithoutCancel(ctx))
	defer cancel()
	entry, err := s.entry(ctx, name)
	if err == nil && !entry.Draining {
		err = s.broker.Apply(ctx, entry.Policy)
	}
	if err != nil {
		s.options.Logger.Warn(
			"the stream of a policy whose change was given up is not as the policy says yet",
			"policy", name, "error", err)
	}
}

// conflict: an invalid change is one.
func conflict(err error) error {
	if invalid, ok := errors.AsType[*policy.InvalidError](err); ok {
		return fmt.Errorf("%w: %w", admission.ErrConflict, invalid)
	}
	return translate(err)
}

func (s *Service) awaitFollowed(ctx context.Context, name string, revision uint64) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout/5)
	defer cancel()
	s.options.Followed(ctx, name, revision)
}

// OverridePolicy applies a JSON merge patch of a [inforce.Override] to a whole policy, of a file or
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
	lever := inforce.Lever{By: cmp.Or(by.name, host), At: time.Now().UTC().
		Truncate(time.Second), Because: w.Because}
	if w.For > 0 {
		expires := lever.At.Add(w.For)
		lever.Expires = &expires
	}
	return s.pull(ctx, name, what, w, func(l inforce.Levers) (inforce.Levers, error) {
		return l.Patch(patch, lever)
	})
}

// RestorePolicy removes all overrides of a whole policy, which also ends its pause.
func (s *Service) RestorePolicy(ctx context.Context, name string, w Write) (Policy, error) {
	return s.pull(ctx, name, "overrides of the policy removed", w,
		func(inforce.Levers) (inforce.Levers, error) { return nil, nil })
}

func (s *Service) pull(ctx context.Context, name, what string, w Write,
	next func(inforce.Levers) (inforce.Levers, error)) (Policy, error) {

	p, _, err := s.change(ctx, name, what, w, store.Change{Act: store.Pull,
		Edit: func(before inforce.Entry, after *inforce.Entry) (err error) {
			if after.Levers, err = next(before.Levers); err != nil {
				return err
			}
			o := after.Levers.Override()
			if len(inforce.Diff(before.Levers.Override(), o)) == 0 {
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

const (
	purgesAtOnce  = 16
	deletionWait  = 2 * time.Second // for jobs whose end is being stored
	deletionAgain = 50 * time.Millisecond
)

// DeletePolicy ends a policy: it drains, and goes with its overrides once its queue is empty; dead
// letters stay. purge drops the jobs that wait. A file's policy is an ErrConflict.
func (s *Service) DeletePolicy(ctx context.Context, name string, purge bool,
	w Write) (d api.Deleted, err error) {
	ctx, cancel := s.boundedBulk(ctx)
	defer cancel()
	p, _, err := s.change(ctx, name, "policy deleted through the API", w,
		store.Change{Act: store.Delete})
	if err != nil {
		return d, err
	}
	d.Policy = name
	d.Deleted, err = s.policies.Forget(ctx, name) // it closes the queue
	if err == nil && !d.Deleted && purge {
		if d.Removed, err = s.purgeAll(ctx, p.Policy); err == nil {
			d.Deleted, err = s.forget(ctx, name)
		}
		s.NoteTried(ctx, translate(err), "policy purged", "policy", name, "removed", d.Removed)
	}
	if d.Deleted {
		s.awaitFollowed(ctx, name, 0)
	} else if err == nil {
		d.Jobs, err = s.broker.Depth(ctx, name)
	}
	if errors.Is(err, jet.ErrNoStream) {
		err = nil
	}
	return d, translate(err)
}

func (s *Service) forget(ctx context.Context, name string) (gone bool, err error) {
	for until := time.Now().Add(deletionWait); ; {
		gone, err = s.policies.Forget(ctx, name)
		if gone || err != nil || time.Now().After(until) {
			return gone, err
		}
		select {
		case <-time.After(deletionAgain):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// purgeAll skips partitions that do not answer.
func (s *Service) purgeAll(ctx context.Context, p policy.Policy) (removed int, err error) {
	depths, err := s.broker.Depths(ctx, p.Name)
	if errors.Is(err, jet.ErrNoStream) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var n atomic.Int64
	_ = each(purgesAtOnce, slices.Collect(maps.Keys(depths)), func(key *queue.Key) error {
		got, _, err := s.purge(ctx, p, *key)
		n.Add(int64(got))
		return err
	})
	return int(n.Load()), nil
}
