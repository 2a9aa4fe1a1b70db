package valve

import (
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// view returns what gates see of a bucket. It is valid until the next one.
func (l *startLimits) view(b *bucket, now pace.Instant) *gates.Bucket {
	s := &l.gates.Seen // field by field, because whole structs cost a write barrier
	s.State, s.Pace, s.Clock, s.Store, s.Now = &b.State, b.pace, &b.clock, &b.Part.Checkpoints, now
	s.Paused, s.Concurrency, s.Buckets = b.paused, b.concurrency, b.Part.Buckets()
	s.Live, s.Unseen = b.Part.state == partitionLive, b.Part.legacy.Unseen()
	if s.Near = b.queue.Near() > 0; s.Near {
		head := b.queue.Head()
		s.Seq, s.Takes = head.Seq, head.takes()
	}
	return s
}

func (l *startLimits) holdOf(b *bucket, now pace.Instant) gates.Hold {
	if h := gates.Shut.Next(l.view(b, now)); h.Shut() {
		return h
	}
	return l.gates.Next(&l.gates.Seen)
}

func (v *Valve) holdOfAll(now pace.Instant) (h gates.Hold) {
	h = v.gates.Quiet.Hold(now).Or(v.health.Hold()).Or(v.nextTurn(now))
	if h.Until <= now && v.spent() {
		h = gates.Hold{By: gates.ByStorage, Until: now.Add(askAgain)}
	}
	return h
}

// hold is holdOf for the bucket's next job, including holds of all buckets, and workers.
func (v *Valve) hold(b *bucket, now pace.Instant) gates.Hold {
	h := v.holdOf(b, now).Or(v.holdOfAll(now))
	if h.Until <= now && b.queue.Near() > 0 { // the head may cost more than others
		wait, limit, _ := v.wait(b.queue.Head().takes(), now)
		h = gates.Hold{By: gates.ByLimit, Limit: limit, Until: now.Add(wait)}
	}
	if h.Until <= now && !b.callNext() && !v.Crew.MayTake(b.busy()) &&
		(v.Crew.Local || v.Crew.Declined) {
		h = gates.Hold{By: v.Crew.Lacks(), Until: pace.Never}
	}
	return h
}

// held names what holds a bucket, and until when; 0: unpredictable. Empty: no job waits, or one is
// about to start.
func (v *Valve) held(b *bucket, now pace.Instant) (by string, until pace.Instant) {
	if b.queue.Len()+b.queue.Later() == 0 {
		return "", 0
	}
	h := gates.Shut.Next(v.view(b, now))
	switch {
	case h.By == gates.ByPaused:
	case h.By == gates.ByStorage || !v.open:
		return job.BlockedByStorage, 0
	case b.queue.Len() == 0:
		return v.delayed(b)
	default:
		h = v.hold(b, now)
	}
	switch {
	case h.Until <= now:
		return "", 0
	case h.By == gates.ByLimit:
		by = job.BlockedByLimit + h.Limit
		if h.Until < pace.Never && b.queue.Near() > 0 {
			// debt beyond one window is paid in the next
			h.Until = max(h.Until, v.limited(b, b.queue.Head().takes(), now))
		}
	case h.By == gates.ByPaused && v.paused:
		by = job.BlockedByPolicyPaused
	case h.By == gates.ByBreaker && v.health.OthersAnswer(b.Target):
		by = job.BlockedByBackoff
	default:
		by = h.By.String()
	}
	if h.Shut() || h.By == gates.ByStorage ||
		h.By == gates.ByBreaker && v.health.Probing(b.Target) {
		return by, 0
	}
	return by, h.Until
}

func (j *heldJob) held() string {
	if j.Attempts > 0 {
		return job.BlockedByBackoff
	}
	return job.BlockedByNotBefore
}

func (v *Valve) heldJob(j *heldJob, now pace.Instant) (by string, until pace.Instant) {
	switch j.stage {
	case stageSaving, stageBurying:
		return job.BlockedByStorage, 0
	case stageWaiting, stageDelayed:
		by, until = v.held(j.Bucket, now)
	}
	if j.stage == stageDelayed && by != job.BlockedByPaused && by != job.BlockedByPolicyPaused {
		return j.held(), j.At
	}
	return by, until
}

func (c wallClock) hold(by string, until pace.Instant) api.Hold {
	if until == 0 {
		return api.Hold{By: by}
	}
	at := c.at(until).UTC().Round(time.Millisecond)
	return api.Hold{By: by, Until: &at}
}

// note records what holds a bucket with waiting jobs.
func (b *bucket) note(h gates.Hold, now pace.Instant) {
	if !b.Late.Is(h, b.pace != nil, now) {
		b.setLate(b.Part.v.Losses.Note(b.Late, h, b.pace, &b.clock, now))
	}
}

func (b *bucket) setLate(to gates.Lateness) {
	if to != b.Late {
		b.own().Late = to
	}
}

// missed records a loss since an instant; 0: there was no start. Call it before the clock is held.
func (b *bucket) missed(by gates.Reason, since, now pace.Instant) {
	if b.queue.Len() > 0 {
		b.setLate(b.Part.v.Losses.Missed(b.Late, by, b.pace, &b.clock, since, now))
	}
}

func (v *Valve) noteLeft(now pace.Instant) {
	switch {
	case len(v.agenda.due) == 0:
	case v.all.Until > now:
		v.Losses.Left(v.all.By, now)
	default:
		v.Losses.Left(v.Crew.Lacks(), now)
	}
}

// lateMS returns the ms that a bucket lost by reason, and in total without what is meant.
func (b *bucket) lateMS(now pace.Instant) (by map[string]int64, total int64) {
	due, v := pace.Never, b.Part.v
	if b.spot == spotDue {
		due = b.nextAt
	}
	return v.Losses.By(b.Late, b.pace, &b.clock, due, v.open, now)
}

// TakeHeld reports how long start limits held waiting buckets since the last call.
func (v *Valve) TakeHeld(now pace.Instant, since time.Duration,
	tell func(limit string, held time.Duration)) {
	v.placeChanged(now)
	v.Losses.EachHeld(func(limit string, buckets int) {
		tell(limit, time.Duration(buckets)*since)
	})
	if h := v.nextTurn(now); h.By == gates.ByLimit && h.Until > now && len(v.agenda.due) > 0 {
		tell(h.Limit, time.Duration(len(v.agenda.due))*since)
	}
}
