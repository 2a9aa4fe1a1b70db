package limiter

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

// Each shadow limit decides independently.
type shadow struct {
	enforced   admission.Limiter
	candidates []candidate
	timeout    time.Duration // for candidates in a shared store; 0 without one
}

type candidate struct {
	name   string
	byIP   bool
	limits *limits
}

func (f *Factory) shadow(p policy.Policy, previous admission.Limiter) (admission.Limit, error) {
	before, _ := previous.(*shadow)
	if before == nil {
		before = &shadow{enforced: previous}
	}
	s := &shadow{}
	var made admission.Limit
	var commits []func()
	of, place := p, Place(f.memory())
	if f.shared != nil {
		s.timeout, place = f.options.Shared.Timeout, f.shared
	}
	of.Limits, of.Shadow = p.Enforced(), false
	if len(of.Limits) > 0 { // otherwise the policy's own rule is a candidate
		var err error
		if made, err = f.enforced(of, before.enforced); err != nil {
			return admission.Limit{}, err
		}
		s.enforced, commits = made.Limiter, append(commits, made.Commit)
	}
	for _, l := range p.Candidates() {
		if of.Limits = (policy.Limits{l}); len(p.Limits) == 0 {
			of.Limits = nil
		}
		one, err := makeLimit(of, place, before.candidate(l.Name))
		if err != nil {
			return admission.Limit{}, err
		}
		s.candidates = append(s.candidates, candidate{l.Name, l.ByIP(), one.Limiter.(*limits)})
		commits = append(commits, one.Commit)
		if made.Limiter == nil {
			made.Limiter, made.Quota, made.Shadow = one.Limiter, one.Quota, true
		}
	}
	made.Limiter = s
	made.Commit = func() {
		for _, commit := range commits {
			if commit != nil {
				commit()
			}
		}
	}
	return made, nil
}

func (s *shadow) candidate(name string) *limits {
	for _, c := range s.candidates {
		if c.name == name {
			return c.limits
		}
	}
	return nil
}

func (s *shadow) Take(ctx context.Context, from admission.Caller,
	n int64) (admission.Checked, error) {
	return s.ask(ctx, admission.Limiter.Take, (*limits).Take, from, n)
}

func (s *shadow) Peek(ctx context.Context, from admission.Caller,
	n int64) (admission.Checked, error) {
	return s.ask(ctx, admission.Limiter.Peek, (*limits).Peek, from, n)
}

// Outages of candidates are ignored.
func (s *shadow) ask(ctx context.Context,
	enforced func(admission.Limiter, context.Context, admission.Caller, int64) (
		admission.Checked, error),
	q question, from admission.Caller, n int64) (checked admission.Checked, err error) {
	if s.enforced != nil {
		if checked, err = enforced(s.enforced, ctx, from, n); err != nil {
			return checked, err
		}
	}
	within := ctx
	if s.timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	for i, c := range s.candidates {
		if c.byIP && from.IP == "" {
			continue
		}
		d, err := q(c.limits, within, from, n)
		if i == 0 && s.enforced == nil {
			checked = pass(d, c.limits.quotas[0])
		}
		_, tooMuch := errors.AsType[*algorithms.CostError](err)
		switch {
		case tooMuch:
			checked.Shadow = append(checked.Shadow, admission.Shadowed{Limit: c.name, Over: true})
		case err == nil:
			checked.Shadow = append(checked.Shadow, admission.Shadowed{Limit: c.name,
				Over: !d.Allowed || d.Delay > 0, By: max(d.Delay, d.RetryAfter)})
		}
	}
	if s.enforced == nil {
		checked.Allowed, checked.Granted = true, n
	}
	return checked, nil
}

func pass(d admission.Checked, quota admission.Quota) admission.Checked {
	d.Quota, d.Delay, d.RetryAfter, d.Limit = quota, 0, 0, quota.Units
	return d
}

func (s *shadow) Refund(ctx context.Context, from admission.Caller, n int64) error {
	for _, c := range s.candidates {
		if c.byIP && from.IP == "" {
			continue
		}
		// an unavailable store does not count
		_ = c.limits.Refund(ctx, from, n)
	}
	if s.enforced == nil {
		return nil
	}
	return s.enforced.Refund(ctx, from, n)
}
