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

func (b TokenBucket) Take(s TokenBucketState, now time.Time,
	n int64) (_ TokenBucketState, d Decision) {
	at := b.meter().take(&d, exact{s.FullAt, s.Frac}, unixMicros(now), n)
	return TokenBucketState{at.us, at.frac}, d
}

func (b TokenBucket) TakeUpTo(s TokenBucketState, now time.Time,
	n int64) (_ TokenBucketState, d Decision) {
	at := b.meter().takeUpTo(&d, exact{s.FullAt, s.Frac}, unixMicros(now), n)
	return TokenBucketState{at.us, at.frac}, d
}

func (b TokenBucket) Peek(s TokenBucketState, now time.Time, n int64) (d Decision) {
	b.meter().peek(&d, exact{s.FullAt, s.Frac}, unixMicros(now), n)
	return d
}

func (b TokenBucket) Refund(s TokenBucketState, now time.Time, n int64) TokenBucketState {
	at := b.meter().refund(exact{s.FullAt, s.Frac}, unixMicros(now), n)
	return TokenBucketState{at.us, at.frac}
}

func (b TokenBucket) Clamp(s TokenBucketState, now time.Time) TokenBucketState {
	if _, latest := b.meter().load(exact{}, unixMicros(now)); s.FullAt > latest.us {
		return TokenBucketState{latest.us, latest.frac}
	}
	return s
}

func (b TokenBucket) Most() int64 { return b.Capacity }

func (b TokenBucket) Validate() error { return b.meter().validate("refill") }
