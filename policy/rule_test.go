package policy

import "testing"

// A number without an algorithm would always be refused.
func TestEachNumberOfARuleBelongsToAnAlgorithm(t *testing.T) {
	for _, name := range algorithmNumbers {
		if owners(name) == "" {
			t.Errorf("%s belongs to no algorithm: algorithmFields does not have it", name)
		}
	}
}
