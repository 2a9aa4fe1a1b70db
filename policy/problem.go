package policy

import "strings"

// Problem is one thing that is wrong with a policy. Field is its place as the file spells it
// ("retry.backoff"), empty for the policy as a whole.
type Problem struct {
	Field  string
	Reason string
}

// String is "field: reason".
func (p Problem) String() string {
	if p.Field == "" {
		return p.Reason
	}
	return p.Field + ": " + p.Reason
}

// InvalidError holds everything that is wrong with a policy, or with a change of one.
type InvalidError struct{ Problems []Problem }

// Error lists the problems in one line.
func (e *InvalidError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "; ")
}

// Invalid returns an [*InvalidError] of what [Policy.Validate] found; nil if there are no problems.
func Invalid(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &InvalidError{problems}
}
