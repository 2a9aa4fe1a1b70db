package manage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/policy/store"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// Policy is a policy with what is known of it beside its content.
type Policy struct {
	Policy   policy.Policy `json:"policy"`   // with its defaults
	Revision uint64        `json:"revision"` // grows with every change
	Source   string        `json:"source"`   // "file" or "api": who wrote the content
	// of the file that the policy is in, or was when it left it
	Set    string `json:"set,omitempty"`
	Paused bool   `json:"paused"` // its jobs wait until somebody resumes it
	// it takes no new jobs and ends when its queue is empty
	Retired bool `json:"retired"`

	Deleting bool `json:"deleting,omitempty"` // it was deleted, and goes when its queue is empty
	// what its content became last; nil: what it was made, or not known
	Last *policy.LastChange `json:"last_change,omitempty"`

	// Of a change only: what became of each field, and that nothing was written.

	Changed policy.Changes `json:"changed,omitempty"`
	DryRun  bool           `json:"dry_run,omitempty"`
	// what the file that the policy is in does to the change; empty: it is in none
	Note string `json:"note,omitempty"`
}

// fileNote is said of a change through the API to a policy that is in a file.
const fileNote = "the file of set %s writes over this when its text of the policy changes, " +
	"and not before"

func described(e policy.Entry) Policy {
	return Policy{Policy: e.Policy, Revision: e.Revision, Source: e.Source, Set: e.Set,
		Paused: e.Paused, Retired: e.Retired, Deleting: e.Deleting, Last: e.Last}
}

// Write says how a policy or an override is written. The zero value writes over whatever is there.
type Write struct {
	// If reports whether what has this revision may be written over, 0 for nothing at all; nil:
	// anything may. What may not is [admission.ErrPrecondition]. It holds under races: nothing else
	// is written over.
	If func(revision uint64) bool
	// DryRun checks everything and writes nothing. The answer is what would be, with the present
	// revision.
	DryRun bool
	// Possible returns what keeps the caller from writing a policy that is valid, as it would then
	// be; nil: nothing does.
	Possible func(before, p policy.Policy) []policy.Problem
	// Paused is whether the caller takes the policy for paused, which is no part of its content;
	// nil: it does not care. If the policy's pause is otherwise that is ErrConflict, so that no
	// caller believes to have changed it.
	Paused *bool
}

// check refuses what stands at a revision.
func (w Write) check(revision uint64) error {
	switch {
	case w.If == nil || w.If(revision):
		return nil
	case revision == 0:
		return fmt.Errorf("%w: there is nothing here", admission.ErrPrecondition)
	}
	return fmt.Errorf("%w: what is here has revision %d", admission.ErrPrecondition, revision)
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
		policies = append(policies, described(set[name]))
	}
	return policies, nil
}

// Policy returns one policy as it is now.
func (s *Service) Policy(ctx context.Context, name string) (Policy, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	entry, err := s.entry(ctx, name)
	if err != nil {
		return Policy{}, err
	}
	return described(entry), nil
}

// Day returns what happened to the jobs of a policy in each minute of the last day.
func (s *Service) Day(ctx context.Context, name string) (queue.Day, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.queued(ctx, name); err != nil {
		return queue.Day{}, err
	}
	day, err := s.broker.Day(ctx, name)
	return day, translate(err)
}

// PutPolicy creates a policy or replaces one as a whole, for all processes, and reports whether it
// is new. A pause stays. A policy that cannot be is an [*policy.InvalidError]; one that the present
// one cannot become is that and ErrConflict, as is a capacity below what a bucket holds now. A
// retired policy takes jobs again.
func (s *Service) PutPolicy(ctx context.Context, p policy.Policy,
	w Write) (written Policy, created bool, err error) {
	if err := policy.Invalid(p.Validate()); err != nil {
		return Policy{}, false, err
	}
	return s.writePolicy(ctx, p.Name, w, func(*policy.Entry) (policy.Policy, error) {
		return p, nil
	})
}

// PatchPolicy changes those fields of a policy that a JSON merge patch (RFC 7396) names, as
// PutPolicy changes it. One that does not exist is ErrUnknownPolicy, one that has retired
// ErrConflict: a patch names nothing that would revive it.
func (s *Service) PatchPolicy(ctx context.Context, name string, patch []byte,
	w Write) (Policy, error) {
	patched, _, err := s.writePolicy(ctx, name, w, func(current *policy.Entry) (policy.Policy,
		error) {
		if current == nil {
			return policy.Policy{}, admission.UnknownPolicy(name)
		}
		if current.Retired {
			return policy.Policy{}, fmt.Errorf("%w: policy %q has retired: a PUT revives it",
				admission.ErrConflict, name)
		}
		p, err := current.Policy.Patch(patch)
		if err == nil && p.Name != name {
			err = &admission.RequestError{Field: "name",
				Reason: "cannot change: create another policy"}
		}
		if err == nil {
			err = policy.Invalid(p.Validate())
		}
		return p, err
	})
	return patched, err
}

// unfit marks what is wrong with a policy by itself, and not with the change that it would be.
type unfit struct{ error }

func (u unfit) Unwrap() error { return u.error }

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
	if err != nil {
		if c.lowered {
			s.restore(ctx, name)
		}
		return Policy{}, false, rejected(err)
	}
	if !w.DryRun {
		s.log(ctx, "policy written through the API", "policy", name, "revision", entry.Revision,
			"new", c.created, "changed", c.changed)
		s.enforce(ctx, entry, c.lowered)
	}
	answer := described(entry)
	answer.Changed, answer.DryRun = c.changed, w.DryRun
	if answer.Set != "" && len(c.changed) > 0 {
		answer.Note = fmt.Sprintf(fileNote, answer.Set)
	}
	return answer, c.created, nil
}

// policyChange is a change of a policy while it is checked. It is begun again when another change
// was faster.
type policyChange struct {
	s    *Service
	w    Write
	next func(current *policy.Entry) (policy.Policy, error)

	created bool
	changed policy.Changes
	lowered bool // the stream has the new capacity already
}

// of returns what the present policy becomes; current is nil if there is none.
func (c *policyChange) of(ctx context.Context, current *policy.Entry) (policy.Policy, error) {
	var before policy.Entry
	if c.created = current == nil; !c.created {
		before = *current
	}
	p, err := c.fit(before, current)
	if err != nil {
		return policy.Policy{}, unfit{err}
	}
	if c.w.Paused != nil && *c.w.Paused != before.Paused {
		return policy.Policy{}, fmt.Errorf(
			"%w: paused is %t, and no part of the policy: POST /v1/pause or /v1/resume changes it",
			admission.ErrConflict, before.Paused)
	}
	if c.created {
		return p, nil
	}
	c.changed = policy.Diff(before.Policy, p)
	c.lowered, err = c.s.lower(ctx, before, p, c.w.DryRun)
	return p, err
}

// fit returns the new policy, with its defaults, if this installation can have it.
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
		stands = policy.Policy{} // what comes back is judged as if it were new
	}
	problems := append(c.s.options.Possible(stands, p),
		p.CheckPrefix(c.s.broker.Names().Prefix())...)
	if c.w.Possible != nil {
		problems = append(problems, c.w.Possible(before.Policy, p)...)
	}
	return p, policy.Invalid(problems)
}

// enforce makes the stream of a policy that was written, unless it was lowered before, and waits
// until this process follows the policy: a client that waits for the answer can publish at once. An
// error is no reason to fail, because every admitter does the same.
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

// lower refuses a capacity that is in use before anything is written. The stream alone can tell
// without a race, so it is lowered first; but the door of a retired policy is closed and stays so
// until the record says that it is to open, and a dry run only looks.
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

// restore gives the stream of a policy its former form, as the record has it, when a change got no
// further than the stream.
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

// rejected translates an error of a change.
func rejected(err error) error {
	if bad, ok := errors.AsType[unfit](err); ok {
		return translate(bad.error)
	}
	return change(err)
}

// change translates an error about a stored policy: what it cannot become is no fault of the new
// one by itself.
func change(err error) error {
	if invalid, ok := errors.AsType[*policy.InvalidError](err); ok {
		return fmt.Errorf("%w: %w", admission.ErrConflict, invalid)
	}
	return translate(err)
}

// awaitFollowed returns when this process follows a policy in a revision, so that the caller's next
// request meets it.
func (s *Service) awaitFollowed(ctx context.Context, name string, revision uint64) {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	s.options.Followed(ctx, name, revision)
}

// PausePolicy holds all jobs of a policy back, or lets them go on. Jobs that run finish, and new
// ones are taken. It lasts until it is taken back, through restarts and changes of the policy.
func (s *Service) PausePolicy(ctx context.Context, name string, paused bool) (Policy, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.queued(ctx, name); err != nil {
		return Policy{}, err
	}
	revision, err := s.policies.SetPaused(ctx, name, paused)
	if err != nil {
		return Policy{}, translate(err)
	}
	s.log(ctx, "policy paused or resumed", "policy", name, "paused", paused)
	s.awaitFollowed(ctx, name, revision)
	return s.Policy(ctx, name)
}

// Override is what one key follows in place of its policy's numbers.
type Override struct {
	Key      string          `json:"key"`
	Override policy.Override `json:"override"` // zero: the key follows its policy
	Revision uint64          `json:"-"`        // grows with every change; 0 when there is none

	// Of a change only: what became of each field, and that nothing was written.

	Changed policy.Changes `json:"changed,omitempty"`
	DryRun  bool           `json:"dry_run,omitempty"`
}

// Overrides is one page of a policy's overrides.
type Overrides struct {
	Overrides []Override `json:"overrides"`
	// the page after this one begins after this key; nil: this is the last
	Next *string `json:"next,omitempty"`
}

// Overrides lists the overrides of a policy, at most limit of those after a key. The first page
// begins after "".
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

// Override returns one key's override; ErrNotFound when it has none.
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

// PutOverride replaces a key's override as a whole, a pause included. One that changes nothing is
// taken away.
func (s *Service) PutOverride(ctx context.Context, name string, key job.Key, o policy.Override,
	w Write) (
	Override, error) {

	return s.changeOverride(ctx, name, key, w, func(p policy.Policy,
		_ policy.Override) (policy.Override, error) {
		return o, policy.Invalid(o.Validate(p))
	})
}

// PatchOverride changes those fields of a key's override that a JSON merge patch (RFC 7396) names;
// null is the policy's. A key without an override begins with nothing.
func (s *Service) PatchOverride(ctx context.Context, name string, key job.Key, patch []byte,
	w Write) (Override, error) {
	return s.changeOverride(ctx, name, key, w, func(p policy.Policy,
		o policy.Override) (policy.Override, error) {
		o, err := o.Patch(patch)
		if err == nil {
			err = policy.Invalid(o.Validate(p))
		}
		return o, err
	})
}

// PauseKey holds the jobs of one bucket back, or lets them go on, and leaves the rest of the key's
// override as it is.
func (s *Service) PauseKey(ctx context.Context, name string, key job.Key,
	paused bool) (Override, error) {
	o, err := s.changeOverride(ctx, name, key, Write{}, func(_ policy.Policy,
		o policy.Override) (policy.Override, error) {
		o.Paused = paused
		return o, nil
	})
	o.Changed = nil
	return o, err
}

// errDry ends the change of an override that is only tried.
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
	o := Override{Key: key.Raw(), DryRun: w.DryRun}
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
	if err != nil {
		return Override{}, translate(err)
	}
	o.Revision = written.Revision
	s.log(ctx, "override written through the API", "policy", name, "key", key.Raw(), "revision",
		o.Revision, "changed", o.Changed)
	return o, nil
}

// DeleteOverride lets a key follow its policy again, which also ends a pause of the key. A key
// without an override is no error.
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
		// even what cannot be understood can be taken away
		err = s.policies.DeleteOverride(ctx, name, key)
	}
	if err != nil {
		return translate(err)
	}
	s.log(ctx, "override deleted through the API", "policy", name, "key", key.Raw(),
		"changed", policy.Diff(before, policy.Override{}))
	return nil
}
