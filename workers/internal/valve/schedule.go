package valve

import (
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// place schedules a bucket's next event: a start, the reading of a body, or its removal. Call it
// after any change of state.
func (v *Valve) place(b *bucket, now pace.Instant) {
	if b.Part.state != partitionLive {
		return
	}
	v.unplace(b)
	v.choose(b, now)
	for _, t := range v.common {
		if t.first == b {
			t.first = nil
		}
	}
	v.tune(b, now)
	b.cooled(now)
	if b.queued() == 0 {
		v.note(b, hold{}, now)
		b.awake = false
		if b.held+b.running == 0 { // runs of a recreated stream count until they end
			v.forget(b, now)
		}
		return
	}
	if h := b.shut(); h.until > now {
		v.note(b, h, now)
		if b.blocked() {
			b.awake = false
			v.unload(b)
		}
		return
	}
	if b.stalled {
		if b.undecided.any() {
			v.schedule(b, now.Add(time.Millisecond))
			return
		}
		b.stalled, b.last = false, nil
	}
	if !b.awake {
		b.awake, b.since = true, now
		b.turns = max(b.turns, v.turns) // turns are not earned while idle
		if b.pace != nil {
			b.pace.Wake(&b.clock, now)
			if behind := max(0, now.Since(b.clock.Due)); behind != b.late.behind {
				b.own().late.behind = behind
			}
		}
	}
	if len(b.ready) > 0 {
		v.surface(b, now)
	}
	h := v.holdOf(b, now)
	v.note(b, h, now)
	if b.callNext() {
		v.placeCall(b, h.until, now)
		return
	}
	at, read := h.until, readAt(h.until)
	if read > now {
		v.unload(b)
	}
	near := len(b.ready) > 0
	switch {
	case near && b.ready[0].fetching && b.ready[0].counted:
		return
	case (!near || b.ready[0].Lean) && read > now:
		v.schedule(b, b.tunedAt(read, now))
	case !near || b.ready[0].Lean:
		b.nextAt, b.spot = max(at, b.since), spotUnread
		v.unread.Push(dueBucket{b})
	default:
		if read <= now {
			v.readOn(b)
		}
		if at > now {
			v.schedule(b, b.tunedAt(at, now))
			return
		}
		b.nextAt, b.spot = max(at, b.since), spotDue
		v.due.Push(dueBucket{b})
	}
}

// cooled ends a cool-down, without a burst.
func (b *bucket) cooled(now pace.Instant) {
	if b.cool > now || b.cool == 0 {
		return
	}
	b.pace.Hold(&b.clock, b.cool)
	b.cool = 0
}

func (v *Valve) schedule(b *bucket, at pace.Instant) {
	b.nextAt, b.spot = at, spotSched
	v.sched.Push(scheduledBucket{b, at})
}

func (v *Valve) unplace(b *bucket) {
	switch b.spot {
	case spotSched:
		v.sched.Remove(int(b.index))
	case spotDue:
		v.due.Remove(int(b.index))
	case spotUnread:
		v.unread.Remove(int(b.index))
	case spotCaller:
		v.callers.Remove(int(b.index))
	}
	b.spot = spotNone
}

// freshAt returns when to check whether usage of limits still counts. Checks are spread, because
// clock windows end for all buckets at once.
func (v *Valve) freshAt(b *bucket, now pace.Instant) pace.Instant {
	if b.used != nil && b.fresh <= now {
		in := v.quota.FreshIn(b.used, v.instant(now))
		b.fresh = now.Add(in + spread(b.key, min(in/64, time.Second)))
	}
	return b.fresh
}

// mostRates bounds the buckets whose rates are kept while idle.
const mostRates = 10_000

// forget removes an empty bucket once it equals a new one, because its next job must obey its
// clock, cool-down, breaker and turns.
func (v *Valve) forget(b *bucket, now pace.Instant) {
	if b.inList < 0 {
		return
	}
	at := max(b.cool, b.pace.FreshAt(&b.clock))
	if b.learnt != nil {
		at = max(at, pace.Instant(b.learnt.Until(b.learnt.under.pace.Rate.PerSecond())))
	}
	at = max(at, v.freshAt(b, now))
	if v.candidates != nil {
		at = max(at, now.Add(v.candidates.FreshIn(b.trial, v.instant(now))))
	}
	if b.down() {
		at = max(at, b.target.at)
	}
	if len(b.Part.buckets) < mostRates {
		at = max(at, b.rate.Told(b.pace))
	}
	if ahead := b.turns - v.turns; v.takesTurns() && ahead > 0 {
		// Waiting buckets catch up with its turns in about as many starts.
		wait := max(1, ahead*float64(len(v.due))) * float64(v.turnEvery())
		at = max(at, now.Add(time.Duration(min(wait, float64(pace.Forever)))))
	}
	if at > now {
		v.schedule(b, at)
		return
	}
	if b.down() {
		v.broken--
	}
	v.remember(b, nil)
	b.unline()
	v.memory.near -= bucketBytes
	delete(b.Part.buckets, b.key)
	b.Part.list.Remove(b)
}
