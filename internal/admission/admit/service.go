// Package admit decides on incoming work: [Service.Submit] and [Service.Check]. A refusal is an
// outcome; an error means that the request was wrong or could not be answered.
//
// Protocols are in packages httpapi and natsapi, with the tables of package answer.
package admit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Publisher has its own deadline.
type Publisher interface {
	// Send keeps the order of calls; wait returns when the job is stored.
	Send(ctx context.Context, s jet.Submission) (
		wait func(context.Context) (jet.Receipt, error))
	// Repeated is for a repeat of an earlier receipt's job.
	Repeated(ctx context.Context, s jet.Submission, first jet.Receipt) (jet.Receipt, error)
}

// Valves answers questions to the owners of partitions, as [*jet.Broker] does.
type Valves interface {
	AskValve(ctx context.Context, policy string, partition int, q job.Question) (job.Answer, error)
}

// Options of a Service.
type Options struct {
	Sink     queue.Sink
	Outcomes Outcomes                // for waits for the end of jobs; may be nil
	Callback func(to *url.URL) error // why a result may not be posted to a URL
	// Submitting may change the header of a valid submission, such as its traceparent; the returned
	// function gets the outcome.
	Submitting func(policy string, stored nats.Header) (nats.Header, func(admission.Outcome, error))
}

// Service is safe for concurrent use.
type Service struct {
	names     jet.Names
	publisher Publisher
	newLimit  NewLimit
	sink      queue.Sink
	begin     func(policy string, stored nats.Header) (nats.Header, func(admission.Outcome, error))
	callback  func(to *url.URL) error
	expected  *expectations
	waiters   waiters

	changing sync.Mutex
	policies atomic.Pointer[map[string]*livePolicy]
}

// livePolicy is immutable.
type livePolicy struct {
	policy   policy.Policy
	revision uint64
	draining bool

	limit    admission.Limit // Limiter is nil when a queue alone decides
	queue    admission.Quota // zero without a queue
	interval time.Duration
	refusals *refusals
	repeats  *repeats
}

// New makes a service that fails with [admission.ErrUnavailable] until the first
// [Service.SetPolicies].
func New(names jet.Names, publisher Publisher, valves Valves, newLimit NewLimit,
	o Options) *Service {
	if o.Callback == nil {
		o.Callback = func(*url.URL) error { return nil }
	}
	return &Service{
		names:     names,
		publisher: publisher,
		newLimit:  newLimit,
		sink:      queue.Sinks{o.Sink},
		begin:     o.Submitting,
		callback:  o.Callback,
		expected:  newExpectations(valves),
		waiters:   newWaiters(o.Outcomes),
	}
}

func (s *Service) shadowed(policy string, all []admission.Shadowed) {
	for _, one := range all {
		s.sink.Take(queue.Event{Type: jet.EventShadowed, Policy: policy, Name: one.Limit,
			Value: jet.Whether(one.Over), For: one.By})
	}
}

// SetPolicies replaces all policies at once. Limiters of the same algorithm keep their states.
// Policies that cannot be built keep their former version; the error names them. changed names what
// differs from the last set; without names, all are compared.
func (s *Service) SetPolicies(set inforce.Entries, changed ...string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	var before map[string]*livePolicy
	if loaded := s.policies.Load(); loaded != nil {
		before = *loaded
	}
	after := maps.Clone(before)
	if after == nil {
		after = make(map[string]*livePolicy, len(set))
	}
	names := slices.Values(changed)
	if len(changed) == 0 {
		maps.DeleteFunc(after, func(name string, _ *livePolicy) bool { return set[name] == nil })
		names = maps.Keys(set)
	}
	var problems []error
	var commits []func()
	for name := range names {
		entry, former := set[name], before[name]
		if entry == nil {
			delete(after, name)
			continue
		}
		if former != nil && former.revision == entry.Revision && former.draining == entry.Draining {
			continue
		}
		built, err := s.build(*entry, former)
		if err != nil {
			problems = append(problems,
				fmt.Errorf("policy %q, revision %d: %w", name, entry.Revision, err))
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

func (s *Service) build(entry inforce.Entry, former *livePolicy) (*livePolicy, error) {
	p := entry.Policy.WithDefaults()
	if err := policy.Invalid(p.Validate()); err != nil {
		return nil, err
	}
	l := &livePolicy{policy: p, revision: entry.Revision, draining: entry.Draining,
		interval: maxHold}
	if p.HasQueue() {
		l.queue = admission.Quota{Policy: p.Name, Units: p.QueueCapacity()}
	}
	if p.Paced() {
		l.paced()
	} else if err := s.limited(l, former); err != nil {
		return nil, err
	}
	l.refusals = newRefusals(l.interval, l.queue.Window)
	return l, nil
}

// paced derives when a full bucket has room again.
func (l *livePolicy) paced() {
	l.interval = 0
	for _, rate := range []algorithms.Rate{l.policy.Outflow, l.policy.OutflowTotal} {
		if !rate.IsZero() {
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

func (s *Service) limited(l, former *livePolicy) error {
	var previous admission.Limiter
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

func (s *Service) live(name string) (*livePolicy, error) {
	policies := s.policies.Load()
	if policies == nil {
		return nil, unavailable("find the policy", ErrStarting)
	}
	l := (*policies)[name]
	switch {
	case l == nil:
		return nil, UnknownPolicy(name)
	case l.draining:
		return nil, fmt.Errorf("%w: %q is draining, and takes no new jobs",
			admission.ErrUnknownPolicy, name)
	}
	return l, nil
}

// Known returns an error unless there is such a policy, perhaps a draining one.
func (s *Service) Known(name string) error {
	if policies := s.policies.Load(); policies != nil && (*policies)[name] == nil {
		return UnknownPolicy(name)
	}
	return nil
}

// Callable returns why calls cannot acquire permits of a policy.
func (s *Service) Callable(name string) error {
	live, err := s.live(name)
	if err == nil && !live.policy.Paced() {
		err = conflict("policy %q cannot pace calls: want a leaking bucket with a queue", name)
	}
	return err
}
