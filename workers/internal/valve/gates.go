package valve

import (
	"math"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// A gate holds jobs back, until an instant or an event.

type reason uint8

const (
	notHeld     reason = iota
	byProcessor        // the loop was late
	byNoWorker
	byWorkersBusy
	byTotalRate
	byLimit
	byConcurrency
	byPaused
	byCooling
	byBreaker
	byStorage
	byRate
	reasons
)

var reasonNames = [reasons]string{byProcessor: job.LateByProcessor,
	byNoWorker: job.BlockedByNoWorker, byWorkersBusy: job.BlockedByWorkersBusy,
	byTotalRate: job.BlockedByTotalRate, byLimit: job.LateByLimit,
	byConcurrency: job.BlockedByConcurrency, byPaused: job.BlockedByPaused,
	byCooling: job.BlockedByThrottled, byBreaker: job.BlockedByBreaker,
	byStorage: job.BlockedByStorage, byRate: job.BlockedByRate}

type hold struct {
	by    reason
	limit string       // if by is byLimit
	until pace.Instant // Never: until some event
}

func (h hold) or(other hold) hold {
	if other.until > h.until {
		return other
	}
	return h
}

// shut returns a gate that only an event opens.
func (b *bucket) shut() hold {
	switch {
	case b.paused:
		return hold{by: byPaused, until: pace.Never}
	case b.Part.state != partitionLive, b.noting > 0:
		return hold{by: byStorage, until: pace.Never}
	case b.blocked(), b.concurrency > 0 && b.Part.legacy.Unseen(): // an inherited run may count
		return hold{by: byConcurrency, until: pace.Never}
	}
	return hold{}
}

func (v *Valve) holdOf(b *bucket, now pace.Instant) hold {
	h := b.shut()
	if h.until == pace.Never {
		return h
	}
	if b.down() {
		h = hold{by: byBreaker, until: b.target.due()}
	}
	h = h.or(hold{by: byCooling, until: b.cool})
	h = h.or(hold{by: byLimit, limit: b.passing.by, until: b.passes(now)})
	h = h.or(v.withinLimits(b, now))
	return h.or(hold{by: byRate, until: b.pace.Next(&b.clock)})
}

func (v *Valve) holdOfAll(now pace.Instant) (h hold) {
	if v.breaker.open {
		h = hold{by: byBreaker, until: v.breaker.due()}
	}
	if h = h.or(v.nextTurn(now)); h.until <= now && v.spent() {
		h = hold{by: byStorage, until: now.Add(askAgain)}
	}
	return h
}

// hold is holdOf for the bucket's next job, including holds of all buckets, and workers.
func (v *Valve) hold(b *bucket, now pace.Instant) hold {
	h := v.holdOf(b, now).or(v.holdOfAll(now))
	if h.until <= now && b.queue.Near() > 0 { // the head may cost more than others
		wait, limit, _ := v.commonWait(b.queue.Head().takes(), now)
		h = hold{by: byLimit, limit: limit, until: now.Add(wait)}
	}
	if h.until <= now && !b.callNext() && !v.mayTakeWorker(b) && (v.Local || v.claims.declined) {
		h = hold{by: v.withoutWorker(), until: pace.Never}
	}
	return h
}

func (c *crew) withoutWorker() reason {
	if !c.Local && c.claims.nobody {
		return byNoWorker
	}
	return byWorkersBusy
}

// held names what holds a bucket, and until when; 0: unpredictable. Empty: no job waits, or one is
// about to start.
func (v *Valve) held(b *bucket, now pace.Instant) (by string, until pace.Instant) {
	if b.queue.Len()+b.queue.Later() == 0 {
		return "", 0
	}
	h := b.shut()
	switch {
	case h.by == byPaused:
	case h.by == byStorage || !v.open:
		return job.BlockedByStorage, 0
	case b.queue.Len() == 0:
		return v.delayed(b)
	default:
		h = v.hold(b, now)
	}
	switch {
	case h.until <= now:
		return "", 0
	case h.by == byLimit:
		by = job.BlockedByLimit + h.limit
		if h.until < pace.Never && b.queue.Near() > 0 {
			// debt beyond one window is paid in the next
			h.until = max(h.until, v.limited(b, 0, 0, &group{}, b.queue.Head().takes(), now))
		}
	case h.by == byPaused && v.paused:
		by = job.BlockedByPolicyPaused
	case h.by == byBreaker && v.othersAnswer(b):
		by = job.BlockedByBackoff
	default:
		by = reasonNames[h.by]
	}
	if h.until == pace.Never || h.by == byStorage ||
		h.by == byBreaker && v.probing(b) {
		return by, 0
	}
	return by, h.until
}

func (h *health) probing(b *bucket) bool {
	return h.breaker.probing() || b.down() && b.target.probing()
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

func (v *Valve) untilWhen(by string, until pace.Instant) api.Hold {
	if until == 0 {
		return api.Hold{By: by}
	}
	at := v.wall.at(until).UTC().Round(time.Millisecond)
	return api.Hold{By: by, Until: &at}
}

type losses struct {
	left struct { // last time that due buckets had to wait, and why
		by reason
		at pace.Instant
	}
	lost    [reasons]time.Duration // since the last TakeLost
	holding map[string]int         // waiting buckets by start limit
}

type lateness struct {
	// lateness that is not made up
	behind    time.Duration
	hold      reason       // what holds the bucket
	since     pace.Instant // since when its rate allows a start
	limited   pace.Instant
	limitedBy reason
	lost      *lost
}

// lost has decaying sums of lost time by reason.
type lost struct {
	last    pace.Instant
	seconds [reasons]float32
}

const lostMemory = time.Minute

func (l *lost) fade(now pace.Instant) {
	faded := float32(math.Exp(-now.Since(l.last).Seconds() / lostMemory.Seconds()))
	for c := range l.seconds {
		l.seconds[c] *= faded
	}
	l.last = now
}

// faded returns the decayed sum of a loss of d that ends now.
func faded(d time.Duration) float32 {
	return float32(-lostMemory.Seconds() * math.Expm1(-d.Seconds()/lostMemory.Seconds()))
}

func (ls *losses) noteLost(b *bucket, by reason, d time.Duration, now pace.Instant) {
	if d <= 0 {
		return
	}
	l := b.late.lost
	if l == nil {
		l = &lost{last: now}
		b.own().late.lost = l
	}
	l.fade(now)
	l.seconds[by] += faded(d)
	ls.lost[by] += d
}

// note records what holds a bucket with waiting jobs. Waits for limits and checkpoints, during
// which its clock runs on, are left to noteStart.
func (ls *losses) note(b *bucket, h hold, now pace.Instant) {
	if h.until <= now {
		h = hold{}
	}
	ls.noteHeld(b, h.limit)
	if b.pace == nil {
		return
	}
	switch {
	case h.by == byLimit, h.by == byStorage && h.until < pace.Never:
		l := &b.own().late
		l.limited, l.limitedBy, h = h.until, h.by, hold{}
	case h.by == byRate:
		h = hold{}
	}
	if h.by == b.late.hold {
		return
	}
	l := &b.own().late
	if l.hold != notHeld {
		ls.noteLost(b, l.hold, now.Since(l.since), now)
	}
	l.hold, l.since = h.by, max(now, b.pace.Next(&b.clock))
}

// missed records a loss since an instant; 0: there was no start. Call it before the clock is held.
func (ls *losses) missed(b *bucket, by reason, since, now pace.Instant) {
	if b.pace != nil && since > 0 && b.late.hold == notHeld && b.queue.Len() > 0 {
		ls.noteLost(b, by, now.Since(max(since, b.pace.Next(&b.clock))), now)
	}
}

// noteStart records how late a start is, before it takes its slot.
func (ls *losses) noteStart(b *bucket, now pace.Instant) {
	if b.pace == nil {
		return
	}
	behind := now.Since(b.clock.Due)
	switch more := behind - b.late.behind; {
	case more > pace.Tolerance:
		since := now.Add(-more)
		if l := b.late; l.limited > since {
			limited := l.limited.Since(since)
			if more -= limited; more <= pace.Tolerance {
				limited, more = limited+more, 0
			}
			ls.noteLost(b, l.limitedBy, limited, now)
			since = l.limited
		}
		ls.noteLost(b, ls.why(b, since), more, now)
	case more > 0:
		return
	}
	b.own().late.behind = behind
}

func (ls *losses) why(b *bucket, since pace.Instant) reason {
	if ls.left.by != notHeld && ls.left.at >= max(since, b.nextAt) {
		return ls.left.by
	}
	return byProcessor
}

func (v *Valve) noteLeft(now pace.Instant) {
	if len(v.due) == 0 {
		return
	}
	if v.left.by, v.left.at = v.withoutWorker(), now; v.all.until > now {
		v.left.by = v.all.by
	}
}

// lateMS returns the ms that a bucket lost by reason, and in total without operators' pauses.
func (v *Valve) lateMS(b *bucket, now pace.Instant) (by map[string]int64, total int64) {
	sum := v.late(b, now)
	for c := notHeld + 1; c < reasons; c++ {
		ms := int64(sum.seconds[c] * 1000)
		if c != byPaused {
			total += ms
		}
		if ms > 0 && by == nil {
			by = map[string]int64{}
		}
		if ms > 0 {
			by[reasonNames[c]] = ms
		}
	}
	return by, total
}

func (v *Valve) late(b *bucket, now pace.Instant) (sum lost) {
	if b.late.lost != nil {
		sum = *b.late.lost
		sum.fade(now)
	}
	by, since := b.late.hold, b.late.since
	if by == notHeld && b.late.limited > now {
		by, since = b.late.limitedBy, b.pace.Next(&b.clock)
	}
	if by == notHeld && b.spot == spotDue {
		by, since = v.why(b, b.nextAt), b.nextAt
		if !v.open {
			by = byStorage
		}
	}
	sum.seconds[by] += faded(max(0, now.Since(since)))
	return sum
}

// TakeHeld reports how long start limits held waiting buckets since the last call.
func (v *Valve) TakeHeld(now pace.Instant, since time.Duration,
	tell func(limit string, held time.Duration)) {
	v.placeChanged(now)
	for limit, buckets := range v.holding {
		tell(limit, time.Duration(buckets)*since)
	}
	if h := v.nextTurn(now); h.by == byLimit && h.until > now && len(v.due) > 0 {
		tell(h.limit, time.Duration(len(v.due))*since)
	}
}

func (ls *losses) TakeLost(tell func(cause string, lost time.Duration)) {
	for by, lost := range ls.lost {
		if lost > 0 {
			tell(reasonNames[by], lost)
			ls.lost[by] = 0
		}
	}
}
