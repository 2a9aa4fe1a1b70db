package workers

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// question is one whose answer takes the loop a while, or waits for something. It is worked on in pieces
// of some ten microseconds, and in each turn of the loop for questionsFor at most, because starts wait
// meanwhile, and so does the lease.
type question struct {
	queue.ValveQuestion
	part  *partition
	reply func(queue.ValveAnswer)
	wall  func(now instant) time.Time
	until instant // when it is answered as well as can be, though it waits
	work  func(v *valve, now instant) progress

	// Of OpExpect.
	newest uint64 // of its jobs
	starts []queue.ExpectedStart

	aside   func() // what can be done outside the loop
	purged  []*job // of OpPurge, those that are still to be dropped
	removed int    // by OpPurge
	unnoted int    // jobs that an operator dropped, while it is not noted yet how they ended
}

// progress is what a piece of work came to.
type progress uint8

const (
	answered progress = iota
	goesOn
	goesOnLater // in the loop's next turn, which comes at once
	goesOnAside // outside the loop, and then in it
	waits       // in the loop's next turn, whenever that comes
)

const (
	// questionsFor bounds how long questions keep the loop from what is due.
	questionsFor = 500 * time.Microsecond
	// mostQuestions is how many of them wait; another is refused.
	mostQuestions = 256
	// mostWalks is how many walks of a partition go on at once, those for checkpoints and forecasts
	// included: another list begins later, because a list in the making holds all buckets.
	mostWalks = 8
	// walkPiece, expectPiece and purgePiece are how many buckets are looked at, how many expected starts
	// are told and how many jobs are dropped in one piece of work.
	walkPiece, expectPiece, purgePiece = 256, 16, 256
	// askPatience is how long a question about jobs waits for them to arrive: their publisher may be
	// faster than their delivery. The admitter waits 20 ms for the answer.
	askPatience = 15 * time.Millisecond
	// notePatience is how long an answer waits until it is noted how the jobs ended that an operator
	// dropped, so that who asked can rely on what repeats of them are told. Who asks waits for 2 s.
	notePatience = time.Second
)

// answer takes a question to the valve of a partition.
func (d *Drainer) answer(p *partition, asked queue.ValveQuestion, reply func(queue.ValveAnswer), now instant) {
	refuse := func(why string) { reply(queue.ValveAnswer{Error: why}) }
	q := &question{ValveQuestion: asked, part: p, reply: reply, wall: d.core.wall, until: never}
	v := d.core.valves[p.policy]
	switch q.Op {
	case queue.OpExpect:
		if len(q.Jobs) > queue.MaxExpected {
			refuse(fmt.Sprintf("at most %d jobs can be asked for at once, not %d", queue.MaxExpected, len(q.Jobs)))
			return
		}
		if len(q.Jobs) == 0 {
			reply(queue.ValveAnswer{})
			return
		}
		q.work, q.newest, q.until = q.expect, slices.Max(q.Jobs), now.add(askPatience)
	case queue.OpBuckets:
		q.work = q.buckets
	case queue.OpBucket:
		q.work = q.bucket
	case queue.OpJob, queue.OpCancel:
		if len(q.Jobs) != 1 {
			refuse("exactly one job is asked for")
			return
		}
		q.work = q.job
		if q.Op == queue.OpCancel {
			q.work = q.cancel
		}
	case queue.OpPurge:
		q.work = q.purge
	case queue.OpRoom, queue.OpOutcome, queue.OpWorker:
	default:
		refuse("unknown op " + q.Op)
		return
	}
	switch {
	case v == nil || p.state > partitionLive:
		refuse("the partition has another owner")
	case q.work == nil:
		reply(d.answerAtOnce(v, p, asked, now))
	case len(d.questions) >= mostQuestions:
		refuse("too many questions at once")
	default:
		d.questions = append(d.questions, q)
	}
}

func (d *Drainer) answerAtOnce(v *valve, p *partition, q queue.ValveQuestion, now instant) (a queue.ValveAnswer) {
	switch q.Op {
	case queue.OpRoom:
		a.DelayMS = ceilMillis(v.room(p, q.Key, now))
	case queue.OpOutcome:
		var o outcome
		if err := json.Unmarshal(q.Outcome, &o); err != nil {
			a.Error = "outcome is not understood: " + err.Error()
		} else if !d.core.reported(p.policy, p.number, o, now) {
			a.Error = "the partition is being opened"
		}
	case queue.OpWorker:
		if v.policy.Target != nil {
			a.Error = "the policy has a target, which runs all of its jobs"
		}
	}
	return a
}

// ponder works on questions, in turns.
func (d *Drainer) ponder(clock func() instant) {
	var later []*question
	d.behind = false
	for end := clock().add(questionsFor); len(d.questions) > 0; {
		now := clock()
		if now >= end {
			d.behind = true
			break
		}
		q := d.questions[0]
		d.questions = d.questions[1:]
		v := d.core.valves[q.part.policy]
		if v == nil || q.part.state > partitionLive {
			q.reply(queue.ValveAnswer{Error: "the partition has another owner"})
			continue
		}
		switch p := q.work(v, now); p {
		case goesOn:
			d.questions = append(d.questions, q)
		case goesOnAside:
			d.spawn(func() {
				q.aside()
				d.post(func(instant) { d.questions = append(d.questions, q) })
			})
		case goesOnLater, waits:
			later = append(later, q)
			d.behind = d.behind || p == goesOnLater
		}
	}
	d.questions = append(d.questions, later...)
}

// questionsDue is when a question must be worked on although nothing happens.
func (d *Drainer) questionsDue() instant {
	if d.behind {
		return 0
	}
	due := never
	for _, q := range d.questions {
		due = min(due, q.until)
	}
	return due
}

// expect says when jobs will start. It waits until that can be told of all of them.
func (q *question) expect(v *valve, now instant) progress {
	late := now >= q.until
	if !late {
		if q.newest > q.part.highest {
			return waits
		}
		if !v.foreseen(q.part, now) {
			return goesOn
		}
	}
	for range expectPiece {
		if len(q.starts) == len(q.Jobs) {
			break
		}
		seq := q.Jobs[len(q.starts)]
		wait, known := v.expect(q.part, seq, now)
		if !known && !late {
			q.starts = q.starts[:0]
			return waits
		}
		start := queue.ExpectedStart{Seq: seq, Known: known, DelayMS: ceilMillis(wait)}
		if j := q.part.jobs[seq]; j != nil && j.stage == stageWaiting {
			start.Position = j.jobsBefore(j.bucket.slotsBefore(j))
		}
		q.starts = append(q.starts, start)
	}
	if len(q.starts) < len(q.Jobs) {
		return goesOn
	}
	q.reply(queue.ValveAnswer{Starts: q.starts})
	return answered
}

func (q *question) buckets(v *valve, now instant) progress {
	if len(q.part.walks) >= mostWalks {
		return goesOnLater
	}
	l := v.deepest(q.part, q.Offset, q.Limit, now)
	tell := func(v *valve, now instant) progress {
		if !v.tell(l, now, q.wall(now)) {
			return goesOn
		}
		q.reply(queue.ValveAnswer{Buckets: l.states, Total: len(l.found)})
		return answered
	}
	q.work = func(v *valve, _ instant) progress {
		if !v.find(l) {
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

func (q *question) bucket(v *valve, now instant) progress {
	if !v.foreseen(q.part, now) {
		return goesOn
	}
	state := v.bucketState(q.part, q.Key, now, q.wall(now))
	q.reply(queue.ValveAnswer{Bucket: &state})
	return answered
}

func (q *question) job(v *valve, now instant) progress {
	if !v.foreseen(q.part, now) {
		return goesOn
	}
	q.reply(queue.ValveAnswer{Job: v.jobState(q.part, q.Jobs[0], now, q.wall(now))})
	return answered
}

func (q *question) cancel(v *valve, now instant) progress {
	a := queue.ValveAnswer{Job: v.jobState(q.part, q.Jobs[0], now, q.wall(now))}
	a.Removed = q.note(v, func() int { return v.cancel(q.part, q.Jobs[0], now) })
	return q.whenNoted(a, now)
}

// purge drops the jobs that the bucket holds when it begins, those that run excepted.
func (q *question) purge(v *valve, now instant) progress {
	q.purged = q.part.waiting(q.Key)
	q.work = func(v *valve, now instant) progress {
		n := min(purgePiece, len(q.purged))
		q.removed += q.note(v, func() int { return v.purge(q.purged[:n], now) })
		if q.purged = q.purged[n:]; len(q.purged) > 0 {
			return goesOnLater // what this piece wants done comes first
		}
		return q.whenNoted(queue.ValveAnswer{Removed: q.removed}, now)
	}
	return q.work(v, now)
}

// note counts the jobs that drop ends, until it is noted how.
func (q *question) note(v *valve, drop func() (removed int)) (removed int) {
	before := len(v.out.endings)
	removed = drop()
	for i := range v.out.endings[before:] {
		q.unnoted++
		v.out.endings[before+i].noted = func() { q.unnoted-- }
	}
	return removed
}

// whenNoted answers as soon as that is noted, or at the end of notePatience.
func (q *question) whenNoted(a queue.ValveAnswer, now instant) progress {
	q.until = now.add(notePatience)
	q.work = func(_ *valve, now instant) progress {
		if q.unnoted > 0 && now < q.until {
			return waits
		}
		q.reply(a)
		return answered
	}
	return q.work(nil, now)
}

func ceilMillis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
