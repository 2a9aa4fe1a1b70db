package algorithms

import "time"

// TokenBucket lets requests pass while it holds tokens, one per unit of cost. A key starts with
// Capacity tokens, and Refill adds tokens continuously up to Capacity: 3 per minute is one every 20
// s. Take takes a cost completely, or no tokens.
//
//	tokens(now) = min(Capacity, tokens(then) + Refill·(now − then))
//
// Bound: at most Capacity + Refill·T units pass in any time T. A bucket of 3 with 3 per minute may
// therefore pass 4 within 40 s: the 3 that it held, and one refilled meanwhile.
//
// The state is not the number of tokens but when the bucket is full again, as in the generic cell
// rate algorithm (ITU-T I.371, annex A). So refilling needs no work, and no interval is rounded.
type TokenBucket struct {
	// Capacity is the most tokens that the bucket holds: 1 to [MaxLimit], and at most the refill of
	// 100 years.
	Capacity int64
	// Refill is the rate of new tokens; see [Rate.Validate] for its range.
	Refill Rate
}

// TokenBucketState is when the bucket is full again: FullAt in Unix microseconds plus
// Frac/Refill.Count of a microsecond.
type TokenBucketState struct{ FullAt, Frac int64 }

var _ Rule[TokenBucketState] = TokenBucket{}

func (b TokenBucket) meter() meter { return meter{most: b.Capacity, rate: b.Refill} }

// Take implements [Rule].
func (b TokenBucket) Take(s TokenBucketState, now time.Time,
	n int64) (_ TokenBucketState, d Decision) {
	at := b.meter().take(&d, exact{s.FullAt, s.Frac}, unixMicros(now), n)
	return TokenBucketState{at.us, at.frac}, d
}

// TakeUpTo implements [Rule].
func (b TokenBucket) TakeUpTo(s TokenBucketState, now time.Time,
	n int64) (_ TokenBucketState, d Decision) {
	at := b.meter().takeUpTo(&d, exact{s.FullAt, s.Frac}, unixMicros(now), n)
	return TokenBucketState{at.us, at.frac}, d
}

// Peek implements [Rule].
func (b TokenBucket) Peek(s TokenBucketState, now time.Time, n int64) (d Decision) {
	b.meter().peek(&d, exact{s.FullAt, s.Frac}, unixMicros(now), n)
	return d
}

// Refund implements [Rule].
func (b TokenBucket) Refund(s TokenBucketState, now time.Time, n int64) TokenBucketState {
	at := b.meter().refund(exact{s.FullAt, s.Frac}, unixMicros(now), n)
	return TokenBucketState{at.us, at.frac}
}

// Clamp implements [Rule].
func (b TokenBucket) Clamp(s TokenBucketState, now time.Time) TokenBucketState {
	if _, latest := b.meter().load(exact{}, unixMicros(now)); s.FullAt > latest.us {
		return TokenBucketState{latest.us, latest.frac}
	}
	return s
}

// Charge keeps the bound for arrivals when units are held until they are answered. Let j be the
// unit of an interval [x, y] of arrivals that was decided last, at d ≤ y. Every other one was held
// at d, or charged in [x, d]: it was not answered before it arrived. (If d < x, all were held.)
// With U of the latter, the level at d is at least U − Refill·(d − x), so the decision says
//
//	U − Refill·(d − x) + held + j ≤ Capacity   ⇒   U + held + j ≤ Capacity + Refill·(y − x)
func (b TokenBucket) Charge(s TokenBucketState, _, at time.Time, n int64) TokenBucketState {
	to := b.meter().charge(exact{s.FullAt, s.Frac}, unixMicros(at), n)
	return TokenBucketState{to.us, to.frac}
}

// Uncharge implements [Rule].
func (b TokenBucket) Uncharge(s TokenBucketState, _ time.Time, c Charged) TokenBucketState {
	to := b.meter().uncharge(exact{s.FullAt, s.Frac}, c)
	return TokenBucketState{to.us, to.frac}
}

// ChargeUnseen implements [Rule].
func (b TokenBucket) ChargeUnseen(s TokenBucketState, u Unseen) TokenBucketState {
	to := b.meter().unseen(exact{s.FullAt, s.Frac}, u)
	return TokenBucketState{to.us, to.frac}
}

// Bounds implements [Rule].
func (b TokenBucket) Bounds(time.Time) (start, end time.Time) { return start, end }

// Most implements [Parametrized].
func (b TokenBucket) Most() int64 { return b.Capacity }

// Validate implements [Parametrized].
func (b TokenBucket) Validate() error { return b.meter().validate("refill") }

// Bound implements [Parametrized].
func (b TokenBucket) Bound() Bound { return Bound{Units: b.Capacity, Rate: b.Refill} }

// Erased implements [Parametrized].
func (b TokenBucket) Erased() Rule[*State] {
	return erased[TokenBucketState]{b,
		func(s *State) TokenBucketState { return TokenBucketState{s.A, s.B} },
		func(s *State, to TokenBucketState) { s.A, s.B = to.FullAt, to.Frac }}
}
