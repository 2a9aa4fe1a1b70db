package policy

import (
	"cmp"
	"fmt"
)

// Keeping returns the policy with the partitions of before, which cannot change, unless it names
// its own.
func (p Policy) Keeping(before Policy) Policy {
	if p.HasQueue() && p.OutflowTotal.IsZero() && p.together() < 0 {
		p.Partitions = cmp.Or(p.Partitions, before.Partitions)
	}
	return p
}

// CheckChange returns why a live policy cannot become another, as an [*InvalidError]. Algorithm,
// partitions, having a queue and posting callbacks are fixed: other partitions would split keys,
// and jobs without a queue, or callbacks without their target, never start.
func CheckChange(before, after Policy) error {
	before, after = before.WithDefaults(), after.WithDefaults()
	var problems []Problem
	fixed := func(field string, was, is any) {
		reason := fmt.Sprintf("cannot change from %v to %v: give the policy a new name", was, is)
		problems = append(problems, Problem{field, reason})
	}
	if before.decider() != after.decider() {
		fixed("algorithm", before.decider(), after.decider())
	}
	switch {
	case before.HasQueue() && !after.HasQueue():
		problems = append(problems,
			Problem{"queue", "cannot be removed because jobs may wait in it: " +
				"keep it, or give the policy a new name"})
	case before.HasQueue() && before.Partitions != after.Partitions:
		fixed("partitions", before.Partitions, after.Partitions)
		if before.OutflowTotal.IsZero() && after.Partitions == 1 && !after.OutflowTotal.IsZero() {
			problems[len(problems)-
				1].Reason += "; outflow_total requires a policy created with one partition"
		}
	}
	if before.Target.Calls() && !after.Target.Calls() {
		problems = append(problems, Problem{"target.http.url", "cannot change from " + CallbackURL +
			" because callbacks may wait for it: give the policy a new name"})
	}
	return Invalid(problems)
}
