package valve

import (
	"time"

	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// changed takes a bucket out of the schedule until placeChanged. Whatever changes a bucket calls
// it; whatever reads the schedule calls placeChanged first.
func (b *bucket) changed() {
	if b.Part.state == partitionLive && b.spot < spotChanged {
		b.Part.agenda.mark(b)
	}
}

// placeChanged schedules the next event of each changed bucket.
func (v *Valve) placeChanged(now pace.Instant) {
	if len(v.agenda.marked) > 0 {
		v.agenda.place(func(b *bucket) { v.plan(b, now) })
	}
}

// plan schedules a bucket's next event: a start, the reading of a body, or its removal.
func (v *Valve) plan(b *bucket, now pace.Instant) {
	if b.callers != noCallers {
		b.choose(v.Crew.Free() > 0 || !v.Crew.Declined, v.wall.at(now).UnixNano())
	}
	for _, t := range v.common {
		if t.first == b {
			t.first = nil
		}
	}
	v.learning.tune(b, now)
	b.cooled(now)
	if b.queue.Len() == 0 {
		b.note(gates.Hold{}, now)
		b.awake = false
		if int(b.held)+b.Running == 0 { // runs of a recreated stream count until they end
			v.forget(b, now)
		}
		return
	}
	if h := gates.Shut.Next(v.see(b, now)); h.Shut() {
		b.note(h, now)
		if b.blocked() {
			b.awake = false
			v.texts.unload(b)
		}
		return
	}
	if b.stalled {
		if b.undecided.any() {
			v.agenda.schedule(b, now.Add(time.Millisecond))
			return
		}
		b.stalled, b.last = false, nil
	}
	if !b.awake {
		b.wake(v.turns.Now, now)
	}
	if b.queue.Near() > 0 {
		v.stock.surface(b, now)
	}
	h := v.gates.Next(v.see(b, now))
	b.note(h, now)
	b.awake = h.By != gates.ByQuiet // which earns no credit
	if b.callNext() {
		v.planCall(b, h.Until, now)
	} else {
		v.stock.planJob(b, h.Until, now)
	}
}

// wake makes a bucket active. Turns are not earned while idle.
func (b *bucket) wake(turns float64, now pace.Instant) {
	b.awake, b.since = true, now
	b.turns = max(b.turns, turns)
	if b.pace != nil {
		b.pace.Wake(&b.clock, now)
		if behind := max(0, now.Since(b.clock.Due)); behind != b.Late.Behind {
			b.own().Late.Behind = behind
		}
	}
}

// planJob schedules a start that is allowed at an instant, or before it the reading of texts.
func (s *stock) planJob(b *bucket, at, now pace.Instant) {
	read := readAt(at)
	if read > now {
		s.texts.unload(b)
	}
	head := b.queue.Head()
	switch {
	case head != nil && head.fetching && head.counted:
		return
	case (head == nil || head.Lean) && read > now:
		s.agenda.schedule(b, b.tunedAt(read, now))
	case head == nil || head.Lean:
		s.agenda.compete(b, at, spotUnread)
	default:
		if read <= now {
			s.readOn(b)
		}
		if at > now {
			s.agenda.schedule(b, b.tunedAt(at, now))
			return
		}
		s.agenda.compete(b, at, spotDue)
	}
}

// cooled ends a cool-down, without a burst.
func (b *bucket) cooled(now pace.Instant) {
	if b.Cool > now || b.Cool == 0 {
		return
	}
	b.pace.Hold(&b.clock, b.Cool)
	b.Cool = 0
}

// freshAt returns when to check whether usage of limits still counts. Checks are spread, because
// clock windows end for all buckets at once.
func (l *startLimits) freshAt(b *bucket, now pace.Instant) pace.Instant {
	if b.Used != nil && b.fresh <= now {
		in := l.quota.FreshIn(b.Used, l.wall.reading(now))
		b.fresh = now.Add(in + spread(b.queue.Key, min(in/64, time.Second)))
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
	at := max(b.Cool, b.pace.FreshAt(&b.clock))
	if b.learnt != nil {
		at = max(at, pace.Instant(b.learnt.Until(b.learnt.under.pace.Rate.PerSecond())))
	}
	at = max(at, v.freshAt(b, now))
	if v.candidates != nil {
		at = max(at, now.Add(v.candidates.FreshIn(b.trial, v.wall.reading(now))))
	}
	if b.Target.Down() {
		at = max(at, b.Target.At)
	}
	if len(b.Part.buckets) < mostRates {
		at = max(at, b.rate.Told(b.pace))
	}
	if ahead := b.turns - v.turns.Now; v.takesTurns() && ahead > 0 {
		// Waiting buckets catch up with its turns in about as many starts.
		wait := max(1, ahead*float64(len(v.agenda.due))) * float64(v.turnEvery())
		at = max(at, now.Add(time.Duration(min(wait, float64(pace.Forever)))))
	}
	if at > now {
		v.agenda.schedule(b, at)
		return
	}
	v.health.Forget(b.Target)
	v.learning.remember(b, nil)
	b.queue.Close()
	v.texts.memory.near -= bucketBytes
	delete(b.Part.buckets, b.queue.Key)
	b.Part.list.Remove(b)
}
