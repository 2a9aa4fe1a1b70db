// Package limiter makes the limiters of policies: of one limit or of several at once, in memory or
// over a store that processes share (package inredis), and what goes on while that does not.
package limiter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

// Options of a [Factory]. The zero value makes limiters in memory.
type Options struct {
	// Shared keeps the state of all limiters where other processes have it, too: see package
	// inredis. The zero value: each limiter keeps its own in memory.
	Shared Shared
	// Now tells limiters in memory the time, in place of the machine's wall clock: for a world that
	// is played.
	Now func() time.Time
	// Metrics hears whether the shared store answers; nil: nobody does.
	Metrics Metrics
	// Logger gets one line when the shared store stops answering and one when it answers again;
	// default [slog.Default].
	Logger *slog.Logger
}

// Shared is a store that processes share.
type Shared struct {
	// Open makes the place of all states, which asks the breaker before it asks the store. Nil:
	// there is no such store.
	Open func(Breaker) Place
	// Timeout bounds one decision. Then, and while the store is known not to answer, a policy's
	// on_store_error says what happens.
	Timeout time.Duration
	// Cluster says that all limits of a policy must count by the same: see
	// [policy.Policy.OnCluster].
	Cluster bool
}

// Breaker keeps questions from a store that is known not to answer: Allow returns an error if none
// may be asked, and done takes how the question ended.
type Breaker interface {
	Allow() (done func(error), err error)
}

// Place is where states are kept.
type Place interface {
	// Store makes the store of one of a policy's limits. The rule is an [algorithms.Rule] of one of
	// the states of that package. A store without SetRule for rules of that state begins anew
	// whenever the policy changes.
	Store(p policy.Policy, l policy.Limit, rule any) Store
	// Group joins the stores of a policy's limits, which were all made here.
	Group(policy string, stores []Store) Group
}

// Metrics gets what is known of the shared store. telemetry.Store of our own programs is one.
type Metrics interface {
	// StoreUp reports whether the store answers.
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
	shared  Place // nil in memory
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	live    atomic.Int64 // admitters that share limits while each decides by itself

	mu     sync.Mutex
	shares map[string]*share // by policy
}

// New makes a factory. Nothing is asked of a shared store before the first decision, so it may be
// down.
func New(o Options) *Factory {
	if o.Metrics == nil {
		o.Metrics = unheard{}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	f := &Factory{options: o, shares: map[string]*share{}}
	f.live.Store(1)
	if o.Shared.Open != nil {
		o.Metrics.StoreUp(true)
		f.breaker = newBreaker(o, f.dropShares)
		f.shared = o.Shared.Open(f.breaker)
	}
	return f
}

// Health returns that the shared store does not answer, so that policies go on by their
// on_store_error; nil while it does, and in memory. With [Factory.Run] it is true within seconds,
// also while nobody asks for decisions.
func (f *Factory) Health() error {
	if f.breaker != nil && f.breaker.State() != gobreaker.StateClosed {
		return errAway
	}
	return nil
}

// probe is a policy that no file can have, whose decisions are asked for when there are no others.
var probe = policy.Policy{Name: "=alive", Rule: policy.Rule{Algorithm: policy.FixedWindow,
	Limit: 1 << 30, Window: policy.Duration(time.Second)}}

// Run asks the shared store for a decision each second, until ctx ends, unless others do: the
// breaker learns from either.
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
		if now := f.breaker.Counts().Requests; now != asked {
			asked = now
			continue
		}
		within, cancel := context.WithTimeout(ctx, f.options.Shared.Timeout)
		_, _ = made.Limiter.Take(within, admission.Caller{}, 1) // the breaker hears how it went
		cancel()
		asked = f.breaker.Counts().Requests
	}
}

var errAway = errors.New("the shared store does not answer: policies go on by their on_store_error")

// SetLive sets how many admitters are alive, this one among them: with on_store_error: local each
// decides by its share.
func (f *Factory) SetLive(n int) { f.live.Store(int64(max(n, 1))) }

// Limit makes the limiter of a policy; it is an [admission.NewLimit]. The policy must be valid.
func (f *Factory) Limit(p policy.Policy, previous admission.Limiter) (admission.Limit, error) {
	if len(p.Candidates()) > 0 {
		return f.shadow(p, previous)
	}
	if before, ok := previous.(*shadow); ok {
		previous = before.enforced
	}
	return f.enforced(p, previous)
}

// enforced is Limit for a policy all of whose limits hold something back.
func (f *Factory) enforced(p policy.Policy, previous admission.Limiter) (admission.Limit, error) {
	if f.shared == nil {
		return makeLimit(p, f.memory(), asLimits(previous))
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

// Possible says what keeps the store from having a policy's limits: Redis knows no zones, and a
// cluster cannot have all of them.
func (f *Factory) Possible(p policy.Policy) (problems []policy.Problem) {
	if f.shared != nil {
		problems = p.OnRedis()
	}
	if f.options.Shared.Cluster {
		problems = append(problems, p.OnCluster()...)
	}
	return problems
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

// Store keeps the states of one limit.
type Store interface {
	Take(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	Peek(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	Refund(ctx context.Context, key string, n int64) error
}

// Group keeps the states of several limits, and takes from all of them or from none. It wants
// one key for each limit.
type Group interface {
	Take(ctx context.Context, keys []string,
		n int64) (combined algorithms.Decision, ruling int, err error)
	Peek(ctx context.Context, keys []string,
		n int64) (combined algorithms.Decision, ruling int, err error)
	Refund(ctx context.Context, keys []string, n int64) error
}

// limits is the limiter of a policy, which has one limit or several.
type limits struct {
	each   policy.Limits
	quotas []admission.Quota
	stores []Store
	all    Group // of the stores; nil when there is one
}

// Take implements [admission.Limiter].
func (l *limits) Take(ctx context.Context, from admission.Caller,
	n int64) (admission.Checked, error) {
	if l.all == nil {
		d, err := l.stores[0].Take(ctx, l.each[0].Expand(string(from.Key), from.IP), n)
		return admission.Checked{Decision: d, Quota: l.quotas[0]}, err
	}
	d, ruling, err := l.all.Take(ctx, l.keys(from), n)
	return admission.Checked{Decision: d, Quota: l.quotas[ruling]}, err
}

// Peek implements [admission.Limiter].
func (l *limits) Peek(ctx context.Context, from admission.Caller,
	n int64) (admission.Checked, error) {
	if l.all == nil {
		d, err := l.stores[0].Peek(ctx, l.each[0].Expand(string(from.Key), from.IP), n)
		return admission.Checked{Decision: d, Quota: l.quotas[0]}, err
	}
	d, ruling, err := l.all.Peek(ctx, l.keys(from), n)
	return admission.Checked{Decision: d, Quota: l.quotas[ruling]}, err
}

// Refund implements [admission.Limiter].
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

// makeLimit makes the limiter of a policy's limits at a place. The stores of limits that stay, by
// name and algorithm, are taken over.
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

// store returns the store of the limit of that name; nil if there is none.
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
