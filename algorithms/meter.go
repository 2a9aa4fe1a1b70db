package algorithms

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// maxDrain bounds the time for a full meter to empty; every wait is then an exact time.Duration.
const maxDrain = 100 * 366 * day

// meter is the arithmetic shared by token bucket and leaking bucket: a debt of up to most units is
// paid off at a constant rate. It is the generic cell rate algorithm of ITU-T I.371: the only state
// is when the debt is paid off.
//
//	passes ⇔ max(paidAt, now) + n/rate ≤ now + most/rate
type meter struct {
	most int64
	rate Rate
}

// exact is an instant or a span of us + frac/Count microseconds, 0 ≤ frac < Count. Per is in whole
// microseconds, so a unit takes Per/Count of them and sums of units are exact.
type exact struct{ us, frac int64 }

func (a exact) after(b exact) bool { return a.us > b.us || a.us == b.us && a.frac > b.frac }

func (a exact) ceil() int64 {
	if a.frac > 0 {
		return a.us + 1
	}
	return a.us
}

func (m meter) add(a, b exact) exact {
	s := exact{a.us + b.us, a.frac + b.frac}
	if s.frac >= m.rate.Count {
		s.us, s.frac = s.us+1, s.frac-m.rate.Count
	}
	return s
}

func (m meter) sub(a, b exact) exact {
	d := exact{a.us - b.us, a.frac - b.frac}
	if d.frac < 0 {
		d.us, d.frac = d.us-1, d.frac+m.rate.Count
	}
	return d
}

func (m meter) span(n int64) exact {
	us, frac := mulDiv(n, m.rate.Per.Microseconds(), m.rate.Count)
	return exact{us, frac}
}

// units returns the number of whole units that a non-negative span pays off.
func (m meter) units(d exact) int64 {
	hi, lo := bits.Mul64(uint64(d.us), uint64(m.rate.Count))
	lo, carry := bits.Add64(lo, uint64(d.frac), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(m.rate.Per.Microseconds()))
	return int64(q)
}

// sound rounds an instant of another rate up.
func (m meter) sound(at exact) exact {
	if at.frac < 0 || at.frac >= m.rate.Count {
		return exact{min(at.us, math.MaxInt64-1) + 1, 0}
	}
	return at
}

// load clamps a state to the range possible at t, and returns it with the end of that range.
func (m meter) load(paidAt exact, t int64) (at, latest exact) {
	paidAt = m.sound(paidAt)
	latest = m.add(exact{t, 0}, m.span(m.most))
	switch {
	case paidAt.us < t:
		return exact{t, 0}, latest
	case paidAt.after(latest):
		return latest, latest
	}
	return paidAt, latest
}

// The following methods write decisions in place: returning one from call to call takes longer than
// the arithmetic.

func (m meter) describe(d *Decision, at, latest exact, t int64) {
	d.Limit = m.most
	d.Remaining = m.units(m.sub(latest, at))
	d.ResetAfter = micros(at.ceil() - t)
}

// ask decides whether n units pass, and returns when the debt would then be paid off.
func (m meter) ask(d *Decision, at, latest exact, n int64) exact {
	next := m.add(at, m.span(n))
	if next.after(latest) {
		d.RetryAfter = micros(m.sub(next, latest).ceil())
	} else {
		d.Allowed = true
	}
	return next
}

func (m meter) takeLoaded(d *Decision, at, latest exact, t, n int64) exact {
	if next := m.ask(d, at, latest, n); d.Allowed {
		at, d.Granted = next, n
	}
	m.describe(d, at, latest, t)
	return at
}

func (m meter) take(d *Decision, paidAt exact, t, n int64) exact {
	mustPass(n, m.most)
	at, latest := m.load(paidAt, t)
	return m.takeLoaded(d, at, latest, t, n)
}

func (m meter) takeUpTo(d *Decision, paidAt exact, t, n int64) exact {
	mustBePositive(n, m.most)
	at, latest := m.load(paidAt, t)
	return m.takeLoaded(d, at, latest, t, max(1, min(n, m.units(m.sub(latest, at)))))
}

// peek also returns when the debt would be paid off if the request passed.
func (m meter) peek(d *Decision, paidAt exact, t, n int64) exact {
	mustPass(n, m.most)
	at, latest := m.load(paidAt, t)
	m.describe(d, at, latest, t)
	return m.ask(d, at, latest, n)
}

func (m meter) refund(paidAt exact, t, n int64) exact {
	mustBePositive(n, m.most)
	at, _ := m.load(paidAt, t)
	at = m.sub(at, m.span(min(n, m.most)))
	if at.us < t {
		return exact{}
	}
	return at
}

// charge counts n units as of an instant. The debt after it is no less than if the units had been
// taken at their instant, since later ones are taken for earlier:
//
//	max(max(paidAt, at) + n/rate, then) + m/rate  ≤  max(max(paidAt, then) + m/rate, at) + n/rate
//
// It is not cut at a full meter: the present may be later than now.
func (m meter) charge(paidAt exact, at, n int64) exact {
	mustBePositive(n, m.most)
	paidAt = m.sound(paidAt)
	if paidAt.us < at {
		paidAt = exact{at, 0}
	}
	paidAt.us = min(paidAt.us, lastSecond*1e6)
	return m.add(paidAt, m.span(min(n, m.most)))
}

// uncharge leaves no less than the later units alone would, all as of the last instant: without the
// others the meter might have been empty at times.
func (m meter) uncharge(paidAt exact, c Charged) exact {
	if c.Since > m.most || paidAt == (exact{}) {
		return paidAt
	}
	given := m.sub(paidAt, m.span(min(c.Units, m.most)))
	if c.Since > 0 {
		alone := m.add(exact{unixMicros(c.Last), 0}, m.span(c.Since))
		if alone.after(paidAt) {
			alone = paidAt
		}
		if alone.after(given) {
			given = alone
		}
	}
	if given.us < 0 {
		return exact{}
	}
	return given
}

// unseen fills the meter if there may be no room, because the fraction left is unknown.
func (m meter) unseen(paidAt exact, u Unseen) exact {
	at, to := unixMicros(u.At), unixMicros(u.To)
	loaded, latest := m.load(paidAt, to)
	if m.units(m.sub(latest, loaded)) < u.Most {
		return m.add(exact{at, 0}, m.span(m.most))
	}
	return m.charge(paidAt, at, u.Most)
}

func (m meter) validate(rate string) error {
	limit := checkLimit("capacity", m.most, MaxLimit)
	err := m.rate.Validate()
	if err != nil {
		err = fmt.Errorf("%s: %w", rate, err)
	}
	if limit != nil || err != nil {
		return errors.Join(limit, err)
	}
	// In floats, because the exact span may overflow: an error of a millisecond is harmless here.
	if float64(m.most)*float64(m.rate.Per)/float64(m.rate.Count) > float64(maxDrain) {
		return fmt.Errorf("the capacity must be at most what %s makes in 100 years", m.rate)
	}
	return nil
}
