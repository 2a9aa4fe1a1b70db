package algorithms

import (
	"errors"
	"time"
)

// LeakingBucket admits units into a bucket that they leave one by one at a constant rate.
// [Decision.Delay] is the time until departure; the caller must wait that long. A request of
// several units proceeds when its last unit leaves. A request that does not fit is refused, with
// the wait until it would.
//
//	level(now) = max(0, level(then) − Outflow·(now − then))
//	passes ⇔ level + n ≤ Capacity          Delay = max(0, level + n − Burst) / Outflow
//
// The level falls continuously, so a unit occupies its place until 1/Outflow after its departure.
// With a capacity of 1 no unit can wait. nginx's limit_req is the same with Capacity = burst + 1
// (with nodelay if Burst equals Capacity).
//
// Bound: in any time T at most Burst + Outflow·T units proceed, if callers wait for their delay,
// and at most Capacity + Outflow·T are admitted. The largest delay is (Capacity − Burst)/Outflow.
//
// This is the leaky bucket as a meter (ITU-T I.371, annex A): callers keep the work. A queue policy
// stores the work itself and paces it there.
type LeakingBucket struct {
	// Capacity is the most units that the bucket holds, including the departing one: 1 to
	// [MaxLimit], and at most the outflow of 100 years.
	Capacity int64
	// Outflow is the rate of departures; see [Rate.Validate] for its range.
	Outflow Rate
	// Burst is the number of units that may leave an empty bucket together: 1 to Capacity; 0 means
	// 1.
	Burst int64
}

// LeakingBucketState is when the bucket is empty: EmptyAt in Unix microseconds plus
// Frac/Outflow.Count of a microsecond.
type LeakingBucketState struct{ EmptyAt, Frac int64 }

var _ Rule[LeakingBucketState] = LeakingBucket{}

func (b LeakingBucket) meter() meter { return meter{most: b.Capacity, rate: b.Outflow} }

// delay returns the time from t until the last of the units leaves that empty the bucket at
// emptyAt.
func (b LeakingBucket) delay(emptyAt exact, t int64) time.Duration {
	m := b.meter()
	return micros(m.sub(emptyAt, m.span(max(b.Burst, 1))).ceil() - t)
}

// Take implements [Rule].
func (b LeakingBucket) Take(s LeakingBucketState, now time.Time,
	n int64) (_ LeakingBucketState, d Decision) {
	t := unixMicros(now)
	at := b.meter().take(&d, exact{s.EmptyAt, s.Frac}, t, n)
	if d.Allowed {
		d.Delay = b.delay(at, t)
	}
	return LeakingBucketState{at.us, at.frac}, d
}

// TakeUpTo implements [Rule].
func (b LeakingBucket) TakeUpTo(s LeakingBucketState, now time.Time,
	n int64) (_ LeakingBucketState, d Decision) {
	t := unixMicros(now)
	at := b.meter().takeUpTo(&d, exact{s.EmptyAt, s.Frac}, t, n)
	if d.Allowed {
		d.Delay = b.delay(at, t)
	}
	return LeakingBucketState{at.us, at.frac}, d
}

// Peek reports whether the bucket has room for n units, and when the last of them would leave.
func (b LeakingBucket) Peek(s LeakingBucketState, now time.Time, n int64) (d Decision) {
	t := unixMicros(now)
	at := b.meter().peek(&d, exact{s.EmptyAt, s.Frac}, t, n)
	if d.Allowed {
		d.Delay = b.delay(at, t)
	}
	return d
}

// Refund removes up to n units from the bucket. Delays already returned do not change.
func (b LeakingBucket) Refund(s LeakingBucketState, now time.Time, n int64) LeakingBucketState {
	at := b.meter().refund(exact{s.EmptyAt, s.Frac}, unixMicros(now), n)
	return LeakingBucketState{at.us, at.frac}
}

// Clamp implements [Rule].
func (b LeakingBucket) Clamp(s LeakingBucketState, now time.Time) LeakingBucketState {
	if _, latest := b.meter().load(exact{}, unixMicros(now)); s.EmptyAt > latest.us {
		return LeakingBucketState{latest.us, latest.frac}
	}
	return s
}

// Charge keeps the bound of admissions for arrivals, as that of a [TokenBucket]. Delays spread no
// arrivals: units that wait for theirs may be held up and arrive together. So where arrivals count,
// let Capacity be the burst, and the work wait outside until it passes.
func (b LeakingBucket) Charge(s LeakingBucketState, _, at time.Time, n int64) LeakingBucketState {
	to := b.meter().charge(exact{s.EmptyAt, s.Frac}, unixMicros(at), n)
	return LeakingBucketState{to.us, to.frac}
}

// Uncharge implements [Rule].
func (b LeakingBucket) Uncharge(s LeakingBucketState, _ time.Time, c Charged) LeakingBucketState {
	to := b.meter().uncharge(exact{s.EmptyAt, s.Frac}, c)
	return LeakingBucketState{to.us, to.frac}
}

// ChargeUnseen implements [Rule].
func (b LeakingBucket) ChargeUnseen(s LeakingBucketState, u Unseen) LeakingBucketState {
	to := b.meter().unseen(exact{s.EmptyAt, s.Frac}, u)
	return LeakingBucketState{to.us, to.frac}
}

// Bounds implements [Rule].
func (b LeakingBucket) Bounds(time.Time) (start, end time.Time) { return start, end }

// Most implements [Parametrized].
func (b LeakingBucket) Most() int64 { return b.Capacity }

// Validate implements [Parametrized].
func (b LeakingBucket) Validate() error {
	err := b.meter().validate("outflow")
	switch {
	case b.Burst < 0:
		err = errors.Join(err, errors.New("the burst must not be negative"))
	case b.Burst > b.Capacity && b.Capacity > 0:
		err = errors.Join(err, errors.New("the burst must be at most the capacity"))
	}
	return err
}

// Bound implements [Parametrized].
func (b LeakingBucket) Bound() Bound { return Bound{Units: b.Capacity, Rate: b.Outflow} }

// Erased implements [Parametrized].
func (b LeakingBucket) Erased() Rule[*State] {
	return erased[LeakingBucketState]{b,
		func(s *State) LeakingBucketState { return LeakingBucketState{s.A, s.B} },
		func(s *State, to LeakingBucketState) { s.A, s.B = to.EmptyAt, to.Frac }}
}
