package valve

import (
	"math"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/adapt"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

const (
	// leastChange is by which part a rate has changed when the clock is fitted to it.
	leastChange = 0.005
	// tuneEvery is how often a bucket that waits for longer looks at how far its rate has risen.
	tuneEvery = 5 * time.Second
)

// bounds are the rates between which a bucket learns.
func (v *Valve) bounds(p *pace.Pace) (least, most float64) {
	most = p.Rate.PerSecond()
	if min := v.Policy.Adapt.Min; !min.IsZero() {
		return min.PerSecond(), most
	}
	return most * policy.DefaultAdaptMin, most
}

// learn takes that a target has throttled a run of this valve that began at an instant, 0 for one
// that another valve decided.
func (v *Valve) learn(b *bucket, j *heldJob, began, now pace.Instant) {
	if v.Policy.Adapt == nil || b.pace == nil {
		return
	}
	l := b.learnt
	if l == nil {
		l = &learnt{under: b.limits}
	}
	least, most := v.bounds(l.under.pace)
	state, lowered := l.Throttled(time.Duration(began), time.Duration(b.cool), least, most)
	l.State = state
	v.remember(b, l)
	v.tune(b, now)
	b.Part.Changed = true
	if lowered {
		v.out.Adapted = append(v.out.Adapted, Adapted{j.ref(), b.pace.Rate.PerSecond()})
	}
}

// remember gives a bucket what it has learnt, or takes it away: nil.
func (v *Valve) remember(b *bucket, l *learnt) {
	switch {
	case l == b.learnt:
		return
	case b.learnt == nil:
		v.lowered++
	case l == nil:
		v.lowered--
	}
	b.own().learnt = l
}

// tune fits a bucket to how far its rate has risen.
//
// The clock keeps the slots that it waits for, whether they become longer or shorter: not even many
// changes let a bucket start more than its outflow does.
func (v *Valve) tune(b *bucket, now pace.Instant) {
	l := b.learnt
	if l == nil {
		return
	}
	before := b.limits
	least, most := v.bounds(l.under.pace)
	switch rate := l.Rate(time.Duration(now), least, most); {
	case rate >= most:
		b.limits = l.under
		v.remember(b, nil)
	case math.Abs(rate/b.pace.Rate.PerSecond()-1) < leastChange:
		return
	default:
		slower := *l.under
		slower.pace = l.under.pace.At(rate)
		b.limits = &slower
	}
	b.pace.Refit(&b.clock, before.pace, now)
}

// relearn keeps what a bucket has learnt when its limits were replaced, if that is still true.
func (v *Valve) relearn(b *bucket, anew bool, before *pace.Pace) {
	l := b.learnt
	if l == nil {
		return
	}
	if anew || b.pace == nil || *b.pace != *l.under.pace {
		v.remember(b, nil)
		return
	}
	slower := *b.limits
	slower.pace = before
	l.under, b.limits = b.limits, &slower
}

// tunedAt is when a bucket that waits until an instant is to be looked at.
func (b *bucket) tunedAt(at, now pace.Instant) pace.Instant {
	if b.learnt == nil {
		return at
	}
	return min(at, now.Add(tuneEvery))
}

// Lowered is how many buckets are slower than their outflow because of what they have learnt.
func (v *Valve) Lowered() int { return v.lowered }

// inheritLearnt takes what a predecessor told at an instant of what a bucket has learnt.
func (v *Valve) inheritLearnt(b *bucket, text string, told, now pace.Instant) {
	if text == "" || v.Policy.Adapt == nil || b.pace == nil {
		return
	}
	l := &learnt{under: v.limitsOf(b.key)}
	if l.State = adapt.Parse(text, time.Duration(told), l.under.pace.Rate.PerSecond()); l.Known() {
		v.remember(b, l)
		v.tune(b, now)
	}
}
