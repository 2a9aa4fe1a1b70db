package inheritance

import (
	"math"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// crash bounds former owners' unrecorded starts between two instants.
type crash struct {
	from, to       pace.Instant
	listed, others quota.Units      // since the record, of the buckets in it, and of others
	open           bool             // others may have open units
	sizes          map[string]int64 // of the owners' limits
}

// newCrash returns the starts under limits of a bucket that may be in no record, which end at an
// instant; nil: there were none.
func newCrash(s State, l *quota.Limits, to, now pace.Instant) *crash {
	if l == nil {
		return nil
	}
	c := &crash{from: s.since(now), to: to, others: quota.Units{}, sizes: s.Handover.Sizes,
		open: s.Handover.Open || s.othersRun()}
	since := s.Since(l, false)
	if s.Crashed {
		c.listed = since
	} else {
		c.from = c.to.Add(-l.Longest())
	}
	some := false
	for cost := range since {
		told, known := s.Handover.ByCost[cost]
		most := max(told.Slots, told.Unlisted) + c.listed[cost]
		if most < 0 || !known && s.Handover.ByCost[""].Slots > 0 ||
			s.Handover.Partial && told.Unlisted == 0 {
			most = math.MaxInt64
		}
		c.others[cost], some = most, some || most > 0
	}
	if !some {
		return nil
	}
	return c
}

// Listed returns the most units that a bucket in the record can have started since it; nil: none.
func (l *Legacy) Listed() quota.Units {
	if l.crash == nil {
		return nil
	}
	return l.crash.listed
}

// Unlisted returns the usage of a bucket that is in no record; nil: none.
func (l *Legacy) Unlisted(limits *quota.Limits, clock Clock, now pace.Instant) *quota.Set {
	c := l.counting(limits, now)
	if c == nil {
		return nil
	}
	used := limits.Crashed(nil,
		quota.Crash{From: clock(c.from), To: clock(c.to), Sizes: c.sizes}, c.others)
	if c.open {
		limits.Await(used, clock(c.to))
	}
	return used
}

// counting returns the crash while its starts count; nil: none do.
func (l *Legacy) counting(limits *quota.Limits, now pace.Instant) *crash {
	if limits == nil || l.crash == nil || now.Since(l.crash.to) >= limits.Longest() {
		return nil
	}
	return l.crash
}

// Slots returns the most units by cost that an unlisted bucket can have started, whether it may
// have open ones, and for how many µs the crash is over.
func (l *Legacy) Slots(limits *quota.Limits, now pace.Instant) (most quota.Units, open bool,
	ago int64) {
	c := l.counting(limits, now)
	if c == nil {
		return nil, false, 0
	}
	return c.others, c.open, max(1, record.Micros(now.Since(c.to)))
}

// Holds returns until when a bucket of an interval that is in no record may start no job, as if one
// had started at the last moment; 0: it may.
func (l *Legacy) Holds(interval time.Duration) (until pace.Instant) {
	if l.crashedAt != 0 {
		until = l.crashedAt.Add(interval)
	}
	return max(until, l.restsUntil)
}

// Tell returns for how long a crash is over, while it may affect buckets of an interval, and how
// much longer those in no record rest; in µs, 0: not at all.
func (l *Legacy) Tell(slowest time.Duration, now pace.Instant) (crashed, rest int64) {
	if l.crashedAt != 0 && now.Since(l.crashedAt) < slowest+time.Second {
		crashed = max(1, record.Micros(now.Since(l.crashedAt)))
	}
	return crashed, max(0, record.Micros(l.restsUntil.Since(now)))
}
