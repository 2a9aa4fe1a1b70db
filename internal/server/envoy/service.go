package envoy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

const (
	mostDescriptors = 256
	// distinct limits from requests
	mostOwn = 1000
	// of hits in metrics, with values of requests
	mostNames = 1000
)

type Options struct {
	NewLimit admit.NewLimit
	// default closed: the gateway's configuration decides
	OnStoreError policy.OnStoreError
	Shared       bool
	Files        []string
	// Headers sends RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset.
	Headers bool
	// Sink takes decisions by limit, and all names after each load; may be nil.
	Sink queue.Sink
}

type counter struct {
	name    string // in metrics
	limiter admission.Limiter
}

type Service struct {
	options Options
	config  atomic.Pointer[Config]

	reloading sync.Mutex

	mu  sync.Mutex // not held while files are read: requests wait for it
	own map[string]*Limit

	naming sync.Mutex
	named  map[string]string // names of hits with values of requests: the limit's in metrics
}

func New(o Options) (*Service, error) {
	o.Sink = queue.Sinks{o.Sink}
	s := &Service{options: o, own: map[string]*Limit{}, named: map[string]string{}}
	s.config.Store(&Config{})
	return s, s.Reload()
}

// Reload keeps the limits if the files are invalid, and counts unless the unit changes.
func (s *Service) Reload() error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	next, err := Load(s.options.Files)
	if err != nil {
		return err
	}
	before := map[string]*Limit{}
	for _, l := range s.config.Load().limits {
		before[l.Path] = l
	}
	var names []string
	var commits []func()
	for _, l := range next.limits {
		var previous admission.Limiter
		if same := before[l.Path]; same != nil && same.Rate.Unit == l.Rate.Unit {
			previous = same.counter.limiter
		}
		commit, err := s.count(l, Prefix+l.Path, previous)
		if err != nil {
			return err
		}
		commits, names = append(commits, commit), append(names, l.counter.name)
	}
	for _, commit := range commits {
		commit()
	}
	s.config.Store(next)
	s.naming.Lock()
	maps.DeleteFunc(s.named, func(_, of string) bool { return !slices.Contains(names, of) })
	s.naming.Unlock()
	s.options.Sink.Take(queue.Event{Type: jet.EventGateways, Data: names})
	return nil
}

func (s *Service) count(l *Limit, name string, previous admission.Limiter) (func(), error) {
	l.counter.name = name
	if l.Unlimited || l.Rate.RequestsPerUnit == 0 {
		return func() {}, nil
	}
	made, err := s.options.NewLimit(policy.Policy{Name: name,
		OnStoreError: s.options.OnStoreError, Rule: policy.Rule{Algorithm: policy.FixedWindow,
			Limit: int64(l.Rate.RequestsPerUnit), Window: policy.Duration(Window(l.Rate)),
			SinceEpoch: sinceEpoch(l.Rate)},
	}.WithDefaults(), previous)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.Path, err)
	}
	l.counter.limiter = made.Limiter
	return made.Commit, nil
}

type asked struct {
	limit   *Limit
	counted string
	name    string // of hits in metrics
	hits    uint64
	refund  bool
}

// Decide counts at least one hit for each descriptor, even if another is refused. It returns
// [*admission.RequestError], or the error of a limiter.
func (s *Service) Decide(ctx context.Context, r *ratelimit.RateLimitRequest) (
	*ratelimit.RateLimitResponse, error) {

	questions, err := s.questions(r)
	if err != nil {
		return nil, err
	}
	answer := &ratelimit.RateLimitResponse{Statuses: make([]*Status, len(questions))}
	errs := make([]error, len(questions))
	var asking sync.WaitGroup
	for i, q := range questions {
		ask := func() { answer.Statuses[i], errs[i] = s.ask(ctx, q) }
		if s.options.Shared && i < len(questions)-1 && q.limit != nil {
			asking.Go(ask)
		} else {
			ask()
		}
	}
	asking.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	tightest := s.conclude(answer, questions)
	if s.options.Headers {
		answer.ResponseHeadersToAdd = headers(tightest)
	}
	return answer, nil
}

func (s *Service) questions(r *ratelimit.RateLimitRequest) ([]asked, error) {
	domain, descriptors := r.GetDomain(), r.GetDescriptors()
	switch {
	case domain == "":
		return nil, &admission.RequestError{Field: "domain", Reason: "must not be empty"}
	case len(descriptors) == 0:
		return nil, &admission.RequestError{Field: "descriptors", Reason: "must not be empty"}
	case len(descriptors) > mostDescriptors:
		return nil, &admission.RequestError{Field: "descriptors",
			Reason: fmt.Sprintf("must have at most %d entries", mostDescriptors)}
	}
	config := s.config.Load()
	found := make([]asked, len(descriptors))
	var replaced map[string]bool
	for i, d := range descriptors {
		q := &found[i]
		if d.GetLimit() == nil {
			q.limit, q.counted, q.name = config.Find(domain, d.GetEntries())
			q.name = s.nameHits(q.limit, q.name)
		} else if config.domains[domain] != nil {
			var err error
			if q.limit, err = s.ownLimit(domain, d.GetLimit()); err != nil {
				return nil, err
			}
			q.counted = counts(q.limit.Rate, d.GetEntries(), nil)
			q.name = q.limit.counter.name
		}
		q.hits, q.refund = uint64(max(r.GetHitsAddend(), 1)), d.GetIsNegativeHits()
		if d.GetHitsAddend() != nil {
			q.hits = d.GetHitsAddend().Value
		}
		if q.limit != nil && len(q.limit.Replaces) > 0 {
			if replaced == nil {
				replaced = map[string]bool{}
			}
			for _, name := range q.limit.Replaces {
				replaced[name] = true
			}
		}
	}
	for i, q := range found {
		if q.limit != nil && !q.limit.Unlimited && q.limit.Rate.Name != "" &&
			replaced[q.limit.Rate.Name] {
			found[i].limit = nil
		}
	}
	return found, nil
}

func (s *Service) ownLimit(domain string,
	given *common.RateLimitDescriptor_RateLimitOverride) (*Limit, error) {

	r := &Rate{RequestsPerUnit: given.GetRequestsPerUnit(), Unit: unit(given.GetUnit()),
		UnitMultiplier: given.GetUnitMultiplier()}
	if units[r.Unit].length == 0 {
		return nil, &admission.RequestError{Field: "limit", Reason: "the unit is unknown"}
	}
	if Window(r) == 0 {
		return nil, &admission.RequestError{Field: "limit",
			Reason: "the unit_multiplier must be at least 1, and a window at most 366 days"}
	}
	name := fmt.Sprintf("%s%s.:%d/%s", Prefix, domain, r.RequestsPerUnit, per(r))
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.own[name]; l != nil {
		return l, nil
	}
	if len(s.own) >= mostOwn {
		return nil, &admission.RequestError{Field: "limit", Reason: fmt.Sprintf(
			"requests already had %d different limits: define them in a file", mostOwn)}
	}
	l := &Limit{Rate: r}
	commit, err := s.count(l, name, nil)
	if err != nil {
		return nil, err
	}
	commit()
	s.own[name] = l
	return l, nil
}

type Status = ratelimit.RateLimitResponse_DescriptorStatus

func (s *Service) ask(ctx context.Context, q asked) (*Status, error) {
	l, status := q.limit, &Status{Code: code(false)}
	switch {
	case l == nil:
		return status, nil
	case l.Unlimited:
		status.LimitRemaining = math.MaxUint32
		return status, nil
	}
	decision, before, err := l.decide(ctx, q)
	s.tell(q, before, decision.Allowed, err)
	if err != nil && !l.Shadow {
		return status, err
	}
	over := !decision.Allowed && err == nil
	status.Code, status.CurrentLimit = code(over && !l.Shadow), l.Rate
	status.LimitRemaining = uint32(decision.Remaining) // at most the limit, a uint32
	reset := decision.ResetAfter
	if reset <= 0 {
		reset = l.rest()
	}
	seconds := (reset + time.Second - 1) / time.Second // rounded up
	status.DurationUntilReset = &durationpb.Duration{Seconds: int64(seconds)}
	if l.Shadow {
		s.options.Sink.Take(queue.Event{Type: jet.EventShadowed, Policy: l.counter.name,
			Name: l.counter.name, Value: jet.Whether(over), For: decision.RetryAfter})
	}
	s.options.Sink.Take(queue.Event{Type: jet.EventChecked, Policy: l.counter.name,
		Value: jet.Whether(status.Code == code(false))})
	return status, nil
}

func code(over bool) ratelimit.RateLimitResponse_Code {
	if over {
		return ratelimit.RateLimitResponse_OVER_LIMIT
	}
	return ratelimit.RateLimitResponse_OK
}

// decide also returns the units that were used before. Excessive hits use up the rest, because
// gateways may report costs afterwards.
func (l *Limit) decide(ctx context.Context, q asked) (_ algorithms.Decision, before uint64,
	_ error) {

	if l.counter.limiter == nil {
		return algorithms.Decision{}, 0, nil
	}
	ask, from := l.counter.limiter, admission.Caller{Key: queue.Key(q.counted)}
	var checked admission.Checked
	var err error
	most := uint64(l.Rate.RequestsPerUnit)
	switch {
	case q.hits == 0:
		checked, err = ask.Peek(ctx, from, 1)
	case q.refund:
		if err = ask.Refund(ctx, from, int64(min(q.hits, most))); err == nil {
			checked, err = ask.Peek(ctx, from, 1)
		}
		checked.Allowed = true
	case q.hits <= most:
		checked, err = ask.Take(ctx, from, int64(q.hits))
		if _, lowered := errors.AsType[*algorithms.CostError](err); !lowered {
			break
		}
		fallthrough // the files were read again meanwhile
	default:
		checked, err = ask.Peek(ctx, from, 1)
		checked.Allowed = false
	}
	before = most - min(most, uint64(max(checked.Remaining, 0)))
	if checked.Allowed {
		before -= min(before, q.hits)
	}
	if err != nil || checked.Allowed || checked.Remaining <= 0 || q.hits <= 1 {
		return checked.Decision, before, err
	}
	if used, err := ask.Take(ctx, from, checked.Remaining); err == nil {
		checked.ResetAfter = used.ResetAfter
	}
	checked.Remaining, checked.RetryAfter = 0, checked.ResetAfter
	return checked.Decision, before, nil
}

// rest of the window, by this machine's clock
func (l *Limit) rest() time.Duration {
	now := time.Now()
	_, end := algorithms.FixedWindow{Window: Window(l.Rate),
		SinceEpoch: sinceEpoch(l.Rate)}.Bounds(now)
	return end.Sub(now)
}

// conclude sets the overall code: over if one limit is, or all quota limits are. It returns the
// status for the headers, or nil: the last over its limit, else the first with the fewest units
// left.
func (s *Service) conclude(answer *ratelimit.RateLimitResponse, of []asked) (tightest *Status) {
	quotas, quotasOver := 0, 0
	answer.OverallCode = code(false)
	for i, status := range answer.Statuses {
		quota := of[i].limit != nil && !of[i].limit.Unlimited && of[i].limit.Quota
		over := status.Code == code(true)
		switch {
		case quota:
			quotas++
			quotasOver += int(jet.Whether(over))
		case over:
			answer.OverallCode = code(true)
			tightest = status
			continue
		}
		if status.CurrentLimit != nil && (tightest == nil ||
			status.LimitRemaining < tightest.LimitRemaining) {
			tightest = status
		}
	}
	if quotas > 0 && quotas == quotasOver {
		answer.OverallCode = code(true)
	}
	return tightest
}

func headers(of *Status) []*core.HeaderValue {
	if of == nil {
		return nil
	}
	header := func(name string, value int64) *core.HeaderValue {
		return &core.HeaderValue{Key: name, Value: strconv.FormatInt(value, 10)}
	}
	return []*core.HeaderValue{
		header("RateLimit-Limit", int64(of.CurrentLimit.RequestsPerUnit)),
		header("RateLimit-Remaining", int64(of.LimitRemaining)),
		header("RateLimit-Reset", of.DurationUntilReset.Seconds),
	}
}

// nearRatio is envoyproxy/ratelimit's default: hits above this part of a limit are near it.
const nearRatio float32 = 0.8

// tell counts hits as envoyproxy/ratelimit does; refunds are no hits. Only some of the hits of a
// request may be over the limit, or near it.
func (s *Service) tell(q asked, before uint64, allowed bool, err error) {
	if q.refund {
		return
	}
	tell := func(stat string, hits uint64) {
		if hits > 0 {
			s.options.Sink.Take(queue.Event{Type: jet.EventHits, Policy: q.limit.counter.name,
				Name: q.name, Reason: stat, Value: int64(hits)})
		}
	}
	limit := uint64(q.limit.Rate.RequestsPerUnit)
	hits := min(q.hits, math.MaxInt64/2)
	after, near := before+hits, max(before, uint64(float32(limit)*nearRatio))
	tell("total_hits", hits)
	switch {
	case err != nil:
	case allowed:
		tell("within_limit", hits)
		tell("near_limit", max(after, near)-near)
	default:
		over := hits
		if before < limit {
			over = after - limit
			tell("near_limit", limit-min(limit, near))
		}
		tell("over_limit", over)
		if q.limit.Shadow {
			tell("shadow_mode", over)
		}
	}
}

// nameHits bounds the names that requests make, because each takes memory: further hits count by
// the limit's own.
func (s *Service) nameHits(l *Limit, name string) string {
	if l == nil || l.Unlimited {
		return ""
	}
	if name == l.Path {
		return l.counter.name
	}
	name = Prefix + name
	s.naming.Lock()
	defer s.naming.Unlock()
	if _, known := s.named[name]; !known {
		if len(s.named) >= mostNames {
			return l.counter.name
		}
		s.named[name] = l.counter.name
	}
	return name
}
