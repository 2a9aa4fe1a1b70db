package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Publisher stores jobs; [*queue.Producer] is one.
type Publisher interface {
	Publish(ctx context.Context, s queue.Submission) (queue.Receipt, error)
	// Repeated finds what became of the job that a submission repeats.
	Repeated(ctx context.Context, s queue.Submission, first queue.Receipt) (queue.Receipt, error)
}

// Valves answers questions to the owners of partitions; [*queue.Broker] does.
type Valves interface {
	AskValve(ctx context.Context, policy string, partition int, q queue.ValveQuestion) (queue.ValveAnswer, error)
}

// Metrics counts answers; the one of internal/telemetry is one. Policies are known ones only, so that their number is
// bounded.
type Metrics interface {
	// Admitted counts a submitted job that got a verdict.
	Admitted(policy, verdict string)
	// Checked counts a check that got an answer; peeks are not counted.
	Checked(policy string, allowed bool)
}

// Options are what a [Service] can do without. The zero value works.
type Options struct {
	// Metrics counts answers; nil counts nothing.
	Metrics Metrics
	// Timeout bounds one call of Submit, Check or Peek; default 5 s.
	Timeout time.Duration
}

// Service answers for all policies of the moment. It is safe for concurrent use, and starts nothing that outlives a
// call by more than some milliseconds.
type Service struct {
	names     queue.Names
	publisher Publisher
	newLimit  NewLimit
	metrics   Metrics
	timeout   time.Duration
	expected  *expectations

	changing sync.Mutex // held while a set of policies is built
	rules    atomic.Pointer[map[string]*rule]
}

// rule is one policy as the service applies it. It never changes; a change of the policy makes another.
type rule struct {
	policy   policy.Policy
	revision uint64
	retired  bool

	limit    Limit // Limiter is nil when a queue alone decides
	queue    Quota // of the queue, when there is one
	interval time.Duration
	refusals *refusals
	repeats  *repeats
}

// New makes a service that knows no policies yet: until the first [Service.SetPolicies] every question ends in
// [ErrUnavailable]. Names spells the subjects of the publisher's jobs.
func New(names queue.Names, publisher Publisher, valves Valves, newLimit NewLimit, o Options) *Service {
	if o.Metrics == nil {
		o.Metrics = uncounted{}
	}
	return &Service{
		names:     names,
		publisher: publisher,
		newLimit:  newLimit,
		metrics:   o.Metrics,
		timeout:   cmp.Or(o.Timeout, 5*time.Second),
		expected:  newExpectations(valves),
	}
}

type uncounted struct{}

func (uncounted) Admitted(string, string) {}
func (uncounted) Checked(string, bool)    {}

// SetPolicies replaces all policies by those of the set. Everything is built before one pointer is swapped, so no
// request sees half a change. Limiters keep the state of their keys where the algorithm stayed; policies that did not
// change keep everything. A policy that cannot be built keeps its former form, or stays out, and is in the error; the
// others change.
func (s *Service) SetPolicies(set queue.PolicySet) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	var before map[string]*rule
	if loaded := s.rules.Load(); loaded != nil {
		before = *loaded
	}
	after := make(map[string]*rule, len(set))
	var problems []error
	var commits []func()
	for name, entry := range set {
		former := before[name]
		if former != nil && former.revision == entry.Revision && former.retired == entry.Retired {
			after[name] = former
			continue
		}
		built, err := s.build(entry, former)
		if err != nil {
			problems = append(problems, fmt.Errorf("policy %q, revision %d: %w", name, entry.Revision, err))
			if former != nil {
				after[name] = former
			}
			continue
		}
		after[name] = built
		if built.limit.Commit != nil {
			commits = append(commits, built.limit.Commit)
		}
	}
	for _, commit := range commits {
		commit()
	}
	s.rules.Store(&after)
	return errors.Join(problems...)
}

// build makes a policy's rule; former is the one before a change, nil if none.
func (s *Service) build(entry queue.PolicyEntry, former *rule) (*rule, error) {
	p := entry.Policy.WithDefaults()
	if err := policy.Invalid(p.Validate()); err != nil {
		return nil, err
	}
	r := &rule{policy: p, revision: entry.Revision, retired: entry.Retired, interval: maxHold}
	if p.HasQueue() {
		r.queue = Quota{Policy: p.Name, Units: p.QueueCapacity()}
	}
	if p.Paced() {
		r.interval = 0
		for _, rate := range []algorithms.Rate{p.Outflow, p.OutflowTotal} { // the slower one holds a bucket back
			if !rate.IsZero() {
				r.interval = max(r.interval, rate.Interval())
				r.queue.Window = max(r.queue.Window, FillTime(p.Capacity, rate))
			}
		}
	} else {
		var previous Limiter
		if former != nil {
			previous = former.limit.Limiter
		}
		limit, err := s.newLimit(p, previous)
		if err != nil {
			return nil, fmt.Errorf("make its limiter: %w", err)
		}
		r.limit = limit
		r.repeats = newRepeats(time.Duration(p.DuplicateWindow))
		if former != nil && former.repeats != nil && former.policy.DuplicateWindow == p.DuplicateWindow {
			r.repeats = former.repeats
		}
	}
	r.refusals = newRefusals(r.interval)
	return r, nil
}

// rule finds the rule of a policy that takes requests.
func (s *Service) rule(name string) (*rule, error) {
	rules := s.rules.Load()
	if rules == nil {
		return nil, unavailable("find the policy", ErrStarting)
	}
	r := (*rules)[name]
	switch {
	case r == nil:
		return nil, unknownPolicy(name)
	case r.retired:
		return nil, retiredPolicy(name)
	}
	return r, nil
}
