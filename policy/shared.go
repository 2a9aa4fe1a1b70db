package policy

import (
	"encoding/json"
	"fmt"
	"slices"
)

// CheckAsShared returns why the limit cannot be shared by policies.
func (l Limit) CheckAsShared() []Problem {
	var c checker
	given := given(l)
	for _, field := range []string{"key", "shadow", "shared"} {
		if given[field] {
			c.add(field, "does not apply to a shared limit, which counts all keys together")
		}
	}
	if l.Name == "" {
		c.add("name", "is required: policies refer to it")
	} else if len(c.problems) == 0 {
		l.Shared = l.Name
		l.withDefaults().checkStarts(&c)
	}
	return c.problems
}

// SharedLimits returns the limits that the policy shares with others.
func (p Policy) SharedLimits() Limits {
	return slices.DeleteFunc(slices.Clone(p.Limits), func(l Limit) bool {
		return l.Shared == "" || !p.Paced()
	})
}

// Alone returns the policy with its shared limits as its own.
func (p Policy) Alone() Policy {
	p.Limits = slices.Clone(p.Limits)
	for i := range p.Limits {
		p.Limits[i].Shared = ""
	}
	return p
}

// CheckShared returns an [*InvalidError] if two policies share differing limits.
func (p Policy) CheckShared(other Policy) error {
	p, other = p.WithDefaults(), other.WithDefaults()
	var problems []Problem
	for i, l := range p.Limits {
		for _, o := range other.Limits {
			if l.Shared != "" && o.Shared == l.Shared && o != l && other.Name != p.Name {
				problems = append(problems, Problem{fmt.Sprintf("limits[%d]", i), fmt.Sprintf(
					"the shared limit %s of policy %s is %s, and here it is %s: it must be equal "+
						"in "+
						"all policies, so change it in their file", l.Shared, other.Name,
					o.numbers(), l.numbers())})
			}
		}
	}
	return Invalid(problems)
}

func (l Limit) numbers() string {
	l.Count = "" // always CountAccepted for limits on starts
	data, err := json.Marshal(struct {
		Cost      string    `json:"cost,omitempty"`
		CountFrom CountFrom `json:"count_from,omitempty"`
		Rule
	}{l.Cost, l.CountFrom, l.Rule})
	if err != nil {
		return err.Error()
	}
	return string(data)
}
