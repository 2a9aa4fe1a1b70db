package algorithms

import (
	"errors"
	"time"
)

// LeakingBucket admits work into a bucket that it leaves one by one at a constant rate.
// [Decision.Delay] is the time until departure: how long the caller must wait before it goes ahead.
// The first unit that finds the bucket empty leaves at once, the next one 1/Outflow later, and so
// on; a request of several units goes ahead when its last unit leaves. A request that does not fit
// is refused, with the time until it would.
//
//	level(now) = max(0, level(then) − Outflow·(now − then))
//	passes ⇔ level + n ≤ Capacity          Delay = max(0, level + n − Burst) / Outflow
//
// The level falls evenly, so a unit holds its place until 1/Outflow after it left: Capacity counts
// the unit that is leaving and those that wait behind it. A capacity of 1 lets nobody wait. nginx's
// limit_req is the same with Capacity = burst + 1 (and with nodelay when Burst equals Capacity).
//
// Bound: in any time T at most Burst + Outflow·T units go ahead, if every caller waits for its
// delay, and at most Capacity + Outflow·T are admitted. Idle time earns nothing beyond Burst.
// Delays are at most (Capacity − Burst)/Outflow.
//
// This is the leaky bucket as a meter (ITU-T I.371, annex A): it counts work that others hold. A
// queue policy keeps the work itself in a queue, and paces it there. It costs two integers per key,
// as a [TokenBucket] does.
type LeakingBucket struct {
	// Capacity is the most units that the bucket holds, the one that is leaving included: 1 to
	// [MaxLimit], and no more than flow out in 100 years.
	Capacity int64
	// Outflow is the rate at which units leave; see [Rate.Validate] for its range.
	Outflow Rate
	// Burst is how many units may leave together when the bucket was empty: 1 to Capacity; 0
	// means 1.
	Burst int64
}

// LeakingBucketState is the instant at which the bucket is empty: EmptyAt in Unix microseconds, and
// Frac/Outflow.Count of a microsecond.
type LeakingBucketState struct{ EmptyAt, Frac int64 }

var _ Rule[LeakingBucketState] = LeakingBucket{}

func (b LeakingBucket) meter() meter { return meter{most: b.Capacity, rate: b.Outflow} }

// delay is the time until the last of the units that empty the bucket at the given instant leaves,
// from t on.
func (b LeakingBucket) delay(emptyAt exact, t int64) time.Duration {
	m := b.meter()
	return micros(m.sub(emptyAt, m.span(max(b.Burst, 1))).ceil() - t)
}

// Take admits n units if the bucket has room for all of them.
func (b LeakingBucket) Take(s LeakingBucketState, now time.Time,
	n int64) (_ LeakingBucketState, d Decision) {
	t := unixMicros(now)
	at := b.meter().take(&d, exact{s.EmptyAt, s.Frac}, t, n)
	if d.Allowed {
		d.Delay = b.delay(at, t)
	}
	return LeakingBucketState{at.us, at.frac}, d
}

// TakeUpTo admits n units or as many as the bucket has room for. Delay is that of the last unit
// admitted.
func (b LeakingBucket) TakeUpTo(s LeakingBucketState, now time.Time,
	n int64) (_ LeakingBucketState, d Decision) {
	t := unixMicros(now)
	at := b.meter().takeUpTo(&d, exact{s.EmptyAt, s.Frac}, t, n)
	if d.Allowed {
		d.Delay = b.delay(at, t)
	}
	return LeakingBucketState{at.us, at.frac}, d
}

// Peek says whether the bucket has room for n units, and when the last of them would leave.
func (b LeakingBucket) Peek(s LeakingBucketState, now time.Time, n int64) (d Decision) {
	t := unixMicros(now)
	at := b.meter().peek(&d, exact{s.EmptyAt, s.Frac}, t, n)
	if d.Allowed {
		d.Delay = b.delay(at, t)
	}
	return d
}

// Refund takes n units out of the bucket, as far as there are any. The delays that others
// were given stay as they are.
func (b LeakingBucket) Refund(s LeakingBucketState, now time.Time, n int64) LeakingBucketState {
	at := b.meter().refund(exact{s.EmptyAt, s.Frac}, unixMicros(now), n)
	return LeakingBucketState{at.us, at.frac}
}

// Clamp leaves the bucket full at most.
func (b LeakingBucket) Clamp(s LeakingBucketState, now time.Time) LeakingBucketState {
	if _, latest := b.meter().load(exact{}, unixMicros(now)); s.EmptyAt > latest.us {
		return LeakingBucketState{latest.us, latest.frac}
	}
	return s
}

// Most is the capacity.
func (b LeakingBucket) Most() int64 { return b.Capacity }

// Validate says what is wrong with the parameters.
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
