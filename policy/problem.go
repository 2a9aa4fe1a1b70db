package policy

import "strings"

// Problem has the place of a field in the file ("retry.backoff"), empty for the whole policy.
type Problem struct {
	Field  string
	Reason string
}

// String returns "field: reason".
func (p Problem) String() string {
	if p.Field == "" {
		return p.Reason
	}
	return p.Field + ": " + p.Reason
}

// InvalidError holds all problems of a policy or of a change.
type InvalidError struct{ Problems []Problem }

// Error lists the problems in one line.
func (e *InvalidError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "; ")
}

// Invalid returns an [*InvalidError], or nil without problems.
func Invalid(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &InvalidError{problems}
}
