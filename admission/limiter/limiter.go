// Package limiter makes the limiters of policies: of one rule or of several at once, over memory or over Redis, and what
// goes on while Redis does not.
package limiter

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/algorithms/memstore"
	"github.com/penstock-mq/penstock/algorithms/redisstore"
	"github.com/penstock-mq/penstock/policy"
)

// Options of a [Factory]. The zero value makes limiters in memory.
type Options struct {
	// Redis keeps the state of all limiters, shared with other processes; nil: each limiter keeps its own in memory. It must
	// have been made with ContextTimeoutEnabled, and is not closed.
	Redis redis.UniversalClient
	// Prefix is what keys in Redis begin with; default [redisstore.DefaultPrefix].
	Prefix string
	// Timeout bounds one decision by Redis; default [redisstore.DefaultTimeout]. Then, and while Redis is known not to
	// answer, a policy's on_store_error says what happens.
	Timeout time.Duration
	// Metrics hears whether Redis answers; nil: nobody does.
	Metrics Metrics
	// Logger gets one line when Redis stops answering and one when it answers again; default none.
	Logger *slog.Logger
}

// Metrics hears of the shared store. The one of internal/telemetry is one.
type Metrics interface {
	// StoreUp tells whether the store answers.
	StoreUp(up bool)
	// FellBack counts a decision that was made without the store, by the policy's on_store_error.
	FellBack(policy, mode string)
}

type unheard struct{}

func (unheard) StoreUp(bool)            {}
func (unheard) FellBack(string, string) {}

// Factory makes limiters that share a store. It is safe for concurrent use.
type Factory struct {
	options Options
	client  *redisstore.Client // nil in memory
	live    atomic.Int64       // admitters that share limits while each decides by itself

	mu     sync.Mutex
	shares map[string]*share // by policy
}

// New makes a factory. Nothing is asked of Redis before the first decision, so it may be down.
func New(o Options) *Factory {
	o.Timeout = cmp.Or(o.Timeout, redisstore.DefaultTimeout)
	if o.Metrics == nil {
		o.Metrics = unheard{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Factory{options: o, shares: map[string]*share{}}
	f.live.Store(1)
	if o.Redis != nil {
		o.Metrics.StoreUp(true)
		f.client = redisstore.NewClient(o.Redis, redisstore.Options{
			Prefix: o.Prefix, Timeout: o.Timeout, Breaker: newBreaker(o, f.dropShares),
		})
	}
	return f
}

// SetLive tells how many admitters are alive, this one among them: with on_store_error: local each decides by its share.
func (f *Factory) SetLive(n int) { f.live.Store(int64(max(n, 1))) }

// Limit makes the limiter of a policy; it is an [admission.NewLimit]. The policy must be valid.
func (f *Factory) Limit(p policy.Policy, previous admission.Limiter) (admission.Limit, error) {
	if f.client == nil {
		return makeLimit(p, memory{}, asLimits(previous))
	}
	if err := policy.Invalid(f.Possible(p)); err != nil {
		return admission.Limit{}, err
	}
	before, _ := previous.(*guarded)
	if before == nil {
		before = &guarded{}
	}
	made, err := makeLimit(p, inRedis{f.client}, before.shared)
	if err != nil {
		return admission.Limit{}, err
	}
	made.Limiter = &guarded{factory: f, policy: p, shared: made.Limiter.(*limits), quota: made.Quota, local: f.share(p)}
	return made, nil
}

// Possible says what keeps the store from having a policy's limits: a Redis Cluster cannot have all of them.
func (f *Factory) Possible(p policy.Policy) []policy.Problem {
	if _, cluster := f.options.Redis.(*redis.ClusterClient); cluster {
		return p.OnCluster()
	}
	return nil
}

// share is what a policy decides by without the store; nil unless it decides locally.
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

// dropShares forgets what was decided without the store, which answers again.
func (f *Factory) dropShares() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.shares {
		s.drop()
	}
}

func asLimits(l admission.Limiter) *limits {
	before, _ := l.(*limits)
	return before
}

// store keeps the states of one rule.
type store interface {
	Take(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	Peek(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	Refund(ctx context.Context, key string, n int64) error
}

// group keeps the states of several rules, and takes from all of them or from none. Keys are one for each rule.
type group interface {
	Take(ctx context.Context, keys []string, n int64) (combined algorithms.Decision, ruling int, err error)
	Peek(ctx context.Context, keys []string, n int64) (combined algorithms.Decision, ruling int, err error)
	Refund(ctx context.Context, keys []string, n int64) error
}

// limits is a limiter of one rule or of several.
type limits struct {
	rules  policy.Rules
	quotas []admission.Quota
	stores []store
	all    group // of the stores; nil when there is one
}

// Take implements [admission.Limiter].
func (l *limits) Take(ctx context.Context, from admission.Caller, n int64) (admission.Checked, error) {
	if l.all == nil {
		d, err := l.stores[0].Take(ctx, l.rules[0].Expand(string(from.Key), from.IP), n)
		return admission.Checked{Decision: d, Quota: l.quotas[0]}, err
	}
	d, ruling, err := l.all.Take(ctx, l.keys(from), n)
	return admission.Checked{Decision: d, Quota: l.quotas[ruling]}, err
}

// Peek implements [admission.Limiter].
func (l *limits) Peek(ctx context.Context, from admission.Caller, n int64) (admission.Checked, error) {
	if l.all == nil {
		d, err := l.stores[0].Peek(ctx, l.rules[0].Expand(string(from.Key), from.IP), n)
		return admission.Checked{Decision: d, Quota: l.quotas[0]}, err
	}
	d, ruling, err := l.all.Peek(ctx, l.keys(from), n)
	return admission.Checked{Decision: d, Quota: l.quotas[ruling]}, err
}

// Refund implements [admission.Limiter].
func (l *limits) Refund(ctx context.Context, from admission.Caller, n int64) error {
	if l.all == nil {
		return l.stores[0].Refund(ctx, l.rules[0].Expand(string(from.Key), from.IP), n)
	}
	return l.all.Refund(ctx, l.keys(from), n)
}

func (l *limits) keys(from admission.Caller) []string {
	keys := make([]string, len(l.rules))
	for i, r := range l.rules {
		keys[i] = r.Expand(string(from.Key), from.IP)
	}
	return keys
}

// makeLimit makes the limiter of a policy's rules at a place. Stores of rules that stay, by name and algorithm, go on.
func makeLimit(p policy.Policy, at place, before *limits) (admission.Limit, error) {
	l := &limits{rules: p.Rules()}
	made := admission.Limit{Limiter: l}
	var commits []func()
	for i, r := range l.rules {
		o, err := open(site{at, p, r}, before.store(r.Name))
		if err != nil {
			return admission.Limit{}, err
		}
		if len(l.rules) > 1 {
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
	if len(l.rules) > 1 {
		l.all = at.group(p.Name, l.stores)
	}
	made.Commit = func() {
		for _, commit := range commits {
			commit()
		}
	}
	return made, nil
}

// store finds the store of a rule by its name, nil if there is none.
func (l *limits) store(name string) store {
	if l == nil {
		return nil
	}
	for i, r := range l.rules {
		if r.Name == name {
			return l.stores[i]
		}
	}
	return nil
}

var (
	_ store = (*memstore.Store[algorithms.TokenBucketState])(nil)
	_ store = (*redisstore.Store[algorithms.TokenBucketState])(nil)
)
