package limiter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/policy"
)

func TestASharesMemoryIsFreedOnceItsKeysAreAsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{})
		g := &guarded{factory: f, policy: policy.Policy{Name: "p", Limits: []policy.Limit{
			{Name: "a", Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 5,
				Window: policy.Duration(time.Second)}},
			{Name: "b", Rule: policy.Rule{Algorithm: policy.SlidingCounter, Limit: 5,
				Window: policy.Duration(time.Minute)}},
		}}}
		s := f.share(policy.Policy{Name: "p", OnStoreError: policy.Local})
		first := s.of(g)
		time.Sleep(2*time.Minute - time.Millisecond)
		f.tidyShares()
		if s.of(g) != first {
			t.Error("it is dropped too early")
		}
		time.Sleep(2 * time.Minute)
		f.tidyShares()
		if s.limits != nil {
			t.Error("it stays")
		}
	})
}
