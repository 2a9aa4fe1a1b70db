package limiter

import (
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/algorithms/memstore"
	"github.com/penstock-mq/penstock/policy"
)

// site is where the store of a limit is made.
type site struct {
	place  Place
	policy policy.Policy
	limit  policy.Limit
}

// memory is the place of states that no other process has. Its stores are made by openStore,
// which knows their types. Now is their clock; nil: the machine's.
type memory struct {
	Place
	now func() time.Time
}

// Group implements [Place].
func (memory) Group(_ string, stores []Store) Group {
	members := make([]memstore.Member, len(stores))
	for i, s := range stores {
		members[i] = s.(memstore.Member)
	}
	return memstore.NewGroup(members...)
}

// limitStore is the store of one limit, and what comes with it.
type limitStore struct {
	store  Store
	quota  admission.Quota
	commit func() // puts the rule in force on a store taken over from before a change
}

// open makes the store of a limit. It is the one place that switches over the names of algorithms.
func open(s site, before Store) (limitStore, error) {
	l := s.limit
	window := time.Duration(l.Window)
	switch l.Algorithm {
	case policy.TokenBucket:
		rule := algorithms.TokenBucket{Capacity: l.Capacity, Refill: l.Refill}
		return openStore(s, rule, admission.FillTime(l.Capacity, l.Refill), before)
	case policy.LeakingBucket:
		rule := algorithms.LeakingBucket{Capacity: l.Capacity, Outflow: l.Outflow, Burst: l.Burst}
		return openStore(s, rule, admission.FillTime(l.Capacity, l.Outflow), before)
	case policy.FixedWindow:
		return openStore(s, l.Fixed(), window, before)
	case policy.SlidingLog:
		rule := algorithms.SlidingLog{Limit: l.Limit, Window: window,
			CountAccepted: l.Count == policy.CountAccepted}
		return openStore(s, rule, window, before)
	case policy.SlidingCounter:
		return openStore(s, algorithms.SlidingCounter{Limit: l.Limit, Window: window}, window,
			before)
	}
	return limitStore{}, fmt.Errorf("algorithm %q is not known", l.Algorithm)
}

// changeable is a store whose rule can be changed.
type changeable[S any] interface {
	Store
	SetRule(algorithms.Rule[S]) error
}

// openStore makes a store for a rule, or takes over the one before if it keeps states of the same
// kind.
func openStore[S any](s site, rule algorithms.Rule[S], window time.Duration,
	before Store) (limitStore, error) {
	if err := rule.Validate(); err != nil {
		return limitStore{}, err
	}
	quota := admission.Quota{Policy: s.policy.Name, Units: rule.Most(), Window: window}
	o := limitStore{quota: quota, commit: func() {}}
	if same, ok := before.(changeable[S]); ok {
		o.store = same
		o.commit = func() { _ = same.SetRule(rule) } // its only error is that of Validate
		return o, nil
	}
	if m, here := s.place.(memory); here {
		o.store = memstore.New(rule, memstore.Clock(m.now))
	} else {
		o.store = s.place.Store(s.policy, s.limit, rule)
	}
	return o, nil
}
