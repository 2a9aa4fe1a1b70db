package limiter_test

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/policy"
)

func TestAPolicyInShadowRefusesNothing(t *testing.T) {
	for _, a := range algorithmNames {
		p := one(a, 2)
		p.Shadow = true
		limit, err := limiter.New(limiter.Options{}).Limit(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		limit.Commit()
		if !limit.Shadow || limit.Quota.Units != 2 {
			t.Errorf("%s: limit %+v", a, limit)
		}
		take := taking(t, limit.Limiter, admission.Caller{Key: "k"})
		over := 0
		for range 6 {
			c := take(1, true)
			if c.Delay != 0 || c.RetryAfter != 0 || len(c.Shadow) != 1 || c.Shadow[0].Limit != "p" {
				t.Fatalf("%s: %+v", a, c)
			}
			if c.Shadow[0].Over {
				over++
				if c.Shadow[0].By <= 0 {
					t.Errorf("%s: over by nothing: %+v", a, c)
				}
			}
		}
		want := 4
		if a == policy.LeakingBucket {
			want = 5
		}
		if over != want {
			t.Errorf("%s: %d of 6 would have been held back, want %d", a, over, want)
		}
		if c := take(3, true); !c.Shadow[0].Over {
			t.Errorf("%s: a cost that could never pass: %+v", a, c)
		}
	}
}

func TestAShadowLimitDecidesBesideTheEnforcedOne(t *testing.T) {
	hour := policy.Duration(time.Hour)
	p := policy.Policy{Name: "p", Limits: policy.Limits{
		{Name: "now", Key: "{key}", Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 3,
			Window: hour}},
		{Name: "next", Key: "{key}", Shadow: true, Rule: policy.Rule{
			Algorithm: policy.SlidingLog, Limit: 2, Window: hour}},
		{Name: "wide", Key: "global", Shadow: true, Rule: policy.Rule{
			Algorithm: policy.SlidingLog, Limit: 9, Window: hour}},
	}}.WithDefaults()
	if problems := p.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	factory := limiter.New(limiter.Options{})
	limit, err := factory.Limit(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if limit.Quota.Policy != "p" || limit.Quota.Units != 3 || limit.Shadow {
		t.Errorf("what clients see is what is enforced: %+v", limit.Quota)
	}
	from := admission.Caller{Key: "k"}
	take := taking(t, limit.Limiter, from)
	over := func(c admission.Checked) (next, wide bool) {
		t.Helper()
		if len(c.Shadow) != 2 || c.Shadow[0].Limit != "next" || c.Shadow[1].Limit != "wide" {
			t.Fatalf("shadow %+v", c.Shadow)
		}
		return c.Shadow[0].Over, c.Shadow[1].Over
	}
	for i, want := range []bool{false, false, true} {
		if next, wide := over(take(1, true)); next != want || wide {
			t.Errorf("request %d: %v %v", i, next, wide)
		}
	}
	if next, wide := over(take(1, false)); !next || wide {
		t.Error("what is refused is decided by candidates too")
	}
	if err := limit.Limiter.Refund(t.Context(), from, 1); err != nil {
		t.Fatal(err)
	}
	if next, _ := over(take(1, true)); next {
		t.Error("what comes back comes back to candidates too")
	}

	p.Limits = p.Limits[:1]
	changed, err := factory.Limit(p, limit.Limiter)
	if err != nil {
		t.Fatal(err)
	}
	changed.Commit()
	taking(t, changed.Limiter, from)(1, false)
}
