package policy

import (
	"cmp"
	"fmt"
)

// Keeping returns the policy with the partitions of the one that it replaces unless it names its
// own: they cannot change, and that one may be of a time with another default. With an
// outflow_total, or a limit for all keys, there is no choice.
func (p Policy) Keeping(before Policy) Policy {
	if p.HasQueue() && p.OutflowTotal.IsZero() && p.together() < 0 {
		p.Partitions = cmp.Or(p.Partitions, before.Partitions)
	}
	return p
}

// CheckChange returns why a live policy cannot become another, nil when it can. The algorithm, the
// partitions and having a queue at all belong to what is stored under the name: other partitions
// would tear keys apart, and jobs that still wait would be left without anyone to start them. The
// error is an [*InvalidError]. Both policies should be valid.
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
			Problem{"queue", "cannot be taken away, for jobs may wait in it: " +
				"give the policy a new name"})
	case before.HasQueue() && before.Partitions != after.Partitions:
		fixed("partitions", before.Partitions, after.Partitions)
		if before.OutflowTotal.IsZero() && after.Partitions == 1 && !after.OutflowTotal.IsZero() {
			problems[len(problems)-
				1].Reason += ", for outflow_total needs a policy created with one partition"
		}
	}
	return Invalid(problems)
}
