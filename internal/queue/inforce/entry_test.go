package inforce

import (
	"maps"
	"slices"
	"testing"
)

func TestOfASetOnlyChangesAreTold(t *testing.T) {
	before := Entries{"same": {}, "changes": {}, "goes": {}}
	after := maps.Clone(before)
	delete(after, "goes")
	after["changes"], after["comes"] = &Entry{}, &Entry{}
	want := []string{"changes", "comes", "goes"}
	if got := Changed(before, after); !slices.Equal(got, want) {
		t.Errorf("changed are %v, want %v", got, want)
	}
	if got := Changed(after, maps.Clone(after)); got != nil {
		t.Errorf("of an equal set %v changed", got)
	}
	if got := Changed(nil, after); len(got) != len(after) {
		t.Errorf("of a first set only %v are new", got)
	}
}
