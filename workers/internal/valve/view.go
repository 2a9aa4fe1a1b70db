package valve

import (
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// View answers what waits at an instant, why, and until when. It changes nothing that a start
// depends on, so that a question has no effect on when jobs start.
type View struct {
	settings *settings
	limits   *startLimits
	health   *gates.Health
	crew     *crew.Crew[*heldJob]
	losses   *gates.Losses
	line     *line
	foreseen *outlook // of many buckets; may be nil
	learning *learning
	open     bool
	now      pace.Instant
}

// View is valid until the next event.
func (v *Valve) View(now pace.Instant) View {
	return View{&v.settings, &v.startLimits, &v.health, &v.Crew, &v.Losses, v.line,
		v.foresight.last, v.learning, v.open, now}
}

// Lowered counts the buckets with a learnt rate.
func (w View) Lowered() int { return w.learning.lowered }

// Down reports whether a breaker holds a key's jobs, and whether their attempts count all the same.
func (w View) Down(p *Part, key queue.Key) (open, counts bool) {
	b := p.look(key)
	_, open = w.health.Down(b.Target)
	return open, w.health.OthersAnswer(b.Target)
}

// hold is holdOf for the bucket's next job, including holds of all buckets, and workers.
func (w View) hold(b *bucket) gates.Hold {
	h := w.limits.holdOf(b, w.now).Or(w.limits.holdOfAll(w.health, w.now))
	if h.Until <= w.now && b.queue.Near() > 0 { // the head may cost more than others
		wait, limit, _ := w.limits.wait(b.queue.Head().takes(), w.now)
		h = gates.Hold{By: gates.ByLimit, Limit: limit, Until: w.now.Add(wait)}
	}
	if h.Until <= w.now && !b.callNext() && !w.crew.MayTake(b.busy()) &&
		(w.crew.Local || w.crew.Declined) {
		h = gates.Hold{By: w.crew.Lacks(), Until: pace.Never}
	}
	return h
}

// held names what holds a bucket, and until when; 0: unpredictable. Empty: no job waits, or one is
// about to start.
func (w View) held(b *bucket) (by string, until pace.Instant) {
	if b.queue.Len()+b.queue.Later() == 0 {
		return "", 0
	}
	h := gates.Shut.Next(w.limits.see(b, w.now))
	switch {
	case h.By == gates.ByPaused:
	case h.By == gates.ByStorage || !w.open:
		return job.BlockedByStorage, 0
	case b.queue.Len() == 0:
		return w.delayed(b)
	default:
		h = w.hold(b)
	}
	switch {
	case h.Until <= w.now:
		return "", 0
	case h.By == gates.ByLimit:
		by = job.BlockedByLimit + h.Limit
		if h.Until < pace.Never && b.queue.Near() > 0 {
			// debt beyond one window is paid in the next
			h.Until = max(h.Until, w.limits.limited(b, b.queue.Head().takes(), w.now))
		}
	case h.By == gates.ByPaused && w.settings.paused:
		by = job.BlockedByPolicyPaused
	case h.By == gates.ByBreaker && w.health.OthersAnswer(b.Target):
		by = job.BlockedByBackoff
	default:
		by = h.By.String()
	}
	if h.Shut() || h.By == gates.ByStorage ||
		h.By == gates.ByBreaker && w.health.Probing(b.Target) {
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

func (w View) heldJob(j *heldJob) (by string, until pace.Instant) {
	switch j.stage {
	case stageSaving, stageBurying:
		return job.BlockedByStorage, 0
	case stageWaiting, stageDelayed:
		by, until = w.held(j.Bucket)
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

// delayed names what holds a bucket in which only delayed jobs wait, and until when.
func (w View) delayed(b *bucket) (by string, until pace.Instant) {
	by, until = job.BlockedByNotBefore, pace.Never
	if at, some := b.queue.DeepLaterAt(); some {
		until = w.limits.wall.of(at)
	}
	if b.queue.NearLater() > 0 {
		if j := b.queue.NthLater(0); j.At <= until {
			by, until = j.held(), j.At
		}
	}
	return by, until
}

// lateMS returns the ms that a bucket lost by reason, and in total without what is meant.
func (w View) lateMS(b *bucket) (by map[string]int64, total int64) {
	due := pace.Never
	if b.spot == spotDue {
		due = b.nextAt
	}
	return w.losses.By(b.Late, b.pace, &b.clock, due, w.open, w.now)
}
