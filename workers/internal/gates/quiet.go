package gates

import (
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Quiet is the gate of the spans of local time in which a policy starts nothing. It remembers the
// next stretch of them, because to read a zone's clock takes longer than all other gates.
type Quiet struct {
	spans        []span
	wall         func(pace.Instant) time.Time
	begins, ends pace.Instant
	known        pace.Instant // until when they are
}

// NewQuiet returns a gate that reads a clock, whose time may be set.
func NewQuiet(wall func(pace.Instant) time.Time) *Quiet { return &Quiet{wall: wall} }

// Set replaces the spans, which are valid.
func (q *Quiet) Set(all []policy.Quiet) {
	q.spans = nil
	for _, one := range all {
		if from, to, zone, err := one.Clocks(); err == nil {
			q.spans = append(q.spans, span{from, to, zone})
		}
	}
	q.Forget()
}

// Forget has the clock read again, after it was set.
func (q *Quiet) Forget() { q.known = 0 }

// knownFor bounds by how much clocks drift apart, to milliseconds.
const knownFor = time.Minute

// Begins returns when the next stretch begins, or the present one has; Never without spans.
func (q *Quiet) Begins(now pace.Instant) pace.Instant {
	if len(q.spans) == 0 {
		return pace.Never
	}
	if now >= q.known {
		at := q.wall(now)
		begins, ends := q.stretch(at)
		q.begins, q.ends = now.Add(begins.Sub(at)), now.Add(ends.Sub(at))
		q.known = min(q.ends, now.Add(knownFor))
	}
	return q.begins
}

// Hold holds all buckets within a stretch.
func (q *Quiet) Hold(now pace.Instant) Hold {
	if q.Begins(now) > now {
		return Hold{}
	}
	return Hold{By: ByQuiet, Until: q.ends}
}

// Next implements [Gate].
func (q *Quiet) Next(b *Bucket) Hold { return q.Hold(b.Now) }

// mostStretches bounds a forecast, by more than a year of one span a day.
const mostStretches = 400

// After implements [Later]: slots that would be taken within stretches are taken after them.
func (q *Quiet) After(b *Bucket, a *Ahead, at pace.Instant) pace.Instant {
	if len(q.spans) == 0 {
		return at
	}
	seen, start := q.wall(b.Now), b.Now
	if h := q.Hold(b.Now); h.Until > b.Now {
		start = h.Until
	}
	if a.Slots == 0 {
		start = at
	}
	for range mostStretches {
		begins, ends := q.stretch(seen.Add(start.Since(b.Now)))
		from, until := b.Now.Add(begins.Sub(seen)), b.Now.Add(ends.Sub(seen))
		if from > at {
			return at
		}
		at, start = at.Add(until.Since(max(from, start))), until
	}
	return pace.Never
}

// stretch returns the spans that follow each other without a gap, of which the first covers an
// instant, or is the first after it.
func (q *Quiet) stretch(at time.Time) (begins, ends time.Time) {
	for i, s := range q.spans {
		if from := s.after(at, s.from, false); i == 0 || from.Before(begins) {
			begins = from
		}
	}
	ends = begins
	for again := true; again; {
		again = false
		for _, s := range q.spans {
			if to := s.after(ends, s.to, true); to.After(ends) {
				ends, again = to, true
			}
		}
	}
	return begins, ends
}

// span is from one time of day to another, since midnight, by the clocks of a zone.
type span struct {
	from, to time.Duration
	zone     *time.Location
}

const day = 24 * time.Hour

// after returns the first instant, from one on, at which the span covers it, or no longer does.
func (s span) after(at time.Time, clock time.Duration, covered bool) time.Time {
	for {
		at = at.In(s.zone)
		hour, minute, second := at.Clock()
		shown := time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute +
			time.Duration(second)*time.Second + time.Duration(at.Nanosecond())
		if covers := (shown-s.from+day)%day < (s.to-s.from+day)%day; covers != covered {
			return at
		}
		next := at.Add((clock - shown + day) % day)
		// what clocks show is steady until they are set
		if _, set := at.ZoneBounds(); set.After(at) && set.Before(next) {
			next = set
		}
		at = next
	}
}
