package quota_test

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

// Starts come twice as fast as a candidate allows, and then stop.
func TestAShadowLimitReportsItsDelay(t *testing.T) {
	p := policy.Policy{Name: "p", Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 9},
		Limits: policy.Limits{
			{Name: "pace", Key: "{key}", Shadow: true, Rule: policy.Rule{
				Algorithm: policy.SlidingLog, Limit: 1, Window: policy.Duration(time.Second)}},
			{Name: "wide", Key: "{key}", Shadow: true, Rule: policy.Rule{
				Algorithm: policy.TokenBucket, Capacity: 100,
				Refill: algorithms.Rate{Count: 1, Per: time.Second}}},
		}}.WithDefaults()
	if problems := p.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	if quota.New(p) != nil {
		t.Error("candidates hold something back")
	}
	c := quota.NewCandidates(p)
	var trial *quota.Trial
	var delays map[string]time.Duration
	for i := range 10 {
		now := at(time.Duration(i) * 500 * time.Millisecond)
		trial, delays = c.Start(trial, now, quota.Cost{Job: 1})
		least := time.Duration(i) * 500 * time.Millisecond
		most := least + time.Duration(i)*time.Duration(p.WindowMargin)
		if by := delays["pace"]; by < least || by > most {
			t.Errorf("start %d would have been delayed by %v, want %v", i, by, least)
		}
		if _, told := delays["wide"]; told {
			t.Errorf("start %d: %v", i, delays)
		}
	}
	if wait := c.FreshIn(trial, at(5*time.Second)); wait < 5*time.Second || wait > 12*time.Second {
		t.Errorf("as good as new in %v", wait)
	}
	if _, delays = c.Start(trial, at(time.Minute), quota.Cost{Job: 1}); len(delays) > 0 {
		t.Errorf("a minute later: %v", delays)
	}
}
