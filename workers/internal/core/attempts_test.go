package core

import (
	"testing"

	"github.com/penstock-mq/penstock/workers/internal/record"
)

// saveOf is what an owner of an epoch writes of job 7, knowing of a revision of its record.
func saveOf(epoch, known uint64, attempts, crashes int) *Save {
	r := record.Attempt{V: record.Version, Attempts: attempts, Crashes: crashes, Epoch: epoch,
		Stream: 1}
	return &Save{Ref{Part: Partition{Policy: "api"}, Seq: 7}, r, known}
}

// TestARecordThatWasDiscardedIsWrittenAnew: of too many records the oldest go, which leaves no
// marker.
func TestARecordThatWasDiscardedIsWrittenAnew(t *testing.T) {
	for _, x := range []struct {
		name  string
		found Record
		end   bool
	}{
		{"discarded", Record{}, false},
		{"deleted with its job", Record{Revision: 9}, true},
		{"of a later owner",
			Record{Exists: true, Revision: 9, Value: record.Encode(saveOf(30, 0, 0, 0).Record)},
			true},
		{"of an earlier owner",
			Record{Exists: true, Revision: 9, Value: record.Encode(saveOf(10, 0, 0, 0).Record)},
			false},
		{"this very one",
			Record{Exists: true, Revision: 9, Value: record.Encode(saveOf(20, 0, 1, 0).Record)},
			true},
		{"of another version", Record{Exists: true, Revision: 9, Value: []byte(`{"v":2}`)}, true},
	} {
		s := saveOf(20, 5, 1, 0)
		if end := s.Met(x.found); end != x.end {
			t.Errorf("%s: the end: %v, want %v", x.name, end, x.end)
		}
		if !x.end && s.Revision != x.found.Revision {
			t.Errorf("%s: it goes on from revision %d, want %d", x.name, s.Revision,
				x.found.Revision)
		}
	}
}
