package valve

import (
	"math"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/adapt"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

const (
	// leastChange is the least relative change that adjusts a clock.
	leastChange = 0.005
	// tuneEvery is the interval between rises of a waiting bucket's rate.
	tuneEvery = 5 * time.Second
)

// learning finds the limits of targets that are below the configured rates.
type learning struct {
	rule    *policy.AdaptiveRate // nil: nothing is learnt
	lowered int                  // buckets with a learnt rate
}

func (n *learning) bounds(p *pace.Pace) (least, most float64) {
	most = p.Rate.PerSecond()
	if min := n.rule.Min; !min.IsZero() {
		return min.PerSecond(), most
	}
	return most * policy.DefaultAdaptiveMin, most
}

// learn records a throttle of a run that began at an instant; 0: unknown.
func (n *learning) learn(b *bucket, began, now pace.Instant) (lowered bool) {
	if n.rule == nil || b.pace == nil {
		return false
	}
	l := b.learnt
	if l == nil {
		l = &learnt{under: b.limits}
	}
	least, most := n.bounds(l.under.pace)
	state, lowered := l.Throttled(time.Duration(began), time.Duration(b.Cool), least, most)
	l.State = state
	n.remember(b, l)
	n.tune(b, now)
	b.Part.Checkpoints.Changed = true
	return lowered
}

func (n *learning) remember(b *bucket, l *learnt) {
	switch {
	case l == b.learnt:
		return
	case b.learnt == nil:
		n.lowered++
	case l == nil:
		n.lowered--
	}
	b.own().learnt = l
}

// tune sets a bucket's current rate. The clock keeps its slots: see [pace.Pace.Refit].
func (n *learning) tune(b *bucket, now pace.Instant) {
	l := b.learnt
	if l == nil {
		return
	}
	before := b.limits
	least, most := n.bounds(l.under.pace)
	switch rate := l.Rate(time.Duration(now), least, most); {
	case rate >= most:
		b.limits = l.under
		n.remember(b, nil)
	case math.Abs(rate/b.pace.Rate.PerSecond()-1) < leastChange:
		return
	default:
		slower := *l.under
		slower.pace = l.under.pace.At(rate)
		b.limits = &slower
	}
	b.pace.Refit(&b.clock, before.pace, now)
}

func (n *learning) relearn(b *bucket, anew bool, before *pace.Pace) {
	l := b.learnt
	if l == nil {
		return
	}
	if anew || b.pace == nil || *b.pace != *l.under.pace {
		n.remember(b, nil)
		return
	}
	slower := *b.limits
	slower.pace = before
	l.under, b.limits = b.limits, &slower
}

func (b *bucket) tunedAt(at, now pace.Instant) pace.Instant {
	if b.learnt == nil {
		return at
	}
	return min(at, now.Add(tuneEvery))
}

// inherit continues what a former owner had learnt.
func (n *learning) inherit(b *bucket, under *limits, text string, told, now pace.Instant) {
	if text == "" || n.rule == nil || b.pace == nil {
		return
	}
	l := &learnt{under: under}
	if l.State = adapt.Parse(text, time.Duration(told), l.under.pace.Rate.PerSecond()); l.Known() {
		n.remember(b, l)
		n.tune(b, now)
	}
}
