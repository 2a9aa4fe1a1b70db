package valve

import (
	"math"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// cause is why a bucket's starts are later than its own rate allows.
type cause uint8

const (
	notLate     cause = iota
	byProcessor       // no other cause: the loop reached it too late
	byNoWorker        // this and the following are named as job.HeldBy…
	byWorkersBusy
	byTotalRate
	byLimit
	byConcurrency
	byPaused
	byCooling
	byBreaker
	byStorage
	causes
)

// causeNames are the causes' names in metrics and answers.
var causeNames = [causes]string{byProcessor: job.LateByProcessor, byNoWorker: job.HeldByNoWorker,
	byWorkersBusy: job.HeldByWorkersBusy, byTotalRate: job.HeldByTotalRate,
	byLimit:       job.LateByLimit,
	byConcurrency: job.HeldByConcurrency, byPaused: job.HeldByPaused,
	byCooling: job.HeldByCooling, byBreaker: job.HeldByBreaker, byStorage: job.HeldByStorage}

// lateness records a bucket's late starts, for information only.
type lateness struct {
	// how late starts are, ignoring variation within the tolerance, which is made up
	behind time.Duration
	hold   cause        // what keeps the bucket itself from starting …
	since  pace.Instant // … and since when its rate would allow a start
	// until when a start limit, or a missing checkpoint, holds the next job
	limited   pace.Instant
	limitedBy cause
	lost      *lost // nil: nothing
}

// lost is the recent lost time by cause: exponentially decaying sums.
type lost struct {
	last    pace.Instant
	seconds [causes]float32
}

// lostMemory is the time constant of the decay.
const lostMemory = time.Minute

func (l *lost) fade(now pace.Instant) {
	faded := float32(math.Exp(-now.Since(l.last).Seconds() / lostMemory.Seconds()))
	for c := range l.seconds {
		l.seconds[c] *= faded
	}
	l.last = now
}

// faded returns the decayed sum of a loss that lasted for d until now, at most lostMemory.
func faded(d time.Duration) float32 {
	return float32(-lostMemory.Seconds() * math.Expm1(-d.Seconds()/lostMemory.Seconds()))
}

// noteLost records time that a bucket has lost.
func (v *Valve) noteLost(b *bucket, by cause, d time.Duration, now pace.Instant) {
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
	v.lost[by] += d
}

// noteHold records what keeps the bucket itself from starting waiting jobs.
func (v *Valve) noteHold(b *bucket, now pace.Instant) {
	if b.pace == nil {
		return
	}
	by := b.holding(now)
	if by == b.late.hold {
		return
	}
	l := &b.own().late
	if l.hold != notLate {
		v.noteLost(b, l.hold, now.Since(l.since), now)
	}
	l.hold, l.since = by, max(now, b.pace.Next(&b.clock))
}

// holding returns what keeps the bucket itself from starting jobs now.
func (b *bucket) holding(now pace.Instant) cause {
	switch {
	case b.queued() == 0:
		return notLate
	case b.paused:
		return byPaused
	case b.noting > 0:
		return byStorage
	case b.blocked() || b.concurrency > 0 && b.Part.unseen > 0:
		return byConcurrency
	case b.cool > now:
		return byCooling
	case b.down() && b.target.due() > now:
		return byBreaker
	}
	return notLate
}

// missed records the time a bucket has lost because no bucket started a job since an instant
// (0: none ever did). Call it before the bucket's clock is held.
func (v *Valve) missed(b *bucket, by cause, since, now pace.Instant) {
	if b.pace != nil && since > 0 && b.late.hold == notLate && b.queued() > 0 {
		v.noteLost(b, by, now.Since(max(since, b.pace.Next(&b.clock))), now)
	}
}

// noteStart records how late a bucket's next start is by its rate, before the start takes its
// slot.
func (v *Valve) noteStart(b *bucket, now pace.Instant) {
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
			v.noteLost(b, l.limitedBy, limited, now)
			since = l.limited
		}
		v.noteLost(b, v.why(b, since), more, now)
	case more > 0:
		return
	}
	b.own().late.behind = behind
}

// noteLimited records until when start limits hold a bucket's next job, if beyond its rate. by
// names the limit, or is empty for a checkpoint.
func (b *bucket) noteLimited(until pace.Instant, by string, now pace.Instant) {
	if b.pace == nil || until <= max(now, b.pace.Next(&b.clock)) {
		return
	}
	l := &b.own().late
	if l.limited, l.limitedBy = until, byLimit; by == "" {
		l.limitedBy = byStorage
	}
}

// why returns why a due bucket fell behind since an instant: the last cause for which due
// buckets were left, or else the processor.
func (v *Valve) why(b *bucket, since pace.Instant) cause {
	if v.left.by != notLate && v.left.at >= max(since, b.nextAt) {
		return v.left.by
	}
	return byProcessor
}

// noteLeft records why due buckets are left waiting.
func (v *Valve) noteLeft(blocked bool, now pace.Instant) {
	switch {
	case len(v.due) == 0:
		return
	case blocked && v.breaker.open:
		v.left.by = byBreaker
	case blocked && v.spent():
		v.left.by = byStorage
	case blocked:
		v.left.by = byTotalRate
		if _, limit := v.nextTurn(now); limit != "" {
			v.left.by = byLimit
		}
	case !v.Local && v.claims.nobody:
		v.left.by = byNoWorker
	default:
		v.left.by = byWorkersBusy
	}
	v.left.at = now
}

// lateMS returns a bucket's losses of the last minute and its current loss, in ms by cause.
func (v *Valve) lateMS(b *bucket, now pace.Instant) (ms map[string]int64) {
	sum := v.late(b, now)
	for c := notLate + 1; c < causes; c++ {
		if lost := int64(sum.seconds[c] * 1000); lost > 0 {
			if ms == nil {
				ms = map[string]int64{}
			}
			ms[causeNames[c]] = lost
		}
	}
	return ms
}

// latest returns the ms that a bucket recently fell behind, without pauses by operators.
func (v *Valve) latest(b *bucket, now pace.Instant) (ms int64) {
	sum := v.late(b, now)
	for c := notLate + 1; c < causes; c++ {
		if c != byPaused {
			ms += int64(sum.seconds[c] * 1000)
		}
	}
	return ms
}

// late returns the bucket's recent lost time, including its current loss.
func (v *Valve) late(b *bucket, now pace.Instant) (sum lost) {
	if b.late.lost != nil {
		sum = *b.late.lost
		sum.fade(now)
	}
	by, since := b.late.hold, b.late.since
	if by == notLate && b.late.limited > now {
		by, since = b.late.limitedBy, b.pace.Next(&b.clock)
	}
	if by == notLate && b.spot == spotDue {
		by, since = v.why(b, b.nextAt), b.nextAt
		if !v.open {
			by = byStorage
		}
	}
	sum.seconds[by] += faded(max(0, now.Since(since)))
	return sum
}

// TakeHeld reports how long start limits have held buckets with waiting jobs since the last
// call, summed over buckets.
func (v *Valve) TakeHeld(now pace.Instant, tell func(limit string, held time.Duration)) {
	since := now.Since(v.heldTold)
	if v.heldTold == 0 {
		since = 0
	}
	v.heldTold = now
	for limit, buckets := range v.holding {
		tell(limit, time.Duration(buckets)*since)
	}
	if at, limit := v.nextTurn(now); limit != "" && at > now && len(v.due) > 0 {
		tell(limit, time.Duration(len(v.due))*since)
	}
}

// TakeLost reports the time its buckets have lost since the last call.
func (v *Valve) TakeLost(tell func(cause string, lost time.Duration)) {
	for by, lost := range v.lost {
		if lost > 0 {
			tell(causeNames[by], lost)
			v.lost[by] = 0
		}
	}
}
