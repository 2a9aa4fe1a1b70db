package valve

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// question is worked on in pieces of about 10 µs, or waits for an event.
type question struct {
	job.Question
	part  *Part
	reply func(job.Answer)
	until pace.Instant
	work  work

	// Of OpExpect.
	newest uint64 // of its jobs
	starts []job.ExpectedStart

	states  []job.State  // of OpJobs
	purged  []*heldJob   // of OpPurge: still to be dropped
	removed int          // by OpPurge, since the last answer
	ended   int          // by OpResume
	probes  int          // by OpResume
	tellBy  pace.Instant // of OpPurge: when to answer before the end; Never: done
	unnoted int
}

type work = func(now pace.Instant) progress

type progress uint8

const (
	answered progress = iota
	goesOn
	waits // for the next iteration, by until
)

const (
	questionsFor = 500 * time.Microsecond
	// mostQuestions bounds the waiting questions.
	mostQuestions = 256
	// mostWalks bounds a partition's walks, as each holds all buckets.
	mostWalks  = 8
	purgePiece = 256
	// purgeFor and notePatience together are shorter than the caller's wait.
	purgeFor = 500 * time.Millisecond
	// deepPiece bounds the deep jobs dropped before a pause; purgePause precedes the next look.
	deepPiece  = 128
	purgePause = 10 * time.Millisecond
	// askPatience bounds the wait for jobs that have not arrived. The admitter waits 20 ms.
	askPatience = 15 * time.Millisecond
	// notePatience bounds the wait for records of ends. The caller waits 2 s.
	notePatience = time.Second
	editPatience = 1500 * time.Millisecond
)

type Questions struct {
	waiting []*question
	behind  bool // some were not answered in time
}

// Ask answers a question, or leaves it to Ponder.
func (qs *Questions) Ask(p *Part, asked job.Question, reply func(job.Answer), now pace.Instant) {
	refuse := func(why string) { reply(job.Answer{Error: why}) }
	q := &question{Question: asked, part: p, reply: reply, until: pace.Never}
	switch q.Op {
	case job.OpExpect, job.OpJobs:
		if len(q.Jobs) > job.MaxExpected {
			refuse(fmt.Sprintf("at most %d jobs can be requested at once, not %d", job.MaxExpected,
				len(q.Jobs)))
			return
		}
		if len(q.Jobs) == 0 {
			reply(job.Answer{})
			return
		}
		if q.work = q.jobs; q.Op == job.OpExpect {
			q.work, q.newest, q.until = q.expect, slices.Max(q.Jobs), now.Add(askPatience)
		}
	case job.OpJob, job.OpCancel, job.OpEdit:
		if len(q.Jobs) != 1 {
			refuse("exactly one job is asked for")
			return
		}
		q.work = map[string]work{job.OpJob: q.jobs, job.OpCancel: q.cancel,
			job.OpEdit: q.edit}[q.Op]
	case job.OpBuckets:
		q.work = q.buckets
	case job.OpBucket:
		q.work = q.bucket
	case job.OpResume:
		q.work = q.resume
	case job.OpPurge:
		for _, w := range qs.waiting {
			if w.Op == job.OpPurge && w.part == p && w.Key == q.Key && w.tellBy == pace.Never {
				w.reply, w.tellBy = reply, now.Add(purgeFor)
				return
			}
		}
		q.work, q.tellBy = q.purge, now.Add(purgeFor)
	case job.OpRoom:
		p.v.placeChanged(now)
		view := p.v.View(now)
		reply(job.Answer{DelayMS: ceilMillis(view.room(p, q.Key)),
			StartMS: view.tail(p, q.Question), Waits: p.waitsAs(q.Key, q.Unique)})
		return
	default:
		refuse("unknown op " + q.Op)
		return
	}
	if len(qs.waiting) >= mostQuestions {
		refuse("too many questions at once")
		return
	}
	qs.waiting = append(qs.waiting, q)
}

// Ponder works on questions in turns, a piece each (law 5), until its time is up.
func (qs *Questions) Ponder(clock func() pace.Instant) {
	qs.behind = false
	if len(qs.waiting) == 0 {
		return
	}
	var later []*question
	for end := clock().Add(questionsFor); len(qs.waiting) > 0; {
		now := clock()
		if now >= end {
			qs.behind = true
			break
		}
		q := qs.waiting[0]
		qs.waiting = qs.waiting[1:]
		if q.part.state > partitionLive {
			q.reply(job.Answer{Error: "the partition has another owner"})
			continue
		}
		q.part.v.placeChanged(now)
		switch q.work(now) {
		case goesOn:
			qs.waiting = append(qs.waiting, q)
		case waits:
			later = append(later, q)
		}
	}
	qs.waiting = append(qs.waiting, later...)
}

func (qs *Questions) Due() pace.Instant {
	if qs.behind {
		return 0
	}
	due := pace.Never
	for _, q := range qs.waiting {
		due = min(due, q.until)
	}
	return due
}

// foreseen reports whether a question about expected starts can be answered.
func (q *question) foreseen(now pace.Instant) bool {
	v := q.part.v
	return v.foresight.sees(q.part, &v.startLimits, now)
}

// expect answers when jobs will start. Publishers ask at once, so it waits for jobs that have not
// arrived.
func (q *question) expect(now pace.Instant) progress {
	if now < q.until {
		if q.newest > q.part.highest && q.part.state == partitionLive {
			return waits
		}
		if !q.foreseen(now) {
			return goesOn
		}
	}
	view := q.part.v.View(now)
	for range expectPiece {
		if len(q.starts) == len(q.Jobs) {
			break
		}
		seq := q.Jobs[len(q.starts)]
		wait, known := view.expect(q.part, seq)
		start := job.ExpectedStart{Seq: seq, Known: known, DelayMS: ceilMillis(wait),
			Progress: q.part.progress[seq]}
		if j := q.part.seek(seq); j != nil && j.stage == stageWaiting {
			start.Position, start.Depth = j.Bucket.jobsBefore(j), int(j.Bucket.held)
		}
		q.starts = append(q.starts, start)
	}
	if len(q.starts) < len(q.Jobs) {
		return goesOn
	}
	q.reply(job.Answer{Starts: q.starts})
	return answered
}

func (q *question) buckets(now pace.Instant) progress {
	if !q.foreseen(now) {
		return goesOn
	}
	if q.part.list.Walks() >= mostWalks {
		q.until = now
		return waits
	}
	l := q.part.v.View(now).listBuckets(q.part, q.By, q.Offset, q.Limit)
	tell := func(now pace.Instant) progress {
		if !l.tell(now) {
			return goesOn
		}
		q.reply(job.Answer{Buckets: l.states, Total: l.total})
		return answered
	}
	q.work = func(pace.Instant) progress {
		if l.find() {
			q.work = tell
		}
		return goesOn
	}
	return goesOn
}

func (q *question) bucket(now pace.Instant) progress {
	if !q.foreseen(now) {
		return goesOn
	}
	state := q.part.v.View(now).bucketState(q.part, q.Key)
	q.reply(job.Answer{Bucket: &state})
	return answered
}

func (q *question) jobs(now pace.Instant) progress {
	if !q.foreseen(now) {
		return goesOn
	}
	state := q.part.v.View(now).jobState(q.part, q.Jobs[0])
	if q.Op == job.OpJob {
		q.reply(job.Answer{Job: state})
		return answered
	}
	if state != nil {
		q.states = append(q.states, *state)
	}
	if q.Jobs = q.Jobs[1:]; len(q.Jobs) > 0 {
		return goesOn
	}
	q.reply(job.Answer{States: q.states})
	return answered
}

func (q *question) cancel(now pace.Instant) progress {
	a := job.Answer{Job: q.part.v.View(now).jobState(q.part, q.Jobs[0])}
	a.Removed = q.note(func() int { return q.part.cancel(q.Jobs[0]) })
	return q.whenNoted(a, now)
}

func (q *question) edit(now pace.Instant) progress {
	if q.Edit == nil {
		q.reply(job.Answer{Error: "no change is asked for"})
		return answered
	}
	done, full := q.part.edit(q.Jobs[0], *q.Edit, now)
	if !done {
		q.reply(job.Answer{Full: full, Job: q.part.v.View(now).jobState(q.part, q.Jobs[0])})
		return answered
	}
	return q.whenStored(func(now pace.Instant) job.Answer {
		return job.Answer{Edited: true, Job: q.part.v.View(now).jobState(q.part, q.Jobs[0])}
	}, now)
}

// whenStored answers once the changes made so far are stored.
func (q *question) whenStored(answer func(now pace.Instant) job.Answer, now pace.Instant) progress {
	asked := q.part.Checkpoints.Asked()
	q.until = now.Add(editPatience)
	q.work = func(now pace.Instant) progress {
		switch {
		case q.part.Checkpoints.Noted.Stored >= asked:
			q.reply(answer(now))
		case now < q.until:
			return waits
		default:
			q.reply(job.Answer{Error: "the change applies but is not stored yet"})
		}
		return answered
	}
	return q.work(now)
}

func (q *question) resume(now pace.Instant) progress {
	resume := func(b *bucket) {
		if b.resume(now) {
			q.ended++
		}
		q.probes += q.part.v.health.ProbeSooner(b.Target, now)
		b.changed()
	}
	answer := func(pace.Instant) job.Answer {
		return job.Answer{Ended: q.ended, Probes: q.probes}
	}
	stored := func(now pace.Instant) progress { return q.whenStored(answer, now) }
	if q.Key != "" {
		if b := q.part.buckets[q.Key]; b != nil {
			resume(b)
		}
		return stored(now)
	}
	if q.part.list.Walks() >= mostWalks {
		q.until = now
		return waits
	}
	walk := q.part.list.Walk()
	q.work = func(at pace.Instant) progress {
		if now = at; walk.Some(walkPiece, resume) {
			return stored(now)
		}
		return goesOn
	}
	return q.work(now)
}

func (q *question) purge(now pace.Instant) progress {
	last := q.part.highest
	if len(q.Jobs) > 0 {
		last = min(last, q.Jobs[0])
	}
	underWay := func(j *heldJob) bool { return j.stage != stageGone }
	piece, began, goOn := q.part.purges(q.Key, last), now, now
	q.purged = piece
	q.work = func(now pace.Instant) progress {
		n := min(purgePiece, len(q.purged))
		q.removed += q.note(func() int { return q.part.v.stock.purge(q.purged[:n]) })
		q.purged = q.purged[n:]
		if now >= q.tellBy {
			q.reply(job.Answer{Removed: q.removed, More: last})
			q.removed, q.tellBy, q.reply = 0, pace.Never, func(job.Answer) {}
		}
		if b := q.part.buckets[q.Key]; len(q.purged) == 0 && b != nil && b.queue.AllDeep() > 0 {
			// The server may read a whole block of the stream for each acknowledgement, while other
			// buckets' texts wait; they get as much time as the last piece took (law 5).
			if slices.ContainsFunc(piece, underWay) {
				goOn = now.Add(now.Since(began))
				q.until = now.Add(purgePause)
				return waits
			}
			if now < goOn {
				q.until = goOn
				return waits
			}
			piece, began = q.part.purges(q.Key, last), now
			q.purged = piece
		}
		if len(q.purged) > 0 {
			q.until = now
			return waits
		}
		return q.whenNoted(job.Answer{Removed: q.removed}, now)
	}
	return q.work(now)
}

// note counts endings until they are recorded.
func (q *question) note(drop func() (removed int)) (removed int) {
	before := len(q.part.v.out.Endings)
	removed = drop()
	for i := range q.part.v.out.Endings[before:] {
		q.unnoted++
		q.part.v.out.Endings[before+i].asked = &q.unnoted
	}
	return removed
}

// whenNoted answers once ends are recorded, because an operator may publish a cancelled job again
// at once.
func (q *question) whenNoted(a job.Answer, now pace.Instant) progress {
	q.until = now.Add(notePatience)
	q.work = func(now pace.Instant) progress {
		if q.unnoted > 0 && now < q.until {
			return waits
		}
		q.reply(a)
		return answered
	}
	return q.work(now)
}
