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
	"github.com/penstock-mq/penstock/policy/store"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// Policy is a policy's document.
type Policy struct {
	Policy policy.Policy `json:"policy"`
	api.PolicyState
}

// Policies is the list of them.
type Policies struct {
	Policies []Policy `json:"policies"`
}

const fileNote = "the file of set %s overwrites this once its own text of the policy changes"

func described(e policy.Entry) Policy {
	p := Policy{e.Policy, api.PolicyState{Revision: e.Revision, Source: e.Source, Set: e.Set,
		Paused: e.Paused, Retired: e.Retired, Deleting: e.Deleting}}
	if e.Last != nil {
		p.Last = &api.LastChange{At: e.Last.At, Changed: e.Last.Changed}
	}
	return p
}

type Write struct {
	// If reports whether this revision may be overwritten (0: the policy is new); nil: any.
	If     func(revision uint64) bool
	DryRun bool
	// why the caller must not write it
	Possible func(before, p policy.Policy) []policy.Problem
	Paused   *bool // as the caller assumes; otherwise ErrConflict
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

// PutPolicy creates or replaces a policy, or revives a retired one. A pause persists. An impossible
// change, such as a capacity below a bucket's depth, is also an ErrConflict.
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

// RFC 7396
func (s *Service) PatchPolicy(ctx context.Context, name string, patch []byte,
	w Write) (Policy, error) {
	if !policy.IsName(name) { // perhaps another record of the table
		return Policy{}, admission.UnknownPolicy(name)
	}
	patched, _, err := s.writePolicy(ctx, name, w, func(current *policy.Entry) (policy.Policy,
		error) {
		if current == nil {
			return policy.Policy{}, admission.UnknownPolicy(name)
		}
		if current.Retired {
			return policy.Policy{}, fmt.Errorf("%w: policy %q is retired: PUT revives it",
				admission.ErrConflict, name)
		}
		p, err := current.Policy.Patch(patch)
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
	write := s.policies.Change
	if w.DryRun {
		write = s.policies.Try
	}
	entry, err := write(ctx, name, func(current *policy.Entry) (policy.Policy, error) {
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
	if answer.Set != "" && len(c.changed) > 0 {
		answer.Note = fmt.Sprintf(fileNote, answer.Set)
	}
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
		return policy.Policy{}, fmt.Errorf(
			"%w: paused is %t: change it with POST /v1/pause or /v1/resume",
			admission.ErrConflict, before.Paused)
	}
	if c.created {
		c.noted = policy.Fields(p)
		return p, nil
	}
	c.changed = policy.Diff(before.Policy, p)
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
	p = p.Keeping(before.Policy).WithDefaults()
	stands := before.Policy
	if before.Retired {
		stands = policy.Policy{}
	}
	problems := append(c.s.options.Possible(stands, p),
		p.CheckPrefix(c.s.broker.Names().Prefix())...)
	if c.w.Possible != nil {
		problems = append(problems, c.w.Possible(before.Policy, p)...)
	}
	return p, policy.Invalid(problems)
}

// enforce updates the stream, as every admitter does, and waits until this process follows the
// policy: the client may publish at once.
func (s *Service) enforce(ctx context.Context, entry policy.Entry, lowered bool) {
	name := entry.Policy.Name
	if !lowered {
		if err := s.broker.Apply(ctx, entry.Policy); err != nil {
			s.options.Logger.Warn("the stream of a policy written through the API is not ready yet",
				"policy", name, "error", err)
		}
	}
	s.awaitFollowed(ctx, name, entry.Revision)
}

// lower rejects a capacity in use. Only the stream can tell without a race, so it is lowered before
// the record, except for a retired policy, which stays closed until its record opens it.
func (s *Service) lower(ctx context.Context, before policy.Entry, p policy.Policy,
	dry bool) (bool, error) {
	if !before.Policy.HasQueue() || !p.HasQueue() ||
		!before.Retired && p.QueueCapacity() >= before.Policy.QueueCapacity() {
		return false, nil
	}
	if before.Retired || dry {
		return false, s.broker.CheckCapacity(ctx, p)
	}
	if err := policy.CheckChange(before.Policy, p); err != nil {
		return false, err
	}
	return true, s.broker.Apply(ctx, p)
}

func (s *Service) restore(ctx context.Context, name string) {
	ctx, cancel := s.bounded(context.WithoutCancel(ctx))
	defer cancel()
	entry, err := s.entry(ctx, name)
	if err == nil && !entry.Retired {
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

// PausePolicy pauses or resumes all buckets. The end of a pause ends their cool-downs too.
func (s *Service) PausePolicy(ctx context.Context, name string, paused bool) (Policy, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	before, err := s.queued(ctx, name)
	if err != nil {
		return Policy{}, err
	}
	revision, err := s.policies.SetPaused(ctx, name, paused)
	err = translate(err)
	s.NoteTried(ctx, err, "policy paused or resumed", "policy", name, "changed",
		policy.Changes{fmt.Sprintf("paused %t → %t", before.Paused, paused)})
	if err != nil {
		return Policy{}, err
	}
	s.awaitFollowed(ctx, name, revision)
	var resumed *api.Resumed
	if !paused {
		resumed = s.resume(ctx, before.Policy, "")
	}
	p, err := s.Policy(ctx, name)
	p.Resumed = resumed
	return p, err
}

// Override is the document of a key's own limits.
type Override struct {
	Key      string          `json:"key"`
	Override policy.Override `json:"override"`
	Revision uint64          `json:"-"`
	api.Written
}

// Overrides is a page of them.
type Overrides struct {
	Overrides []Override `json:"overrides"`
	Next      *string    `json:"next,omitempty"` // the next page's `after`; missing on the last page
}

func (s *Service) Overrides(ctx context.Context, name string, after job.Key,
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

func (s *Service) Override(ctx context.Context, name string, key job.Key) (Override, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.entry(ctx, name); err != nil {
		return Override{}, err
	}
	o, err := s.policies.Override(ctx, name, key)
	if errors.Is(err, queue.ErrNotFound) {
		return Override{}, fmt.Errorf("%w: key %q has no limits of its own", admission.ErrNotFound,
			key.Raw())
	}
	if err != nil {
		return Override{}, translate(err)
	}
	return Override{Key: key.Raw(), Override: o.Override, Revision: o.Revision}, nil
}

// ChangeOverride writes what next makes of an override and its pause. An empty one is removed.
func (s *Service) ChangeOverride(ctx context.Context, name string, key job.Key, w Write,
	next func(policy.Override) (policy.Override, error)) (Override, error) {

	return s.changeOverride(ctx, name, key, w, func(p policy.Policy,
		o policy.Override) (policy.Override, error) {
		o, err := next(o)
		if err == nil {
			err = policy.Invalid(o.Validate(p))
		}
		return o, err
	})
}

// PauseKey leaves the rest of the override unchanged. The end of a pause ends a cool-down too.
func (s *Service) PauseKey(ctx context.Context, name string, key job.Key,
	paused bool) (Override, error) {
	var of policy.Policy
	o, err := s.changeOverride(ctx, name, key, Write{}, func(p policy.Policy,
		o policy.Override) (policy.Override, error) {
		of, o.Paused = p, paused
		return o, nil
	})
	if o.Changed = nil; err == nil && !paused {
		o.Resumed = s.resume(ctx, of, key)
	}
	return o, err
}

var errDry = errors.New("dry run")

func (s *Service) changeOverride(ctx context.Context, name string, key job.Key, w Write,
	change func(policy.Policy, policy.Override) (policy.Override, error)) (Override, error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	entry, err := s.queued(ctx, name)
	if err != nil {
		return Override{}, err
	}
	if entry.Deleting {
		return Override{}, fmt.Errorf("%w: policy %q is being deleted", admission.ErrConflict, name)
	}
	o := Override{Key: key.Raw(), Written: api.Written{DryRun: w.DryRun}}
	written, err := s.policies.ChangeOverride(ctx, name, key, func(
		current store.Override) (policy.Override, error) {
		if err := w.check(current.Revision); err != nil {
			return policy.Override{}, err
		}
		next, err := change(entry.Policy, current.Override)
		o.Override, o.Revision, o.Changed = next, current.Revision, policy.Diff(current.Override,
			next)
		if err == nil && w.DryRun {
			err = errDry
		}
		return next, err
	})
	if invalid, ok := errors.AsType[*policy.InvalidError](err); ok {
		return Override{}, invalid
	}
	if errors.Is(err, errDry) {
		return o, nil
	}
	err = translate(err)
	s.NoteTried(ctx, err, "override written through the API", "policy", name, "key", key.Raw(),
		"revision", written.Revision, "changed",
		policy.Changes(o.Changed))
	if err != nil {
		return Override{}, err
	}
	o.Revision = written.Revision
	return o, nil
}

func (s *Service) DeleteOverride(ctx context.Context, name string, key job.Key, w Write) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.entry(ctx, name); err != nil {
		return err
	}
	var before policy.Override
	_, err := s.policies.ChangeOverride(ctx, name, key, func(
		current store.Override) (policy.Override, error) {
		before = current.Override
		return policy.Override{}, w.check(current.Revision)
	})
	if errors.Is(err, job.ErrVersion) && w.If == nil {
		err = s.policies.DeleteOverride(ctx, name, key)
	}
	err = translate(err)
	s.NoteTried(ctx, err, "override deleted through the API", "policy", name, "key", key.Raw(),
		"changed", policy.Diff(before, policy.Override{}))
	return err
}
