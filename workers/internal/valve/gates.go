package valve

import (
	"time"

	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// see returns what gates see of a bucket. It is valid until the next one.
func (l *startLimits) see(b *bucket, now pace.Instant) *gates.Bucket {
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
	if h := gates.Shut.Next(l.see(b, now)); h.Shut() {
		return h
	}
	return l.gates.Next(&l.gates.Seen)
}

// holdOfAll is for all buckets.
func (l *startLimits) holdOfAll(target *gates.Health, now pace.Instant) (h gates.Hold) {
	h = l.gates.Quiet.Hold(now).Or(target.Hold()).Or(l.nextTurn(now))
	if h.Until <= now && l.spent() {
		h = gates.Hold{By: gates.ByStorage, Until: now.Add(askAgain)}
	}
	return h
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
