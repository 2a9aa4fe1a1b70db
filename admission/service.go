package admission

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// Publisher stores jobs; [*queue.Producer] is one. It bounds by itself for how long it waits.
type Publisher interface {
	// Send sends a job, in the order of its calls, and returns what waits until it is stored.
	Send(ctx context.Context, s queue.Submission) (
		wait func(context.Context) (queue.Receipt, error))
	// Repeated returns what became of the job that a submission repeats.
	Repeated(ctx context.Context, s queue.Submission, first queue.Receipt) (queue.Receipt, error)
}

// Valves answers questions to the owners of partitions; [*queue.Broker] does.
type Valves interface {
	AskValve(ctx context.Context, policy string, partition int, q job.Question) (job.Answer, error)
}

// Metrics counts answers; the one of internal/telemetry is one. Policies are known ones only, so
// that their number is bounded.
type Metrics interface {
	// Admitted counts a submitted job that got a verdict.
	Admitted(policy string, k job.Key, verdict string)
	// Checked counts a check of a key that got an answer; peeks are not counted.
	Checked(policy string, k job.Key, allowed bool)
	// Shadowed counts what a limit that holds nothing back would have done: over says that it would
	// have refused or delayed the request, by that time.
	Shadowed(policy, limit string, over bool, by time.Duration)
}

// Options are what a [Service] can do without. The zero value works.
type Options struct {
	// Metrics counts answers; nil counts nothing.
	Metrics Metrics
	// Outcomes let submissions wait for the end of their jobs; default: none can.
	Outcomes Outcomes
	// Callback says why the outcome of a job may not be posted to a URL; nil: it may be to any.
	Callback func(to *url.URL) error
	// Submitting hears of each sound submission what will be stored beside the body, and returns
	// what shall be instead, such as with another traceparent, and what hears the outcome. It may
	// change the header that it is given. Nil: nothing is changed.
	Submitting func(policy string, stored nats.Header) (nats.Header, func(Outcome, error))
}

// Service answers for all policies of the moment. It is safe for concurrent use, and starts nothing
// that outlives a call by more than some milliseconds.
type Service struct {
	names     queue.Names
	publisher Publisher
	newLimit  NewLimit
	metrics   Metrics
	begin     func(policy string, stored nats.Header) (nats.Header, func(Outcome, error))
	callback  func(to *url.URL) error
	expected  *expectations
	waiters   waiters

	changing sync.Mutex // held while a set of policies is built
	policies atomic.Pointer[map[string]*livePolicy]
}

// livePolicy is one policy as the service applies it. It never changes; a change of the policy
// makes another.
type livePolicy struct {
	policy   policy.Policy
	revision uint64
	retired  bool

	limit    Limit // Limiter is nil when a queue alone decides
	queue    Quota // of the queue, when there is one
	interval time.Duration
	refusals *refusals
	repeats  *repeats
}

// New makes a service that knows no policies yet: until the first [Service.SetPolicies] every
// question ends in [ErrUnavailable]. Names spells the subjects of the publisher's jobs.
func New(names queue.Names, publisher Publisher, valves Valves, newLimit NewLimit,
	o Options) *Service {
	if o.Metrics == nil {
		o.Metrics = uncounted{}
	}
	if o.Callback == nil {
		o.Callback = func(*url.URL) error { return nil }
	}
	return &Service{
		names:     names,
		publisher: publisher,
		newLimit:  newLimit,
		metrics:   o.Metrics,
		begin:     o.Submitting,
		callback:  o.Callback,
		expected:  newExpectations(valves),
		waiters:   newWaiters(o.Outcomes),
	}
}

type uncounted struct{}

func (uncounted) Admitted(string, job.Key, string) {}
func (uncounted) Checked(string, job.Key, bool)    {}

func (uncounted) Shadowed(string, string, bool, time.Duration) {}

// shadowed counts what limits would have done that hold nothing back.
func (s *Service) shadowed(policy string, all []Shadowed) {
	for _, one := range all {
		s.metrics.Shadowed(policy, one.Limit, one.Over, one.By)
	}
}

// SetPolicies replaces all policies by those of the set. Everything is built before one pointer is
// swapped, so no request sees half a change. Limiters keep the state of their keys where the
// algorithm stayed; policies that did not change keep everything. A policy that cannot be built
// keeps its former form, or stays out, and is in the error; the others change.
func (s *Service) SetPolicies(set policy.Entries) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	var before map[string]*livePolicy
	if loaded := s.policies.Load(); loaded != nil {
		before = *loaded
	}
	after := make(map[string]*livePolicy, len(set))
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
			problems = append(problems,
				fmt.Errorf("policy %q, revision %d: %w", name, entry.Revision, err))
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
	s.policies.Store(&after)
	return errors.Join(problems...)
}

// build makes the live form of a policy; former is the one before a change, nil if there was none.
func (s *Service) build(entry policy.Entry, former *livePolicy) (*livePolicy, error) {
	p := entry.Policy.WithDefaults()
	if err := policy.Invalid(p.Validate()); err != nil {
		return nil, err
	}
	l := &livePolicy{policy: p, revision: entry.Revision, retired: entry.Retired, interval: maxHold}
	if p.HasQueue() {
		l.queue = Quota{Policy: p.Name, Units: p.QueueCapacity()}
	}
	if p.Paced() {
		l.paced()
	} else if err := s.limited(l, former); err != nil {
		return nil, err
	}
	l.refusals = newRefusals(l.interval, l.queue.Window)
	return l, nil
}

// paced derives from the outflows of a queue policy when a full bucket has room again.
func (l *livePolicy) paced() {
	l.interval = 0
	for _, rate := range []algorithms.Rate{l.policy.Outflow, l.policy.OutflowTotal} {
		if !rate.IsZero() { // the slower one holds a bucket back
			l.interval = max(l.interval, rate.Interval())
			l.queue.Window = max(l.queue.Window, FillTime(l.policy.Capacity, rate))
		}
	}
	for _, limit := range l.policy.Enforced() {
		if limit.Window > 0 && limit.Cost == "" {
			each := time.Duration(limit.Window) / time.Duration(limit.Limit)
			l.interval = max(l.interval, each)
		}
	}
}

// limited gives a door policy its limiter, and the repeats that its former form remembers.
func (s *Service) limited(l, former *livePolicy) error {
	var previous Limiter
	if former != nil {
		previous = former.limit.Limiter
	}
	limit, err := s.newLimit(l.policy, previous)
	if err != nil {
		return fmt.Errorf("make its limiter: %w", err)
	}
	l.limit = limit
	if former != nil && former.repeats != nil &&
		former.policy.DuplicateWindow == l.policy.DuplicateWindow {
		l.repeats = former.repeats
	} else {
		l.repeats = newRepeats(time.Duration(l.policy.DuplicateWindow))
	}
	return nil
}

// live returns the live form of a policy that takes requests.
func (s *Service) live(name string) (*livePolicy, error) {
	policies := s.policies.Load()
	if policies == nil {
		return nil, unavailable("find the policy", ErrStarting)
	}
	l := (*policies)[name]
	switch {
	case l == nil:
		return nil, UnknownPolicy(name)
	case l.retired:
		return nil, retiredPolicy(name)
	}
	return l, nil
}
