package valve

import (
	"math"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// cause is what made starts late that their bucket's own rate allowed.
type cause uint8

const (
	notLate     cause = iota
	byProcessor       // nothing else: the loop came to it too late
	byNoWorker        // and the others as job.HeldBy… has them
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

// causeNames are what people and metrics call them.
var causeNames = [causes]string{byProcessor: job.LateByProcessor, byNoWorker: job.HeldByNoWorker,
	byWorkersBusy: job.HeldByWorkersBusy, byTotalRate: job.HeldByTotalRate,
	byLimit:       job.LateByLimit,
	byConcurrency: job.HeldByConcurrency, byPaused: job.HeldByPaused,
	byCooling: job.HeldByCooling, byBreaker: job.HeldByBreaker, byStorage: job.HeldByStorage}

// lateness is what a bucket knows of its late starts. Nothing of it decides anything.
type lateness struct {
	// how late starts are, but for what comes and goes within the tolerance, which costs nothing
	behind time.Duration
	hold   cause        // what keeps this bucket, and not the valve, from starting …
	since  pace.Instant // … while the rate allows it
	// until when a limit on starts holds the next job, or the want of a checkpoint that it needs
	limited   pace.Instant
	limitedBy cause
	lost      *lost // nil: nothing
}

// lost is the time that was lost lately, by cause: sums with exponentially falling weights.
type lost struct {
	last    pace.Instant
	seconds [causes]float32
}

// lostMemory is what lately means.
const lostMemory = time.Minute

func (l *lost) fade(now pace.Instant) {
	faded := float32(math.Exp(-now.Since(l.last).Seconds() / lostMemory.Seconds()))
	for c := range l.seconds {
		l.seconds[c] *= faded
	}
	l.last = now
}

// faded is a loss that has lasted for d until now, with the weights of a sum that fades: at most
// lostMemory, however long it lasted.
func faded(d time.Duration) float32 {
	return float32(-lostMemory.Seconds() * math.Expm1(-d.Seconds()/lostMemory.Seconds()))
}

// noteLost notes that a bucket has lost time.
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

// noteHold notes what keeps the bucket itself from starting jobs that wait.
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

// holding is what that is now.
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

// missed notes what a bucket has lost because none started any job since an instant, 0 when none
// ever did, before its clock is held.
func (v *Valve) missed(b *bucket, by cause, since, now pace.Instant) {
	if b.pace != nil && since > 0 && b.late.hold == notLate && b.queued() > 0 {
		v.noteLost(b, by, now.Since(max(since, b.pace.Next(&b.clock))), now)
	}
}

// noteStart notes how late a bucket's next start is by the schedule of its rate, before it takes
// its slot there.
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

// noteLimited notes until when limits on starts hold a bucket's next job, if longer than its rate;
// by is which of them, empty for a checkpoint.
func (b *bucket) noteLimited(until pace.Instant, by string, now pace.Instant) {
	if b.pace == nil || until <= max(now, b.pace.Next(&b.clock)) {
		return
	}
	l := &b.own().late
	if l.limited, l.limitedBy = until, byLimit; by == "" {
		l.limitedBy = byStorage
	}
}

// why is the cause of what made a bucket that is due later since an instant: the last one for which
// buckets were left that were due, or else the processor.
func (v *Valve) why(b *bucket, since pace.Instant) cause {
	if v.left.by != notLate && v.left.at >= max(since, b.nextAt) {
		return v.left.by
	}
	return byProcessor
}

// noteLeft notes why buckets are left that are due.
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

// lateMS is what is told of a bucket's losses: those of the last minute, and what it loses now.
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

// latest is how many ms a bucket became late lately, but for an operator's pause.
func (v *Valve) latest(b *bucket, now pace.Instant) (ms int64) {
	sum := v.late(b, now)
	for c := notLate + 1; c < causes; c++ {
		if c != byPaused {
			ms += int64(sum.seconds[c] * 1000)
		}
	}
	return ms
}

// late is the time that a bucket has lost lately, with what it loses now.
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

// TakeHeld hands out for how long limits on starts have held buckets with jobs that wait, since it
// was called last: of several buckets the times of all.
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

// TakeLost hands out what its buckets have lost since it was called last.
func (v *Valve) TakeLost(tell func(cause string, lost time.Duration)) {
	for by, lost := range v.lost {
		if lost > 0 {
			tell(causeNames[by], lost)
			v.lost[by] = 0
		}
	}
}
