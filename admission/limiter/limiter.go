// Package limiter makes the limiters of policies, in memory or in a shared store (package inredis),
// and decides while that store is unavailable.
package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/algorithms/memstore"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/base/container"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// The zero Options keep states in memory.
type Options struct {
	Shared Shared
	// for simulations
	Now  func() time.Time
	Sink queue.Sink
	// reports outages
	Logger *slog.Logger
}

// Shared is a store that all admitters share, such as Redis.
type Shared struct {
	// The place asks the breaker first.
	Open func(Breaker) Place
	// After it, and while the breaker is open, on_store_error applies.
	Timeout time.Duration
	// see [policy.Policy.OnCluster]
	Cluster bool
}

// Breaker returns an error while the store must not be asked; done reports the result.
type Breaker interface {
	Allow() (done func(error), err error)
}

// Place makes stores in a shared store.
type Place interface {
	// Store makes the store of a rule. One without SetRule for its state restarts when the policy
	// changes.
	Store(p policy.Policy, l policy.Limit, rule algorithms.Parametrized) Store
	Group(policy string, stores []Store) Group
}

// Factory makes the limiters of policies; see [admission.Limiter].
type Factory struct {
	options Options
	shared  Place
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	live    atomic.Int64 // admitters, for shares
	told    atomic.Int64 // of a cluster's server that does not answer, in Unix seconds

	mu     sync.Mutex
	shares map[string]*share // by policy
}

// New does not contact the shared store.
func New(o Options) *Factory {
	o.Sink = queue.Sinks{o.Sink}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	f := &Factory{options: o, shares: map[string]*share{}}
	f.live.Store(1)
	if o.Shared.Open != nil {
		o.storeUp(true)
		f.breaker = newBreaker(o)
		f.shared = o.Shared.Open(f.breaker)
	}
	return f
}

// Health returns an error while on_store_error applies, current within seconds during
// [Factory.Run].
func (f *Factory) Health() error {
	if f.breaker != nil && f.breaker.State() != gobreaker.StateClosed {
		return errAway
	}
	return nil
}

var probe = policy.Policy{Name: "=alive", Rule: policy.Rule{Algorithm: policy.FixedWindow,
	Limit: 1 << 30, Window: policy.Duration(time.Second)}}

// Run probes the shared store in seconds without requests.
func (f *Factory) Run(ctx context.Context) error {
	if f.shared == nil {
		<-ctx.Done()
		return nil
	}
	made, err := makeLimit(probe, f.shared, nil)
	if err != nil {
		return err
	}
	looks := time.NewTicker(probeEvery)
	defer looks.Stop()
	var asked uint32
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-looks.C:
		}
		f.tidyShares()
		if now := f.breaker.Counts().Requests; now != asked {
			asked = now
			continue
		}
		within, cancel := context.WithTimeout(ctx, f.options.Shared.Timeout)
		_, _ = made.Limiter.Take(within, admission.Caller{}, 1)
		cancel()
		asked = f.breaker.Counts().Requests
	}
}

var errAway = errors.New("the shared store does not answer: policies go on by their on_store_error")

// SetLive is for on_store_error: local.
func (f *Factory) SetLive(n int) { f.live.Store(int64(max(n, 1))) }

// Limit makes a policy's limiter, which keeps the counts of its previous one (nil: none).
func (f *Factory) Limit(p policy.Policy, previous admission.Limiter) (admission.Limit, error) {
	if len(p.Candidates()) > 0 {
		return f.shadow(p, previous)
	}
	if before, ok := previous.(*shadow); ok {
		previous = before.enforced
	}
	return f.enforced(p, previous)
}

func (f *Factory) enforced(p policy.Policy, previous admission.Limiter) (admission.Limit, error) {
	if f.shared == nil {
		before, _ := previous.(*limits)
		return makeLimit(p, f.memory(), before)
	}
	if err := policy.Invalid(f.Possible(p)); err != nil {
		return admission.Limit{}, err
	}
	before, _ := previous.(*guarded)
	if before == nil {
		before = &guarded{}
	}
	made, err := makeLimit(p, f.shared, before.shared)
	if err != nil {
		return admission.Limit{}, err
	}
	made.Limiter = &guarded{factory: f, policy: p, shared: made.Limiter.(*limits),
		quota: made.Quota, local: f.share(p)}
	return made, nil
}

func (f *Factory) memory() memory { return memory{now: f.options.Now} }

// Possible returns what the shared store cannot do for a policy.
func (f *Factory) Possible(p policy.Policy) (problems []policy.Problem) {
	if f.shared != nil {
		problems = p.OnRedis()
	}
	if f.options.Shared.Cluster {
		problems = append(problems, p.OnCluster()...)
	}
	return problems
}

func (f *Factory) share(p policy.Policy) *share {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.OnStoreError != policy.Local {
		delete(f.shares, p.Name)
		return nil
	}
	if f.shares[p.Name] == nil {
		f.shares[p.Name] = &share{}
	}
	return f.shares[p.Name]
}

func (f *Factory) tidyShares() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.shares {
		s.tidy()
	}
}

// Store decides about keys by one rule; see [algorithms.Limiter].
type Store interface {
	Take(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	Peek(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	Refund(ctx context.Context, key string, n int64) error
}

// Group takes from all of several limits, with one key each, or from no limit.
type Group interface {
	Take(ctx context.Context, keys []string,
		n int64) (combined algorithms.Decision, ruling int, err error)
	Peek(ctx context.Context, keys []string,
		n int64) (combined algorithms.Decision, ruling int, err error)
	Refund(ctx context.Context, keys []string, n int64) error
}

type limits struct {
	each   policy.Limits
	quotas []admission.Quota
	stores []Store
	all    Group // of the stores; nil for one limit
}

func (l *limits) Take(ctx context.Context, from admission.Caller,
	n int64) (admission.Checked, error) {
	if l.all == nil {
		d, err := l.stores[0].Take(ctx, l.each[0].Expand(string(from.Key), from.IP), n)
		return admission.Checked{Decision: d, Quota: l.quotas[0]}, err
	}
	d, ruling, err := l.all.Take(ctx, l.keys(from), n)
	return admission.Checked{Decision: d, Quota: l.quotas[ruling]}, err
}

func (l *limits) Peek(ctx context.Context, from admission.Caller,
	n int64) (admission.Checked, error) {
	if l.all == nil {
		d, err := l.stores[0].Peek(ctx, l.each[0].Expand(string(from.Key), from.IP), n)
		return admission.Checked{Decision: d, Quota: l.quotas[0]}, err
	}
	d, ruling, err := l.all.Peek(ctx, l.keys(from), n)
	return admission.Checked{Decision: d, Quota: l.quotas[ruling]}, err
}

func (l *limits) Refund(ctx context.Context, from admission.Caller, n int64) error {
	if l.all == nil {
		return l.stores[0].Refund(ctx, l.each[0].Expand(string(from.Key), from.IP), n)
	}
	return l.all.Refund(ctx, l.keys(from), n)
}

func (l *limits) keys(from admission.Caller) []string {
	keys := make([]string, len(l.each))
	for i, r := range l.each {
		keys[i] = r.Expand(string(from.Key), from.IP)
	}
	return keys
}

// Limits with the same name and algorithm keep their stores.
func makeLimit(p policy.Policy, at Place, before *limits) (admission.Limit, error) {
	l := &limits{each: p.AllLimits()}
	made := admission.Limit{Limiter: l}
	var commits []func()
	for i, r := range l.each {
		o, err := open(site{at, p, r}, before.store(r.Name))
		if err != nil {
			return admission.Limit{}, err
		}
		if len(l.each) > 1 {
			o.quota.Policy += "/" + r.Name
		}
		l.stores = append(l.stores, o.store)
		l.quotas = append(l.quotas, o.quota)
		commits = append(commits, o.commit)
		if i == 0 || o.quota.Units < made.Quota.Units {
			made.Quota = o.quota
		}
		made.ByIP = made.ByIP || r.ByIP()
	}
	if len(l.each) > 1 {
		l.all = at.Group(p.Name, l.stores)
	}
	made.Commit = func() {
		for _, commit := range commits {
			commit()
		}
	}
	return made, nil
}

func (l *limits) store(name string) Store {
	if l == nil {
		return nil
	}
	for i, r := range l.each {
		if r.Name == name {
			return l.stores[i]
		}
	}
	return nil
}

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
		quota.Window = admit.FillTime(b.Units, b.Rate)
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
