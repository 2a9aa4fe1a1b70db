package workers

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/policytest"
	"github.com/penstock-mq/penstock/policy"
)

func TestTheCatalogForgetsPoliciesThatAreGone(t *testing.T) {
	c := &catalog{policies: map[string]policy.Policy{}, gone: map[string]time.Time{},
		keep: func(string, time.Duration) {}}
	at := time.Now()
	learn := func(after time.Duration, names ...string) {
		at = at.Add(after)
		set := policy.Entries{}
		for _, name := range names {
			set[name] = policy.Entry{Policy: policytest.Paced(name, 1, 1)}
		}
		c.learn(set, at)
	}
	learn(0, "stays", "goes", "returns")
	learn(0, "stays")
	if len(c.policies) != 3 {
		t.Errorf("%d policies are known while their jobs may run", len(c.policies))
	}
	learn(time.Minute, "stays", "returns")
	learn(rememberGone, "stays", "returns")
	if _, found := c.policies["goes"]; found || len(c.policies) != 2 || len(c.gone) != 0 {
		t.Errorf("known are %v, gone %v", c.policies, c.gone)
	}
}
