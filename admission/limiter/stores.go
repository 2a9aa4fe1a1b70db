package limiter

import (
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/algorithms/memstore"
	"github.com/penstock-mq/penstock/internal/base/container"
	"github.com/penstock-mq/penstock/policy"
)

type site struct {
	place  Place
	policy policy.Policy
	limit  policy.Limit
}

// memory is a place in memory. openStore makes its stores, with their types.
type memory struct {
	Place
	now func() time.Time
}

func (memory) Group(_ string, stores []Store) Group {
	members := make([]memstore.Member, len(stores))
	for i, s := range stores {
		members[i] = s.(memstore.Member)
	}
	return memstore.NewGroup(members...)
}

type limitStore struct {
	store  Store
	quota  admission.Quota
	commit func() // applies the new rule to a reused store
}

// open lists the rules by the types of their states, of which stores are made.
func open(s site, before Store) (limitStore, error) {
	switch rule := s.limit.AtDoor().(type) {
	case algorithms.TokenBucket:
		return openStore(s, rule, before)
	case algorithms.LeakingBucket:
		return openStore(s, rule, before)
	case algorithms.FixedWindow:
		return openStore(s, rule, before)
	case algorithms.SlidingLog:
		return openStore(s, rule, before)
	case algorithms.SlidingCounter:
		return openStore(s, rule, before)
	}
	return limitStore{}, fmt.Errorf("algorithm %q is not known", s.limit.Algorithm)
}

type changeable[S any] interface {
	Store
	SetRule(algorithms.Rule[S]) error
}

// A store of the same state type is kept.
func openStore[S any](s site, rule algorithms.Rule[S], before Store) (limitStore, error) {
	if err := rule.Validate(); err != nil {
		return limitStore{}, err
	}
	quota := admission.Quota{Policy: s.policy.Name, Units: rule.Most(), Window: rule.Bound().Window}
	if b := rule.Bound(); b.Window == 0 {
		quota.Window = admission.FillTime(b.Units, b.Rate)
	}
	o := limitStore{quota: quota, commit: func() {}}
	if same, ok := before.(changeable[S]); ok {
		o.store = same
		o.commit = func() { _ = same.SetRule(rule) }
		return o, nil
	}
	if m, here := s.place.(memory); here {
		o.store = memstore.New(rule, memstore.Clock(m.now),
			memstore.MaxBytes(container.Share(memstore.DefaultMaxBytes, 8)))
	} else {
		o.store = s.place.Store(s.policy, s.limit, rule)
	}
	return o, nil
}
