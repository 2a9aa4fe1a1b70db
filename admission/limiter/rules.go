package limiter

import (
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/algorithms/memstore"
	"github.com/penstock-mq/penstock/algorithms/redisstore"
	"github.com/penstock-mq/penstock/policy"
)

// site is where a rule's store is made.
type site struct {
	place  place
	policy policy.Policy
	rule   policy.Rule
}

// place is memory or a Redis.
type place interface {
	// group joins the stores of a policy's rules, which were all made here.
	group(policy string, stores []store) group
}

type memory struct{}

type inRedis struct{ client *redisstore.Client }

func (memory) group(_ string, stores []store) group {
	members := make([]memstore.Member, len(stores))
	for i, s := range stores {
		members[i] = s.(memstore.Member)
	}
	return memstore.NewGroup(members...)
}

func (at inRedis) group(policy string, stores []store) group {
	members := make([]redisstore.Member, len(stores))
	for i, s := range stores {
		members[i] = s.(redisstore.Member)
	}
	return redisstore.NewGroup(at.client, policy, members...)
}

// opened is a rule's store.
type opened struct {
	store  store
	quota  admission.Quota
	commit func() // puts the rule in force on a store taken over from before a change
}

// open makes the store of a rule. It is the one place that switches over the names of algorithms.
func open(s site, before store) (opened, error) {
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
	store
	SetRule(algorithms.Rule[S]) error
}

// openRule makes a store of a rule, or takes over the one before when it keeps the same states.
func openRule[S any](s site, rule algorithms.Rule[S], window time.Duration, before store) (opened, error) {
	if err := rule.Validate(); err != nil {
		return opened{}, err
	}
	o := opened{quota: admission.Quota{Policy: s.policy.Name, Units: rule.Most(), Window: window}, commit: func() {}}
	if same, ok := before.(changeable[S]); ok {
		o.store = same
		o.commit = func() { _ = same.SetRule(rule) } // its only error is that of Validate
		return o, nil
	}
	switch at := s.place.(type) {
	case memory:
		o.store = memstore.New(rule)
	case inRedis:
		if len(s.policy.Limits) > 0 {
			o.store = redisstore.NewMember(at.client, s.policy.Name, s.rule.Name+":"+string(s.rule.Algorithm), rule)
		} else {
			o.store = redisstore.New(at.client, s.policy.Name, rule)
		}
	}
	return o, nil
}
