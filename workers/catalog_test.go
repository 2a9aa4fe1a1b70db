package workers

import (
	"context"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/policytest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
)

func TestTheCatalogForgetsPoliciesThatAreGone(t *testing.T) {
	c := &catalog{policies: map[string]policy.Policy{}, gone: map[string]time.Time{},
		running: map[string]Handler{}, keep: func(string, time.Duration) {}}
	at := time.Now()
	before := inforce.Entries{}
	learn := func(after time.Duration, names ...string) {
		at = at.Add(after)
		set := inforce.Entries{}
		for _, name := range names {
			set[name] = &inforce.Entry{Policy: policytest.Paced(name, 1, 1)}
		}
		c.learn(inforce.Changed(before, set), set, at)
		before = set
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

func TestHandlersOfUnchangedPoliciesAreKept(t *testing.T) {
	made := map[string]int{}
	c := &catalog{policies: map[string]policy.Policy{}, gone: map[string]time.Time{},
		running: map[string]Handler{}, keep: func(string, time.Duration) {},
		target: func(entry inforce.Entry) (Handler, error) {
			made[entry.Policy.Name]++
			return func(context.Context, Job) error { return nil }, nil
		}}
	before, same := inforce.Entries{}, &inforce.Entry{Policy: policytest.Paced("same", 1, 1)}
	for range 3 {
		set := inforce.Entries{"same": same, "changes": {Policy: policytest.Paced("changes", 1, 1)}}
		c.learn(inforce.Changed(before, set), set, time.Now())
		before = set
	}
	if made["same"] != 1 || made["changes"] != 3 || len(c.running) != 2 {
		t.Errorf("handlers made: %v; there are %d", made, len(c.running))
	}
}
