package workers

import (
	"testing"

	"github.com/penstock-mq/penstock/queue"
)

// saveOf is what an owner of an epoch writes of job 7, knowing of a revision of its record.
func saveOf(epoch, known uint64, attempts, crashes int) *save {
	p := &partition{policy: "api", epoch: epoch}
	r := attemptRecord{V: version, Attempts: attempts, Crashes: crashes, Epoch: epoch, Stream: 1}
	return &save{&job{Arrived: queue.Arrived{Seq: 7}, bucket: &bucket{part: p}}, r, known}
}

// TestAnAttemptRecordIsFenced writes records of one job as two owners do, one after the other, of which the former goes on.
func TestAnAttemptRecordIsFenced(t *testing.T) {
	b := newBench(t, leaky("api", "10/s"))
	d := &Drainer{broker: b.broker}
	write := func(s *save) {
		t.Helper()
		if err := d.writeAttempt(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	stands := func(attempts, crashes int, epoch uint64) {
		t.Helper()
		r, err := b.broker.Attempts().Read(t.Context(), "api.0.7")
		var got attemptRecord
		if err == nil {
			err = decode(r.Value, &got)
		}
		if err != nil || got.Attempts != attempts || got.Crashes != crashes || got.Epoch != epoch {
			t.Fatalf("%+v stands (%v), want %d attempts and %d crashes, by the owner of epoch %d", got, err, attempts, crashes, epoch)
		}
	}
	former := saveOf(10, 0, 1, 0)
	write(former)
	stands(1, 0, 10)
	later := saveOf(20, former.revision, 2, 1)
	write(later)
	write(saveOf(10, former.revision, 2, 0)) // on its way while it was declared dead
	stands(2, 1, 20)
	again := saveOf(20, former.revision, 2, 1) // the answer was lost: it is written again
	write(again)
	stands(2, 1, 20)
	if again.revision != later.revision {
		t.Errorf("it is known by revision %d, and was stored as %d", again.revision, later.revision)
	}
	if err := b.broker.Attempts().Delete(t.Context(), "api.0.7", later.revision); err != nil {
		t.Fatal(err)
	}
	write(saveOf(20, later.revision, 3, 1)) // too late: the job is finished
	if r, err := b.broker.Attempts().Read(t.Context(), "api.0.7"); err == nil {
		t.Errorf("a finished job has a record: %s", r.Value)
	}
}

// TestWhatAFormerOwnerCountedLateCounts: it wrote after its successor had read, and before that wrote anything.
func TestWhatAFormerOwnerCountedLateCounts(t *testing.T) {
	b := newBench(t, leaky("api", "10/s"))
	d := &Drainer{broker: b.broker}
	if err := d.writeAttempt(t.Context(), saveOf(10, 0, 1, 0)); err != nil {
		t.Fatal(err)
	}
	later := saveOf(20, 0, 0, 1)
	if err := d.writeAttempt(t.Context(), later); err == nil {
		t.Fatal("it was written without a look at what stands")
	}
	if err := d.writeAttempt(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	if r := later.record; r.Attempts != 1 || r.Crashes != 1 {
		t.Errorf("%d attempts and %d crashes stand, want 1 and 1", r.Attempts, r.Crashes)
	}
}

// TestARecordThatWasDiscardedIsWrittenAnew: of too many records the oldest go, which leaves no marker.
func TestARecordThatWasDiscardedIsWrittenAnew(t *testing.T) {
	for _, x := range []struct {
		name  string
		found record
		end   bool
	}{
		{"discarded", record{}, false},
		{"deleted with its job", record{revision: 9}, true},
		{"of a later owner", record{exists: true, revision: 9, value: encode(saveOf(30, 0, 0, 0).record)}, true},
		{"of an earlier owner", record{exists: true, revision: 9, value: encode(saveOf(10, 0, 0, 0).record)}, false},
		{"this very one", record{exists: true, revision: 9, value: encode(saveOf(20, 0, 1, 0).record)}, true},
		{"of another version", record{exists: true, revision: 9, value: []byte(`{"v":2}`)}, true},
	} {
		s := saveOf(20, 5, 1, 0)
		if end := s.met(x.found); end != x.end {
			t.Errorf("%s: the end: %v, want %v", x.name, end, x.end)
		}
		if !x.end && s.revision != x.found.revision {
			t.Errorf("%s: it goes on from revision %d, want %d", x.name, s.revision, x.found.revision)
		}
	}
}
