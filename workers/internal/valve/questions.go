package valve

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// question is one whose answer takes the loop a while, or waits for something. It is worked on in
// pieces of some ten microseconds, and in each turn of the loop for questionsFor at most, because
// starts wait meanwhile, and so does the lease.
type question struct {
	job.Question
	number uint64 // it is the how manieth
	valve  *Valve
	part   *Part
	reply  func(job.Answer)
	wall   func(now pace.Instant) time.Time
	until  pace.Instant // when it is answered as well as can be, though it waits
	work   func(now pace.Instant) progress

	// Of OpExpect.
	newest uint64 // of its jobs
	starts []job.ExpectedStart

	states  []job.State // of OpJobs
	aside   func()      // what can be done elsewhere
	purged  []*heldJob  // of OpPurge, those that are still to be dropped
	removed int         // by OpPurge
	unnoted int         // jobs that an operator dropped, while it is not noted yet how they ended
}

// progress is what a piece of work came to.
type progress uint8

const (
	answered progress = iota
	goesOn
	goesOnLater // in the loop's next turn, which comes at once
	goesOnAside // elsewhere, and then here: see aside
	waits       // in the loop's next turn, whenever that comes
)

const (
	// questionsFor bounds how long questions keep the loop from what is due: half of the
	// millisecond by which timers are late anyway.
	questionsFor = 500 * time.Microsecond
	// mostQuestions is how many of them wait; another is refused.
	mostQuestions = 256
	// mostWalks is how many walks of a partition go on at once, those for checkpoints and forecasts
	// included: another list begins later, because a list in the making holds all buckets.
	mostWalks = 8
	// purgePiece is how many jobs are dropped in one piece of work.
	purgePiece = 256
	// mostPurging is how many jobs may wait for their acknowledgement before more of those that are
	// deep are dropped, and purgePause when it is looked again.
	mostPurging = 20_000
	purgePause  = 10 * time.Millisecond
	// askPatience is how long a question about jobs waits for those that have not arrived. The
	// admitter waits 20 ms for the answer.
	askPatience = 15 * time.Millisecond
	// notePatience is how long an answer waits until it is noted how the jobs ended that an
	// operator dropped, so that whoever asked can rely on what repeats of them are told. The asker
	// waits for 2 s.
	notePatience = time.Second
	// editPatience is how long an answer waits until a checkpoint is stored that tells of an edit.
	editPatience = 1500 * time.Millisecond
)

// Questions are those that wait for their answers, of all valves.
type Questions struct {
	Wall    func(now pace.Instant) time.Time // the time by JetStream's clock
	waiting []*question
	behind  bool // there was no time for all of them
	asked   uint64
}

// Aside is a part of the work on a question that takes long and needs nothing of the core.
type Aside struct{ question *question }

// Work may be done anywhere; then the core is told that the question goes on.
func (a Aside) Work() { a.question.aside() }

// GoOn takes that such a part is done.
func (qs *Questions) GoOn(a Aside) { qs.waiting = append(qs.waiting, a.question) }

// Ask takes a question about a partition, which is answered now or while questions are worked on.
func (qs *Questions) Ask(v *Valve, p *Part, asked job.Question, reply func(job.Answer),
	now pace.Instant) {
	refuse := func(why string) { reply(job.Answer{Error: why}) }
	qs.asked++
	q := &question{Question: asked, number: qs.asked, valve: v, part: p, reply: reply,
		wall: qs.Wall, until: pace.Never}
	switch q.Op {
	case job.OpExpect, job.OpJobs:
		if len(q.Jobs) > job.MaxExpected {
			refuse(fmt.Sprintf("at most %d jobs can be asked for at once, not %d", job.MaxExpected,
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
	case job.OpBuckets:
		q.work = q.buckets
	case job.OpBucket:
		q.work = q.bucket
	case job.OpJob, job.OpCancel, job.OpEdit:
		if len(q.Jobs) != 1 {
			refuse("exactly one job is asked for")
			return
		}
		switch q.Op {
		case job.OpJob:
			q.work = q.job
		case job.OpCancel:
			q.work = q.cancel
		case job.OpEdit:
			q.work = q.edit
		}
	case job.OpPurge:
		q.work = q.purge
	case job.OpRoom:
		reply(job.Answer{DelayMS: ceilMillis(v.room(p, q.Key, now)),
			StartMS: v.tail(p, q.Question, now)})
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

// Ponder works on questions, in turns. It reads the clock itself, because it may take only so long.
//
// Questions take turns, a piece each, so that a long list holds up no short question (law 5).
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
		switch p := q.work(now); p {
		case goesOn:
			qs.waiting = append(qs.waiting, q)
		case goesOnAside:
			q.valve.out.Asides = append(q.valve.out.Asides, Aside{q})
		case goesOnLater, waits:
			later = append(later, q)
			qs.behind = qs.behind || p == goesOnLater
		}
	}
	qs.waiting = append(qs.waiting, later...)
}

// Due is when a question must be worked on although nothing happens.
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

// expect says when jobs will start. It waits for those that have not arrived, because whoever
// publishes asks at once, and may overtake the job's delivery by a millisecond or two; but not
// while the partition is being opened, for then all that is stored there arrives first.
//
// What cannot be told of a job that is here is not waited for: that depends on a worker, a target
// or a person.
func (q *question) expect(now pace.Instant) progress {
	if now < q.until {
		if q.newest > q.part.highest && q.part.state == partitionLive {
			return waits
		}
		if !q.valve.foreseen(q.part, now) {
			return goesOn
		}
	}
	for range expectPiece {
		if len(q.starts) == len(q.Jobs) {
			break
		}
		seq := q.Jobs[len(q.starts)]
		wait, known := q.valve.expect(q.part, seq, now)
		start := job.ExpectedStart{Seq: seq, Known: known, DelayMS: ceilMillis(wait)}
		if j := q.valve.seek(q.part, seq); j != nil && j.stage == stageWaiting {
			start.Position, start.Depth = j.jobsBefore(j.Bucket.slotsBefore(j)), j.Bucket.held
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
	if q.part.list.Walks() >= mostWalks {
		return goesOnLater
	}
	l := q.valve.list(q.part, q.By, q.Offset, q.Limit, now)
	tell := func(now pace.Instant) progress {
		if !q.valve.tell(l, now, q.wall(now)) {
			return goesOn
		}
		q.reply(job.Answer{Buckets: l.states, Total: len(l.found)})
		return answered
	}
	q.work = func(pace.Instant) progress {
		if !q.valve.find(l) {
			return goesOn
		}
		q.work = tell
		if len(l.found) > mostPickedAtOnce {
			q.aside = l.pick
			return goesOnAside
		}
		l.pick()
		return goesOn
	}
	return goesOn
}

func (q *question) bucket(now pace.Instant) progress {
	if !q.valve.foreseen(q.part, now) {
		return goesOn
	}
	state := q.valve.bucketState(q.part, q.Key, now, q.wall(now))
	q.reply(job.Answer{Bucket: &state})
	return answered
}

func (q *question) job(now pace.Instant) progress {
	if !q.valve.foreseen(q.part, now) {
		return goesOn
	}
	q.reply(job.Answer{Job: q.valve.jobState(q.part, q.Jobs[0], now, q.wall(now))})
	return answered
}

// jobs looks at one of them in each piece: to count those before it may take ten microseconds.
func (q *question) jobs(now pace.Instant) progress {
	if !q.valve.foreseen(q.part, now) {
		return goesOn
	}
	state := q.valve.jobState(q.part, q.Jobs[0], now, q.wall(now))
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
	a := job.Answer{Job: q.valve.jobState(q.part, q.Jobs[0], now, q.wall(now))}
	a.Removed = q.note(func() int { return q.valve.cancel(q.part, q.Jobs[0], now) })
	return q.whenNoted(a, now)
}

// edit answers once a stored checkpoint tells of it, so that whoever asked can rely on it.
func (q *question) edit(now pace.Instant) progress {
	if q.Edit == nil {
		q.reply(job.Answer{Error: "no change is asked for"})
		return answered
	}
	done, full := q.valve.edit(q.part, q.Jobs[0], *q.Edit, now, q.wall(now))
	if !done {
		q.reply(job.Answer{Full: full,
			Job: q.valve.jobState(q.part, q.Jobs[0], now, q.wall(now))})
		return answered
	}
	number := q.part.edits.made
	q.until = now.Add(editPatience)
	q.work = func(now pace.Instant) progress {
		switch {
		case q.part.edits.told >= number:
			q.reply(job.Answer{Edited: true,
				Job: q.valve.jobState(q.part, q.Jobs[0], now, q.wall(now))})
		case now < q.until:
			return waits
		default:
			q.reply(job.Answer{Error: "the change is in force, and not stored yet"})
		}
		return answered
	}
	return waits
}

// purge drops the jobs that the bucket holds when it begins, those that run excepted.
func (q *question) purge(now pace.Instant) progress {
	last := q.part.highest
	q.purged = q.valve.purges(q.part, q.Key, last)
	q.work = func(now pace.Instant) progress {
		n := min(purgePiece, len(q.purged))
		q.removed += q.note(func() int { return q.valve.purge(q.purged[:n], now) })
		q.purged = q.purged[n:]
		if b := q.part.buckets[q.Key]; len(q.purged) == 0 && b != nil && b.deep+b.deepLater > 0 {
			if q.part.acking >= mostPurging {
				q.until = now.Add(purgePause)
				return waits // for what is dropped to be gone: until then it takes memory
			}
			q.purged = q.valve.purges(q.part, q.Key, last)
		}
		if len(q.purged) > 0 {
			return goesOnLater // what this piece wants done comes first
		}
		return q.whenNoted(job.Answer{Removed: q.removed}, now)
	}
	return q.work(now)
}

// note counts the jobs that drop ends, until it is noted how.
func (q *question) note(drop func() (removed int)) (removed int) {
	before := len(q.valve.out.Endings)
	removed = drop()
	for i := range q.valve.out.Endings[before:] {
		q.unnoted++
		q.valve.out.Endings[before+i].asked = q.number
	}
	return removed
}

// Noted takes that it is noted how a job ended, for whoever's answer waits for that.
func (qs *Questions) Noted(e Ending) {
	for _, q := range qs.waiting {
		if q.number == e.asked {
			q.unnoted--
		}
	}
}

// whenNoted answers as soon as that is noted, or at the end of notePatience.
//
// An operator who hears that a job is cancelled may publish it again at once, and must not be told
// that it is still under way.
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
