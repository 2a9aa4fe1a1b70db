package core

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
)

func sharingPolicy(name string, most int64, stored int64, limits ...string) QueuePolicy {
	p := policy.Policy{Name: name, Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 10}}
	for _, limit := range limits {
		p.Limits = append(p.Limits, policy.Limit{Shared: limit, Rule: policy.Rule{
			Algorithm: policy.SlidingLog, Limit: most, Window: policy.Duration(time.Second)}})
	}
	return QueuePolicy{Policy: p.WithDefaults(), Stored: time.Unix(stored, 0), Own: name != "c"}
}

// While a file's change is written policy by policy, the latest of the unretired ones defines the
// limit, with the longest guard.
func TestTheSharedLimitInForce(t *testing.T) {
	a, b, c := sharingPolicy("a", 5, 100, "account"), sharingPolicy("b", 6, 101, "account"),
		sharingPolicy("c", 7, 102, "account")
	c.Retired, a.WindowMargin = true, policy.Duration(90*time.Millisecond)
	for range 10 {
		all, _ := withShared(configured(a, b, c))
		if len(all) != 4 {
			t.Fatalf("%d policies", len(all))
		}
		of := all["=account"]
		if of.Name != "=account" || of.Limits[0].Limit != 6 || of.WindowMargin != a.WindowMargin ||
			!of.Own ||
			!of.Stored.Equal(a.Stored) || of.Limits[0].Shared != "" {
			t.Errorf("%+v", of)
		}
	}
	all, _ := withShared(configured(c))
	if of := all["=account"]; of.Own || of.Limits[0].Limit != 7 {
		t.Errorf("%+v", of)
	}
}

func TestPoliciesConnectedBySharedLimitsFormALine(t *testing.T) {
	_, lines := withShared(configured(sharingPolicy("a", 5, 1, "x"), sharingPolicy("b", 5, 1, "y"),
		sharingPolicy("d", 5, 1), sharingPolicy("e", 5, 1, "x", "y"),
		sharingPolicy("f", 5, 1, "z")))
	for _, name := range []string{"b", "e", "=x", "=y"} {
		if lines[name] == "" || lines[name] != lines["a"] {
			t.Errorf("%s is in line %q, a in %q", name, lines[name], lines["a"])
		}
	}
	if lines["d"] != "" || lines["f"] == lines["a"] || lines["f"] != lines["=z"] {
		t.Errorf("lines %v", lines)
	}
}

func TestALineGoesToTheDrainerThatMayOwnMostOfIt(t *testing.T) {
	c := &Core{}
	_, c.lines = withShared(configured(sharingPolicy("a", 5, 1, "x"),
		sharingPolicy("b", 5, 1, "x")))
	able := map[string][]string{"a": {"d1", "d2"}, "b": {"d2", "d3"}, "=x": {"d1", "d2", "d3"}}
	ids := c.lines.able(c.lines["a"], func(name string) []string { return able[name] })
	if len(ids) != 1 || ids[0] != "d2" {
		t.Errorf("it goes to one of %v, want d2", ids)
	}
}

func TestAChangeConcernsOnlyPoliciesThatShareLimits(t *testing.T) {
	c := coreBench(t)
	c.setAll(origin, sharingPolicy("a", 5, 1, "x"), sharingPolicy("b", 5, 1, "x"),
		sharingPolicy("d", 5, 1), sharingPolicy("e", 5, 1))
	now := c.run(origin, 3*time.Second, nil)
	for _, change := range []struct {
		Configured
		want  string
		lines int
	}{
		{configured(sharingPolicy("f", 5, 2)), "f", 3},
		{configured(sharingPolicy("d", 5, 2)), "d", 3},
		{Configured{"d": nil}, "", 3},
		{configured(sharingPolicy("e", 5, 2, "x")), "=x a b e f", 4},
		{configured(sharingPolicy("a", 5, 2)), "=x a b e f", 3},
		{Configured{"b": nil, "e": nil}, "", 0},
	} {
		for _, v := range c.valves.all {
			v.awake = false
		}
		c.valves.awake = nil
		c.Handle(change.Configured, now)
		var awake []string
		for _, v := range c.valves.awake {
			awake = append(awake, v.Policy.Name)
		}
		if got := strings.Join(awake, " "); got != change.want || len(c.lines) != change.lines {
			t.Errorf("after %v: awake %q, want %q; lines %v, want %d", change.Configured, got,
				change.want, c.lines, change.lines)
		}
		now = c.run(now, 3*time.Second, nil)
	}
	if left := slices.Sorted(maps.Keys(c.valves.all)); !slices.Equal(left, []string{"a", "f"}) {
		t.Errorf("left are %q", left)
	}
}
