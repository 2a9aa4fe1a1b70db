package manage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/policy"
)

// Policy is a policy's document.
type Policy struct {
	Policy policy.Policy `json:"policy"` // as its source wrote it, without overrides
	// the policy with its overrides; without overrides it is missing
	InForce *policy.Policy `json:"in_force,omitempty"`
	// overrides of the whole policy, the oldest first
	Overrides policy.Levers `json:"overrides,omitempty"`
	api.PolicyState
}

// Policies is the list of them.
type Policies struct {
	Policies []Policy `json:"policies"`
}

func described(e policy.Entry) Policy {
	p := Policy{Policy: e.Written, Overrides: e.Levers, PolicyState: api.PolicyState{
		Revision: e.Revision, Source: e.Source, Set: e.Set, State: policy.StateLive,
		Paused: e.Paused, Overridden: e.Overridden(time.Now())}}
	if e.Draining {
		p.State = policy.StateDraining
	}
	if len(e.Levers) > 0 {
		p.InForce = &e.Policy
	}
	if e.Last != nil {
		p.Last = &api.LastChange{At: e.Last.At, Changed: e.Last.Changed}
	}
	p.News = news(p.PolicyState, time.Now())
	return p
}

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
		return fmt.Errorf("%w: it does not exist", admission.ErrPrecondition)
	}
	return fmt.Errorf("%w: the revision is %d", admission.ErrPrecondition, revision)
}

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

func (s *Service) Policy(ctx context.Context, name string) (Policy, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	entry, err := s.entry(ctx, name)
	return described(entry), err
}

func (s *Service) Day(ctx context.Context, name string) (api.Day, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.queued(ctx, name); err != nil {
		return api.Day{}, err
	}
	day, err := s.broker.Day(ctx, name)
	return day, translate(err)
}

// PutPolicy creates or replaces a policy of the API, or revives a draining one. Overrides persist.
// An impossible change, such as a capacity below a bucket's depth, is also an ErrConflict.
func (s *Service) PutPolicy(ctx context.Context, p policy.Policy,
	w Write) (written Policy, created bool, err error) {
	if err := policy.Invalid(p.Validate()); err != nil {
		return Policy{}, false, err
	}
	leave, err := s.turn(ctx, p.Name, w)
	if err != nil {
		return Policy{}, false, err
	}
	defer leave()
	return s.writePolicy(ctx, p.Name, w, func(*policy.Entry) (policy.Policy, error) {
		return p, nil
	})
}

func (s *Service) turn(ctx context.Context, name string, w Write) (leave func(), err error) {
	if s.broker.Replicas() < 2 || w.DryRun {
		return func() {}, nil
	}
	if _, err := s.Policy(ctx, name); !errors.Is(err, admission.ErrUnknownPolicy) {
		return func() {}, nil
	}
	return s.making.take(ctx)
}

// making holds one token while a policy's streams are made on several servers, and then for the
// same time again, which slows down submissions.
type making chan struct{}

func (m making) take(ctx context.Context) (leave func(), err error) {
	select {
	case m <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: other policies are being created", admission.ErrUnavailable)
	}
	began := time.Now()
	return func() {
		time.AfterFunc(time.Since(began), func() { <-m })
	}, nil
}

// PatchPolicy applies a JSON merge patch (RFC 7396). Of a file's policy it can only override
// numbers; see [Service.OverridePolicy].
func (s *Service) PatchPolicy(ctx context.Context, name string, patch []byte,
	w Write) (Policy, error) {
	entry, err := s.entry(ctx, name)
	if err != nil {
		return Policy{}, err
	}
	if entry.Source == policy.SourceFile && policy.Overrides(patch) {
		return s.OverridePolicy(ctx, name, patch, w)
	}
	patched, _, err := s.writePolicy(ctx, name, w, func(current *policy.Entry) (policy.Policy,
		error) {
		if current == nil {
			return policy.Policy{}, admission.UnknownPolicy(name)
		}
		if current.Draining {
			return policy.Policy{}, fmt.Errorf("%w: policy %q is draining: PUT revives it",
				admission.ErrConflict, name)
		}
		p, err := current.Written.Patch(patch)
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
	next func(current *policy.Entry) (policy.Policy, error)) (Policy, bool, error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	c := policyChange{s: s, w: w, next: next}
	entry, err := s.policies.Change(ctx, name, w.DryRun, func(current *policy.Entry) (policy.Policy,
		error) {
		return c.of(ctx, current)
	})
	note := func(err error) {
		s.NoteTried(ctx, err, "policy written through the API", "policy", name, "revision",
			entry.Revision, "new", c.created, "changed", c.noted)
	}
	if err != nil {
		if c.lowered {
			s.restore(ctx, name)
		}
		if c.unfit != nil {
			return Policy{}, false, translate(c.unfit)
		}
		if err = change(err); len(c.noted) > 0 && !w.DryRun {
			note(err)
		}
		return Policy{}, false, err
	}
	if !w.DryRun && entry.Revision != c.revision {
		var noting sync.WaitGroup
		defer noting.Wait()
		noting.Go(func() { note(nil) })
	}
	if !w.DryRun { // also a repeat: the first request may have been interrupted
		s.enforce(ctx, entry, c.lowered)
	}
	answer := described(entry)
	answer.Changed, answer.DryRun = c.changed, w.DryRun
	return answer, c.created, nil
}

type policyChange struct {
	s    *Service
	w    Write
	next func(current *policy.Entry) (policy.Policy, error)

	created  bool
	revision uint64 // before the change
	changed  policy.Changes
	noted    policy.Changes // changed, or all fields of a new policy
	unfit    error          // the caller's mistake, and no conflict
	lowered  bool           // the stream has the new capacity
}

func (c *policyChange) of(ctx context.Context, current *policy.Entry) (policy.Policy, error) {
	var before policy.Entry
	if c.created = current == nil; !c.created {
		before = *current
	}
	c.revision = before.Revision
	p, err := c.fit(before, current)
	if c.unfit = err; err != nil {
		return policy.Policy{}, err
	}
	if c.w.Paused != nil && *c.w.Paused != before.Paused {
		return policy.Policy{}, pausedOtherwise(before)
	}
	if c.created {
		c.noted = policy.Fields(p)
		return p, nil
	}
	c.changed = policy.Diff(before.Written, p)
	c.noted = c.changed
	c.lowered, err = c.s.lower(ctx, before, p, c.w.DryRun)
	return p, err
}

func (c *policyChange) fit(before policy.Entry, current *policy.Entry) (policy.Policy, error) {
	if err := c.w.check(before.Revision); err != nil {
		return policy.Policy{}, err
	}
	p, err := c.next(current)
	if err != nil {
		return policy.Policy{}, err
	}
	p = p.Keeping(before.Written).WithDefaults()
	stands := before.Written
	if before.Draining {
		stands = policy.Policy{}
	}
	problems := append(c.s.options.Possible(stands, p),
		p.CheckPrefix(c.s.broker.Names().Prefix())...)
	if c.w.Possible != nil {
		problems = append(problems, c.w.Possible(before.Written, p)...)
	}
	return p, policy.Invalid(problems)
}

// enforce updates the stream, as every admitter does, and waits until this process follows the
// policy: the client may publish at once.
func (s *Service) enforce(ctx context.Context, entry policy.Entry, lowered bool) {
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
func (s *Service) lower(ctx context.Context, before policy.Entry, p policy.Policy,
	dry bool) (bool, error) {
	after := before
	after.Written = p
	after.InForce()
	if !before.Policy.HasQueue() || !p.HasQueue() ||
		!before.Draining && after.Policy.QueueCapacity() >= before.Policy.QueueCapacity() {
		return false, nil
	}
	if before.Draining || dry {
		return false, s.broker.CheckCapacity(ctx, after.Policy)
	}
	if err := policy.CheckChange(before.Written, p); err != nil {
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

// An invalid change is a conflict.
func change(err error) error {
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
