package manage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Policy is a policy with what is known of it beside its content.
type Policy struct {
	Policy   policy.Policy `json:"policy"`   // with its defaults
	Revision uint64        `json:"revision"` // grows with every change
	Source   string        `json:"source"`   // "file" or "api": who wrote the content
	Paused   bool          `json:"paused"`   // its jobs wait until somebody resumes it
	Retired  bool          `json:"retired"`  // it takes no new jobs and ends when its queue is empty
}

func described(e queue.PolicyEntry) Policy {
	return Policy{e.Policy, e.Revision, e.Source, e.Paused, e.Retired}
}

// Policies lists all policies by name.
func (s *Service) Policies(ctx context.Context) ([]Policy, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	set, err := s.broker.Policies(ctx)
	if err != nil {
		return nil, translate(err)
	}
	policies := make([]Policy, 0, len(set))
	for _, name := range slices.Sorted(maps.Keys(set)) {
		policies = append(policies, described(set[name]))
	}
	return policies, nil
}

// Policy is one policy as it is now.
func (s *Service) Policy(ctx context.Context, name string) (Policy, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	entry, err := s.entry(ctx, name)
	if err != nil {
		return Policy{}, err
	}
	return described(entry), nil
}

// PutPolicy creates a policy or changes one as a whole, for all processes, and says whether it is new. A pause stays. A
// policy that cannot be is an [*policy.InvalidError]; one that the present one cannot become is that and ErrConflict,
// as is a capacity below what a bucket holds now. A retired policy takes jobs again.
func (s *Service) PutPolicy(ctx context.Context, p policy.Policy) (put Policy, created bool, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if err := policy.Invalid(p.Validate()); err != nil {
		return Policy{}, false, err
	}
	p = p.WithDefaults()
	if err := policy.Invalid(s.options.Possible(p)); err != nil {
		return Policy{}, false, err
	}
	before, err := s.entry(ctx, p.Name)
	created = errors.Is(err, admission.ErrUnknownPolicy)
	if err != nil && !created {
		return Policy{}, false, err
	}
	// A capacity that is in use is refused before anything is written: the stream alone can tell without a race.
	lower := !created && !before.Retired && before.Policy.HasQueue() && p.QueueCapacity() < before.Policy.QueueCapacity()
	if lower {
		err := policy.CheckChange(before.Policy, p)
		if err == nil {
			err = s.broker.Apply(ctx, p)
		}
		if err != nil {
			return Policy{}, false, change(err)
		}
	}
	revision, err := s.broker.PutPolicy(ctx, p)
	if err != nil {
		return Policy{}, false, change(err)
	}
	s.options.Logger.Info("policy written through the API", "policy", p.Name, "revision", revision, "new", created)
	if !lower {
		// Whoever waits for the answer can publish at once. It is no reason to fail: every admitter does the same.
		if err := s.broker.Apply(ctx, p); err != nil {
			s.options.Logger.Warn("the stream of a policy written through the API is not ready yet", "policy", p.Name,
				"error", err)
		}
	}
	s.follow(ctx, p.Name, revision)
	entry, err := s.entry(ctx, p.Name)
	if err != nil {
		return Policy{}, false, err
	}
	return described(entry), created, nil
}

// change translates an error about a stored policy: what it cannot become is no fault of the new one by itself.
func change(err error) error {
	if invalid, ok := errors.AsType[*policy.InvalidError](err); ok {
		return fmt.Errorf("%w: %w", admission.ErrConflict, invalid)
	}
	return translate(err)
}

func (s *Service) follow(ctx context.Context, name string, revision uint64) {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	s.options.Followed(ctx, name, revision)
}

// PausePolicy holds all jobs of a policy back, or lets them go on. Jobs that run finish, and new ones are taken. It
// lasts until it is taken back, through restarts and changes of the policy.
func (s *Service) PausePolicy(ctx context.Context, name string, paused bool) (Policy, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.queued(ctx, name); err != nil {
		return Policy{}, err
	}
	revision, err := s.broker.SetPaused(ctx, name, paused)
	if err != nil {
		return Policy{}, translate(err)
	}
	s.options.Logger.Info("policy paused or resumed", "policy", name, "paused", paused)
	s.follow(ctx, name, revision)
	return s.Policy(ctx, name)
}

// Override is what one key obeys in place of its policy's numbers.
type Override struct {
	Key      string          `json:"key"`
	Override policy.Override `json:"override"` // zero: the key obeys its policy
}

// Overrides is one page of a policy's overrides.
type Overrides struct {
	Overrides []Override `json:"overrides"`
	Next      *string    `json:"next,omitempty"` // the page after this one begins after this key; nil: this is the last
}

// Overrides lists the overrides of a policy, at most limit of those after a key. The first page begins after "".
func (s *Service) Overrides(ctx context.Context, name string, after queue.Key, limit int) (Overrides, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.entry(ctx, name); err != nil {
		return Overrides{}, err
	}
	found, err := s.broker.Overrides(ctx, name, after, limit+1)
	if err != nil {
		return Overrides{}, translate(err)
	}
	page := Overrides{Overrides: make([]Override, 0, len(found))}
	for i, o := range found {
		if i == limit {
			page.Next = &page.Overrides[limit-1].Key
			break
		}
		page.Overrides = append(page.Overrides, Override{o.Key.Raw(), o.Override})
	}
	return page, nil
}

// Override is one key's override; ErrNotFound when it has none.
func (s *Service) Override(ctx context.Context, name string, key queue.Key) (Override, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.entry(ctx, name); err != nil {
		return Override{}, err
	}
	o, err := s.broker.Override(ctx, name, key)
	if errors.Is(err, queue.ErrNotFound) {
		return Override{}, fmt.Errorf("%w: key %q has no limits of its own", admission.ErrNotFound, key.Raw())
	}
	if err != nil {
		return Override{}, translate(err)
	}
	return Override{key.Raw(), o}, nil
}

// PutOverride replaces a key's override as a whole, a pause included. One that changes nothing is taken away.
func (s *Service) PutOverride(ctx context.Context, name string, key queue.Key, o policy.Override) (Override, error) {
	return s.changeOverride(ctx, name, key, func(p policy.Policy, _ policy.Override) (policy.Override, error) {
		return o, policy.Invalid(o.Validate(p))
	})
}

// PauseKey holds the jobs of one bucket back, or lets them go on, and leaves the rest of the key's override as it is.
func (s *Service) PauseKey(ctx context.Context, name string, key queue.Key, paused bool) (Override, error) {
	return s.changeOverride(ctx, name, key, func(_ policy.Policy, o policy.Override) (policy.Override, error) {
		o.Paused = paused
		return o, nil
	})
}

func (s *Service) changeOverride(ctx context.Context, name string, key queue.Key,
	change func(policy.Policy, policy.Override) (policy.Override, error)) (Override, error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	entry, err := s.queued(ctx, name)
	if err != nil {
		return Override{}, err
	}
	var next policy.Override
	_, err = s.broker.ChangeOverride(ctx, name, key, func(o policy.Override) (policy.Override, error) {
		next, err = change(entry.Policy, o)
		return next, err
	})
	if invalid, ok := errors.AsType[*policy.InvalidError](err); ok {
		return Override{}, invalid
	}
	if err != nil {
		return Override{}, translate(err)
	}
	s.options.Logger.Info("override written through the API", "policy", name, "key", key, "override", next)
	return Override{key.Raw(), next}, nil
}

// DeleteOverride lets a key obey its policy again, which also ends a pause of the key. A key without an override is no
// error.
func (s *Service) DeleteOverride(ctx context.Context, name string, key queue.Key) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.entry(ctx, name); err != nil {
		return err
	}
	if err := s.broker.DeleteOverride(ctx, name, key); err != nil {
		return translate(err)
	}
	s.options.Logger.Info("override deleted through the API", "policy", name, "key", key)
	return nil
}
