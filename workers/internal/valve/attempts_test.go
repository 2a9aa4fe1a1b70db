package valve

import (
	"testing"

	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func saveOf(epoch, known uint64, attempts, crashes int) *Save {
	r := record.Attempt{V: record.Version, Attempts: attempts, Crashes: crashes, Epoch: epoch,
		Stream: 1}
	return &Save{handle.Ref{Part: handle.Partition{Policy: "api"}, Seq: 7}, r, known}
}

// standing is the record at the place of a write, or empty.
type standing struct {
	value    []byte
	revision uint64
}

func TestADiscardedRecordIsRewritten(t *testing.T) {
	for _, x := range []struct {
		name  string
		found standing
		end   bool
	}{
		{"discarded", standing{}, false},
		{"deleted with its job", standing{nil, 9}, true},
		{"of a later owner",
			standing{record.Encode(saveOf(30, 0, 0, 0).Record), 9},
			true},
		{"of an earlier owner",
			standing{record.Encode(saveOf(10, 0, 0, 0).Record), 9},
			false},
		{"this very one",
			standing{record.Encode(saveOf(20, 0, 1, 0).Record), 9},
			true},
		{"of another version", standing{[]byte(`{"v":2}`), 9}, true},
	} {
		s := saveOf(20, 5, 1, 0)
		if end := s.Met(x.found.value, x.found.revision); end != x.end {
			t.Errorf("%s: the end: %v, want %v", x.name, end, x.end)
		}
		if !x.end && s.Revision != x.found.revision {
			t.Errorf("%s: it goes on from revision %d, want %d", x.name, s.Revision,
				x.found.revision)
		}
	}
}

func TestARewrittenRecordCountsWhatItReplaces(t *testing.T) {
	for stream, want := range map[int64]record.Attempt{
		1: {Attempts: 2, Crashes: 3, Snoozes: 4},
		2: {Attempts: 1},
	} {
		s, found := saveOf(20, 5, 1, 0), saveOf(10, 0, 2, 3).Record
		found.Snoozes, found.Stream = 4, stream
		s.Met(record.Encode(found), 9)
		if r := s.Record; r.Attempts != want.Attempts || r.Crashes != want.Crashes ||
			r.Snoozes != want.Snoozes {
			t.Errorf("stream %d: %+v, want the counts of %+v", stream, r, want)
		}
	}
}
