package workers

import (
	"testing"

	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

func attemptOf(epoch, known uint64, attempts, crashes int) *valve.Save {
	r := record.Attempt{V: record.Version, Attempts: attempts, Crashes: crashes, Epoch: epoch,
		Stream: 1}
	ref := handle.Ref{Part: handle.Partition{Policy: "api"}, Seq: 7}
	return &valve.Save{Ref: ref, Record: r, Revision: known}
}

func TestAnAttemptRecordIsFenced(t *testing.T) {
	b := newBench(t, leaky("api", "10/s"))
	attempts := b.broker.Tables().Attempts
	write := func(s *valve.Save) {
		t.Helper()
		if err := save(t.Context(), attempts, s); err != nil {
			t.Fatal(err)
		}
	}
	stands := func(attempts, crashes int, epoch uint64) {
		t.Helper()
		r, err := b.broker.Tables().Attempts.Read(t.Context(), "api.0.7")
		var got record.Attempt
		if err == nil {
			err = record.Decode(r.Value, &got)
		}
		if err != nil || got.Attempts != attempts || got.Crashes != crashes || got.Epoch != epoch {
			t.Fatalf("%+v stands (%v), want %d attempts and %d crashes, by the owner of epoch %d",
				got, err, attempts, crashes, epoch)
		}
	}
	former := attemptOf(10, 0, 1, 0)
	write(former)
	stands(1, 0, 10)
	later := attemptOf(20, former.Revision, 2, 1)
	write(later)
	write(attemptOf(10, former.Revision, 2, 0))
	stands(2, 1, 20)
	again := attemptOf(20, former.Revision, 2, 1) // repeated, because the reply was lost
	write(again)
	stands(2, 1, 20)
	if again.Revision != later.Revision {
		t.Errorf("it is known by revision %d, and was stored as %d", again.Revision, later.Revision)
	}
	if err := b.broker.Tables().Attempts.Delete(t.Context(), "api.0.7", later.Revision); err !=
		nil {
		t.Fatal(err)
	}
	write(attemptOf(20, later.Revision, 3, 1))
	if r, err := b.broker.Tables().Attempts.Read(t.Context(), "api.0.7"); err == nil {
		t.Errorf("a finished job has a record: %s", r.Value)
	}
}

// It wrote after its successor had read, but before that wrote.
func TestALateAttemptOfAFormerOwnerCounts(t *testing.T) {
	b := newBench(t, leaky("api", "10/s"))
	attempts := b.broker.Tables().Attempts
	if err := save(t.Context(), attempts, attemptOf(10, 0, 1, 0)); err != nil {
		t.Fatal(err)
	}
	later := attemptOf(20, 0, 0, 1)
	if err := save(t.Context(), attempts, later); err == nil {
		t.Fatal("it was written without a look at what stands")
	}
	if err := save(t.Context(), attempts, later); err != nil {
		t.Fatal(err)
	}
	if r := later.Record; r.Attempts != 1 || r.Crashes != 1 {
		t.Errorf("%d attempts and %d crashes stand, want 1 and 1", r.Attempts, r.Crashes)
	}
}
