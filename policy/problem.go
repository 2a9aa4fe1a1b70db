package policy

import "strings"

// Problem is at a field ("retry.backoff"), or of the whole policy.
type Problem struct {
	Field  string
	Reason string
}

func (p Problem) String() string {
	if p.Field == "" {
		return p.Reason
	}
	return p.Field + ": " + p.Reason
}

// InvalidError has all problems of a policy or a change.
type InvalidError struct{ Problems []Problem }

func (e *InvalidError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "; ")
}

// Invalid returns an [*InvalidError], or nil if there are no problems.
func Invalid(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &InvalidError{problems}
}
