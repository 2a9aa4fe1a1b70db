package inheritance

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

const origin = pace.Instant(time.Hour)

func inherit(s State) *Legacy {
	l := New()
	l.Inherit(s, nil, time.Minute, origin)
	return &l
}

func running(runs ...record.Run) State {
	return State{Owner: "old", Crashed: true, Handover: record.Handover{Running: runs}}
}

// What ran at the crashed owner has crashed; what ran elsewhere goes on, and is waited for until it
// has arrived, or was swept, or must have ended.
func TestRunsAreWaitedForUntilAllHaveBeenSeen(t *testing.T) {
	s := running(record.Run{Seq: 1, Holder: "old"}, record.Run{Seq: 2, Holder: "b"},
		record.Run{Seq: 3, Holder: "c"})
	l := inherit(s)
	if j, last := l.Take(1, 1); j.Crashed != "old" || j.Runs() || last || !l.Unseen() {
		t.Errorf("job 1: %+v, last %t; want the crash of old, and others unseen", j, last)
	}
	if j, last := l.Take(2, 2); j.Holder != "b" || last {
		t.Errorf("job 2: %+v, last %t; want a run at b", j, last)
	}
	if _, last := l.Swept(2); last || !l.Unseen() {
		t.Error("a sweep up to job 2 ends the wait for job 3")
	}
	if _, last := l.Swept(3); !last || l.Unseen() || l.Len() > 0 {
		t.Error("a sweep up to job 3 leaves it unseen")
	}
	if j, _ := l.Take(3, 3); j.Runs() {
		t.Errorf("job 3 arrives after the sweep with %+v", j)
	}
	l = inherit(s)
	if l.LookFor(origin.Add(59*time.Second)) || !l.LookFor(origin.Add(time.Minute)) {
		t.Error("unseen runs are not given up after their timeout")
	}
	l = inherit(s)
	l.HolderGone("b")
	if j, last := l.Take(3, 3); !last || j.Holder != "c" {
		t.Errorf("once b is gone, job 3 is %+v, last %t", j, last)
	}
}

// An outcome waits for its job, and is handed on as this process's.
func TestOutcomesWaitForTheirJobs(t *testing.T) {
	l := inherit(running(record.Run{Seq: 2, Holder: "b"}, record.Run{Seq: 3, Holder: "c"}))
	l.Report(record.Outcome{Seq: 2, Kind: record.OutcomeDone, Holder: "x"})
	l.Report(record.Outcome{Seq: 2, Kind: record.OutcomeProgress, Holder: "b"})
	if all := l.Outcomes(); len(all) > 0 {
		t.Fatalf("keeps %+v, of another run or of none", all)
	}
	l.Report(record.Outcome{Seq: 3, Kind: record.OutcomeDone})
	l.Report(record.Outcome{Seq: 2, Kind: record.OutcomeDone, Holder: "b"})
	l.Report(record.Outcome{Seq: 2, Kind: record.OutcomeFailed, Holder: "b"})
	all := l.Outcomes()
	if len(all) != 2 || all[0].Seq != 2 || all[1].Seq != 3 || all[0].Kind != record.OutcomeDone {
		t.Errorf("keeps %+v, want the first outcomes of 2 and 3", all)
	}
	l.HolderGone("b")
	for _, r := range l.Running("self") {
		if r.Holder != "self" {
			t.Errorf("hands job %d on as of %s", r.Seq, r.Holder)
		}
	}
	if j, _ := l.Take(2, 2); j.Outcome == nil || j.Crashed != "" {
		t.Errorf("the job arrives with %+v, want its outcome", j)
	}
}

// Restored streams repeat sequences.
func TestAJobStoredAfterTheRecordInheritsNothing(t *testing.T) {
	s := running(record.Run{Seq: 2, Holder: "b"})
	s.Handover.Through, s.Handover.Done = 100, []uint64{1}
	s.Attempts = map[uint64]Attempt{2: {Attempt: record.Attempt{Attempts: 3, Job: 90}, Revision: 7}}
	l := inherit(s)
	if !l.Finished(1, 100, false, origin) || l.Finished(1, 101, false, origin) {
		t.Error("a job is judged finished by its sequence alone")
	}
	if j, last := l.Take(2, 101); j.Runs() || j.Record.Attempts > 0 || !j.Saved || !last {
		t.Errorf("inherited %+v, last %t; want its record without a count", j, last)
	}
	l = inherit(s)
	if j, _ := l.Take(2, 90); j.Holder != "b" || j.Record.Attempts != 3 {
		t.Errorf("inherited %+v, want a run and three attempts", j)
	}
	if gone, _ := inherit(s).Swept(2); !maps.Equal(gone, map[uint64]uint64{2: 7}) {
		t.Errorf("a sweep returns the records %v, want revision 7 of job 2", gone)
	}
}

// A record tells up to which storage its state was known, once no state of unknown age remains.
func TestThroughIsToldOnceAllStateIsDated(t *testing.T) {
	s := State{Handover: record.Handover{Done: []uint64{1}}}
	l := inherit(s)
	if l.Through(50, true) != 0 || l.Through(50, false) != 50 {
		t.Error("state of unknown age is told as known, or none is told after the sweep")
	}
	l.Swept(1)
	if l.Through(50, true) != 50 {
		t.Error("nothing is told although all of it has come")
	}
}

func TestAFinishedJobIsKnownWhenItComesAgain(t *testing.T) {
	l := New()
	l.Finish(1, 10, false, origin)
	later := origin.Add(10 * time.Second)
	if !l.Finished(1, 10, true, origin) || l.Finished(1, 10, false, origin) ||
		l.Finished(1, 11, true, origin) {
		t.Error("a finished job is not known by sequence and storage if it comes again")
	}
	if !slices.Equal(l.Confirmed(later), []uint64{1}) {
		t.Errorf("hands over %v as finished, want job 1", l.Confirmed(later))
	}
	l.Reopen()
	l.Finish(2, 20, true, later)
	if !l.Finished(1, 10, false, later) || !l.Finished(2, 20, false, later) {
		t.Error("a reopened backlog runs a finished job again")
	}
	l.Swept(2)
	long := later.Add(time.Minute)
	if l.Finished(1, 10, false, long) || len(l.Confirmed(long)) > 0 {
		t.Error("finished jobs are known long after a sweep")
	}
	l.Restart()
	if l.Len() > 0 || len(l.Confirmed(origin)) > 0 {
		t.Error("a recreated stream has finished jobs")
	}
}

func TestFinishedJobsAreBounded(t *testing.T) {
	l := New()
	for seq := range uint64(3 * mostFinished) {
		l.Finish(seq, 0, false, origin)
	}
	f := &l.finished
	if n := len(f.recent) - f.stale; n > mostFinished+1 || len(f.recent) > 2*mostFinished+2 {
		t.Errorf("%d are remembered in %d places, at most %d may be", n, len(f.recent),
			mostFinished)
	}
	if last := uint64(3*mostFinished - 1); !l.Finished(last, 0, true, origin) {
		t.Errorf("job %d, which finished last, is forgotten", last)
	}
}

// A bucket that no record has starts nothing within an interval of a crash, and while others rest.
func TestUnlistedBucketsWaitAfterACrash(t *testing.T) {
	l := inherit(State{})
	if l.Holds(time.Second) != 0 {
		t.Error("a partition without a predecessor holds its buckets")
	}
	l = inherit(State{Crashed: true, Fence: 5 * time.Second})
	if until := l.Holds(time.Second); until != origin.Add(6*time.Second) {
		t.Errorf("after a crash a bucket waits until %v", until.Since(origin))
	}
	later := origin.Add(7 * time.Second)
	ago, _ := l.Tell(2*time.Second, later)
	if none, _ := l.Tell(0, later); ago != record.Micros(2*time.Second) || none != 0 {
		t.Errorf("a record tells of a crash %d µs ago, or after it has no effect %d", ago, none)
	}
	l = inherit(State{Elapsed: time.Second,
		Handover: record.Handover{Rest: record.Micros(9 * time.Second)}})
	if _, rest := l.Tell(0, origin); rest != record.Micros(8*time.Second) ||
		l.Holds(time.Second) != origin.Add(8*time.Second) {
		t.Errorf("buckets rest for %d µs, want 8 s", rest)
	}
}
