package inheritance

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Legacy is what a partition's owner has of its former owners, and of the partition's jobs before
// they arrive.
type Legacy struct {
	crashedAt  pace.Instant // of a takeover after a crash, or 0
	crash      *crash       // nil: no unknown starts
	restsUntil pace.Instant

	jobs    map[uint64]*Job // that have not arrived
	through int64           // storage of the last job that the first owner had seen; 0: unknown
	// runs elsewhere that have not arrived, and may use concurrency
	unseen      int
	unseenUntil pace.Instant // when they no longer count

	finished  finished
	Revisions map[uint64]uint64 // of attempt records, by job
	CrashedBy map[uint64]string // last crashed holder, by job
}

// Job is an inherited job's state.
type Job struct {
	Holder  string // of its run
	Crashed string // a dead holder
	Record  record.Attempt
	Saved   bool            // has an attempt record
	Outcome *record.Outcome // of its run
}

func (j *Job) Runs() bool { return j.Holder != "" }

// notInherited applies to nearly every job. It is read-only.
var notInherited = &Job{}

func New() Legacy {
	return Legacy{jobs: map[uint64]*Job{}, Revisions: map[uint64]uint64{},
		CrashedBy: map[uint64]string{}}
}

// Inherit adds a predecessor's state, under limits that may be nil. Its runs are waited for until
// they must have ended.
func (l *Legacy) Inherit(s State, limits *quota.Limits, timeout time.Duration, now pace.Instant) {
	switch {
	case s.Partly():
		l.crashedAt = now.Add(s.Fence)
	case s.Handover.Crashed > 0:
		l.crashedAt = s.Left(-s.Handover.Crashed, now)
	}
	if s.Handover.Rest > 0 {
		l.restsUntil = s.Left(s.Handover.Rest, now)
	}
	l.crash = newCrash(s, limits, l.crashedAt, now)
	l.through = s.Handover.Through
	for seq, a := range s.Attempts {
		l.jobs[seq] = &Job{Record: a.Attempt, Saved: true}
		l.Revisions[seq] = a.Revision
	}
	for _, r := range s.Handover.Running {
		j := l.jobs[r.Seq]
		if j == nil {
			j = &Job{}
			l.jobs[r.Seq] = j
		}
		// A crash counts when the job arrives, unless its attempt record has it.
		if s.Crashed && r.Holder == s.Owner || s.Gone[r.Holder] ||
			r.Holder == j.Record.CrashedBy {
			j.Crashed = r.Holder
		} else {
			j.Holder = r.Holder
			l.unseen++
			l.unseenUntil = now.Add(timeout)
		}
	}
	if len(s.Handover.Done) > 0 {
		l.finished.before = map[uint64]int64{}
		for _, seq := range s.Handover.Done {
			l.finished.before[seq] = 0
		}
	}
}

// Len counts what has not arrived.
func (l *Legacy) Len() int { return len(l.jobs) + l.unseen }

// Take returns an arrived job's inherited state, unless that is of another job: restored streams
// repeat sequences. last: no inherited run is unseen any more.
func (l *Legacy) Take(seq uint64, stored int64) (j *Job, last bool) {
	j = l.jobs[seq]
	if j == nil {
		return notInherited, false
	}
	delete(l.jobs, seq)
	last = j.Runs() && l.saw()
	if l.newer(stored) {
		j.Holder, j.Crashed, j.Outcome = "", "", nil
	}
	if j.Record.Job != 0 && j.Record.Job != stored {
		j.Record = record.Attempt{}
	}
	if j.Record.CrashedBy != "" {
		l.CrashedBy[seq] = j.Record.CrashedBy
	}
	return j, last
}

// saw counts an inherited run that has arrived, or never will, and reports whether it was the last
// one. A missing one may use any bucket's concurrency, because runs are recorded by sequence.
func (l *Legacy) saw() (last bool) {
	if l.unseen == 0 {
		return false
	}
	l.unseen--
	return l.unseen == 0
}

// Unseen reports whether inherited runs may use concurrency.
func (l *Legacy) Unseen() bool { return l.unseen > 0 }

// LookFor ends the wait for missing inherited runs, and reports whether it did.
func (l *Legacy) LookFor(now pace.Instant) (over bool) {
	if over = l.unseen > 0 && now >= l.unseenUntil; over {
		l.unseen = 0
	}
	return over
}

func (l *Legacy) newer(stored int64) bool { return l.through != 0 && stored > l.through }

// Through returns a record's Through for an owner that has seen jobs up to newest; 0 while, in a
// sweep, inherited state of unknown age may remain.
func (l *Legacy) Through(newest int64, sweeping bool) int64 {
	if l.through == 0 && sweeping && len(l.jobs)+len(l.finished.before) > 0 {
		return 0
	}
	return newest
}

// Finish adds a job whose acknowledgement was confirmed.
func (l *Legacy) Finish(seq uint64, stored int64, sweeping bool, now pace.Instant) {
	l.finished.add(seq, stored, now)
	if sweeping && l.finished.before != nil {
		l.finished.before[seq] = stored
	}
}

// Finished reports whether a delivered job is only to be acknowledged: it was before this backlog
// was opened, and is not a restored stream's other job of its sequence (law 3); or it was lately,
// if it comes again.
func (l *Legacy) Finished(seq uint64, stored int64, again bool, now pace.Instant) bool {
	at, known := l.finished.before[seq]
	return known && (at == stored || at == 0 && !l.newer(stored)) ||
		again && l.finished.lately(seq, stored, now)
}

// Confirmed returns the jobs that may be delivered although their acknowledgement was confirmed,
// because the stream may lose it if the consumer is deleted.
func (l *Legacy) Confirmed(now pace.Instant) []uint64 { return l.finished.all(now) }

// Reopen prepares for a reopened backlog, which redelivers every job.
func (l *Legacy) Reopen() { l.finished.reopen() }

// Restart forgets all jobs, because the stream was recreated.
func (l *Legacy) Restart() {
	clear(l.jobs)
	clear(l.CrashedBy)
	clear(l.Revisions)
	l.unseen, l.finished = 0, finished{}
}

// Swept forgets what is about jobs up to a sequence, which have all arrived or are gone. It returns
// the revisions of the attempt records of those that are gone, and whether no inherited run is
// unseen any more.
func (l *Legacy) Swept(through uint64) (gone map[uint64]uint64, last bool) {
	gone = map[uint64]uint64{}
	for seq, j := range l.jobs {
		if seq > through {
			continue
		}
		delete(l.jobs, seq)
		if j.Saved {
			gone[seq] = l.Revisions[seq]
			delete(l.Revisions, seq)
		}
		if j.Runs() {
			last = l.saw() || last
		}
	}
	maps.DeleteFunc(l.finished.before, func(seq uint64, _ int64) bool { return seq <= through })
	return gone, last
}

// Report keeps the outcome of an inherited run until its job arrives.
func (l *Legacy) Report(o record.Outcome) {
	if j := l.jobs[o.Seq]; j != nil && j.Holder != "" && j.Outcome == nil &&
		o.Kind != record.OutcomeProgress && (o.Holder == "" || o.Holder == j.Holder) {
		j.Outcome = &o
	}
}

// HolderGone counts a crash of the runs of a dead process.
func (l *Legacy) HolderGone(holder string) {
	for _, j := range l.jobs {
		if j.Holder == holder && j.Outcome == nil {
			j.Holder, j.Crashed = "", holder
			l.saw()
		}
	}
}

// Outcomes returns those of inherited runs, in order.
func (l *Legacy) Outcomes() (all []record.Outcome) {
	for _, seq := range slices.Sorted(maps.Keys(l.jobs)) {
		if o := l.jobs[seq].Outcome; o != nil {
			all = append(all, *o)
		}
	}
	return all
}

// Running returns the inherited runs, with their holders, which is self where the outcome is known.
func (l *Legacy) Running(self string) (all []record.Run) {
	for seq, j := range l.jobs {
		switch {
		case j.Outcome != nil:
			all = append(all, record.Run{Seq: seq, Holder: self})
		case j.Holder != "" || j.Crashed != "": // counted once the job arrives
			all = append(all, record.Run{Seq: seq, Holder: cmp.Or(j.Holder, j.Crashed)})
		}
	}
	return all
}
