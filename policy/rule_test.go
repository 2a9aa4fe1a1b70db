package policy

import "testing"

func TestEachNumberOfARuleBelongsToAnAlgorithm(t *testing.T) {
	for _, name := range algorithmNumbers {
		if owners(name) == "" {
			t.Errorf("%s belongs to no algorithm: allAlgorithms does not have it", name)
		}
	}
}
