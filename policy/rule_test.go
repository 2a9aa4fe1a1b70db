package policy

import "testing"

// A number that no algorithm had would be refused wherever it is given.
func TestEachNumberOfARuleBelongsToAnAlgorithm(t *testing.T) {
	for _, name := range algorithmNumbers {
		if owners(name) == "" {
			t.Errorf("%s belongs to no algorithm: algorithmFields does not have it", name)
		}
	}
}
