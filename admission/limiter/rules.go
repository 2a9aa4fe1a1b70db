package limiter

import (
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/algorithms/memstore"
	"github.com/penstock-mq/penstock/policy"
)

// site is where a rule's store is made.
type site struct {
	place  Place
	policy policy.Policy
	rule   policy.Rule
}

// memory is the place of states that no other process has. Its stores are made by openRule, which knows their types.
type memory struct{ Place }

// Group implements [Place].
func (memory) Group(_ string, stores []Store) Group {
	members := make([]memstore.Member, len(stores))
	for i, s := range stores {
		members[i] = s.(memstore.Member)
	}
	return memstore.NewGroup(members...)
}

// opened is a rule's store.
type opened struct {
	store  Store
	quota  admission.Quota
	commit func() // puts the rule in force on a store taken over from before a change
}

// open makes the store of a rule. It is the one place that switches over the names of algorithms.
func open(s site, before Store) (opened, error) {
	r := s.rule
	window := time.Duration(r.Window)
	switch r.Algorithm {
	case policy.TokenBucket:
		rule := algorithms.TokenBucket{Capacity: r.Capacity, Refill: r.Refill}
		return openRule(s, rule, admission.FillTime(r.Capacity, r.Refill), before)
	case policy.LeakingBucket:
		rule := algorithms.LeakingBucket{Capacity: r.Capacity, Outflow: r.Outflow, Burst: r.Burst}
		return openRule(s, rule, admission.FillTime(r.Capacity, r.Outflow), before)
	case policy.FixedWindow:
		return openRule(s, algorithms.FixedWindow{Limit: r.Limit, Window: window}, window, before)
	case policy.SlidingLog:
		rule := algorithms.SlidingLog{Limit: r.Limit, Window: window, CountAccepted: r.Count == policy.CountAccepted}
		return openRule(s, rule, window, before)
	case policy.SlidingCounter:
		return openRule(s, algorithms.SlidingCounter{Limit: r.Limit, Window: window}, window, before)
	}
	return opened{}, fmt.Errorf("algorithm %q is not known", r.Algorithm)
}

// changeable is a store whose rule can be changed.
type changeable[S any] interface {
	Store
	SetRule(algorithms.Rule[S]) error
}

// openRule makes a store of a rule, or takes over the one before when it keeps the same states.
func openRule[S any](s site, rule algorithms.Rule[S], window time.Duration, before Store) (opened, error) {
	if err := rule.Validate(); err != nil {
		return opened{}, err
	}
	o := opened{quota: admission.Quota{Policy: s.policy.Name, Units: rule.Most(), Window: window}, commit: func() {}}
	if same, ok := before.(changeable[S]); ok {
		o.store = same
		o.commit = func() { _ = same.SetRule(rule) } // its only error is that of Validate
		return o, nil
	}
	if _, here := s.place.(memory); here {
		o.store = memstore.New(rule)
	} else {
		o.store = s.place.Store(s.policy, s.rule, rule)
	}
	return o, nil
}
