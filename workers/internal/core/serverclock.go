package core

import (
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// serverClock bounds by how much JetStream's clock, which stamps jobs, is ahead of instants, in ns:
// between a renewal's sending and the sight of its stamp.
type serverClock struct {
	least, most int64
	known       bool
	at          pace.Instant
	vague       int
	since       pace.Instant // last jump: renewals sent before are ignored
	// reading at instant 0 of the last conversion of dates
	dated time.Time
}

const (
	// datesOff is the change of JetStream's clock that requires converting all dates again.
	datesOff = 100 * time.Millisecond
	// mostVague consecutive slow renewals make slowness acceptable.
	mostVague = 3
	// clockDrift bounds the relative rate of two quartz clocks: 100 ppm each, seven times the PHI
	// of NTP (RFC 5905).
	clockDrift = 200e-6
)

// jumped handles a change of this process's clock by an unknown time.
func (s *serverClock) jumped(now pace.Instant) { s.known, s.since = false, now }

// see handles the time of storage of a renewal. All bounds are intersected; a contradiction means
// another leader's clock, or a clock that was set. If new bounds are too wide, the clock is not
// known, and another renewal is to be sent at once.
func (s *serverClock) see(sent pace.Instant, stored time.Time, now pace.Instant) (vague bool) {
	if stored.IsZero() || sent < s.since {
		return false
	}
	least, most := stored.UnixNano()-int64(now), stored.UnixNano()-int64(sent)
	drift := drifted(now.Since(s.at))
	s.least, s.most, s.at = s.least-drift, s.most+drift, now
	if s.known && most >= s.least && least <= s.most {
		s.least, s.most = max(s.least, least), min(s.most, most)
		return false
	}
	if s.vague++; most-least > 2*int64(datesOff) && s.vague < mostVague {
		s.jumped(now)
		return true
	}
	s.least, s.most, s.known, s.vague = least, most, true, 0
	return false
}

// redated reports whether all dates must be converted again.
func (s *serverClock) redated() bool {
	off := s.wall(0).Sub(s.dated)
	if s.known && off.Abs() >= datesOff {
		s.dated = s.wall(0)
		return true
	}
	return false
}

func (s *serverClock) wall(now pace.Instant) time.Time {
	return time.Unix(0, s.least+(s.most-s.least)/2+int64(now)).UTC()
}

// read returns its time, and its largest error.
func (s *serverClock) read(now pace.Instant) (at time.Time, off time.Duration) {
	return s.wall(now), time.Duration((s.most-s.least)/2 + drifted(now.Since(s.at)))
}

func drifted(within time.Duration) int64 { return int64(float64(within.Abs()) * clockDrift) }

// elapsed returns the least and most time since a record's state was stored, or if at is set,
// built. Stamps may come from two leaders, or from a clock that was set in between. Waits use the
// least of any clock: this process's own if it saw the record live, otherwise also the estimate of
// JetStream's clock, and this machine's wall clock. Checks for possible starts use the most.
func (s *serverClock) elapsed(found Opened, stored time.Time, at int64, seen,
	now pace.Instant) (least, most time.Duration) {
	if stored.IsZero() || found.Taken.IsZero() {
		return 0, pace.Forever
	}
	least = found.Taken.Sub(stored)
	most = least
	told := time.UnixMicro(at)
	if at != 0 {
		most = max(most, found.Taken.Sub(told), s.wall(now).Sub(told))
	}
	if seen > 0 {
		least = min(least, now.Since(seen))
	} else {
		if at != 0 {
			least = min(least, s.wall(now).Sub(told))
		}
		if !found.Read.IsZero() {
			least = min(least, found.Read.Sub(stored))
		}
	}
	return max(0, least), max(0, min(most, pace.Forever))
}
