package algorithms

import "time"

// TokenBucket lets requests pass while it holds tokens, one token per unit of cost. A key starts
// with Capacity tokens, and Refill adds tokens continuously, up to Capacity: 3 per minute is one
// every 20 s, not three at once. A cost is taken whole or not at all.
//
//	tokens(now) = min(Capacity, tokens(then) + Refill·(now − then))
//
// Bound: in any time T at most Capacity + Refill·T units pass. A bucket of 3 with 3 per minute
// therefore may pass 4 within 40 s: those it held, and one that arrived meanwhile.
//
// The state is not the number of tokens but the instant at which the bucket is full again, as in
// the generic cell rate algorithm (ITU-T I.371, annex A): full buckets look alike, refilling needs
// no work, and no interval is rounded. It costs two integers per key, and every request a few
// operations, however long the key was idle.
type TokenBucket struct {
	// Capacity is the most tokens that the bucket holds: 1 to [MaxLimit], and no more than Refill
	// makes in 100 years.
	Capacity int64
	// Refill is the rate at which tokens arrive; see [Rate.Validate] for its range.
	Refill Rate
}

// TokenBucketState is the instant at which the bucket is full again: FullAt in Unix microseconds,
// and Frac/Refill.Count of a microsecond. A bucket whose instant has passed is full.
type TokenBucketState struct{ FullAt, Frac int64 }

var _ Rule[TokenBucketState] = TokenBucket{}

func (b TokenBucket) meter() meter { return meter{most: b.Capacity, rate: b.Refill} }

// Take takes n tokens if the bucket holds as many.
func (b TokenBucket) Take(s TokenBucketState, now time.Time,
	n int64) (_ TokenBucketState, d Decision) {
	at := b.meter().take(&d, exact{s.FullAt, s.Frac}, unixMicros(now), n)
	return TokenBucketState{at.us, at.frac}, d
}

// TakeUpTo takes n tokens or as many as the bucket holds.
func (b TokenBucket) TakeUpTo(s TokenBucketState, now time.Time,
	n int64) (_ TokenBucketState, d Decision) {
	at := b.meter().takeUpTo(&d, exact{s.FullAt, s.Frac}, unixMicros(now), n)
	return TokenBucketState{at.us, at.frac}, d
}

// Peek says whether the bucket holds n tokens.
func (b TokenBucket) Peek(s TokenBucketState, now time.Time, n int64) (d Decision) {
	b.meter().peek(&d, exact{s.FullAt, s.Frac}, unixMicros(now), n)
	return d
}

// Refund puts n tokens back, as far as they fit.
func (b TokenBucket) Refund(s TokenBucketState, now time.Time, n int64) TokenBucketState {
	at := b.meter().refund(exact{s.FullAt, s.Frac}, unixMicros(now), n)
	return TokenBucketState{at.us, at.frac}
}

// Clamp leaves the bucket empty at most.
func (b TokenBucket) Clamp(s TokenBucketState, now time.Time) TokenBucketState {
	if _, latest := b.meter().load(exact{}, unixMicros(now)); s.FullAt > latest.us {
		return TokenBucketState{latest.us, latest.frac}
	}
	return s
}

// Most is the capacity.
func (b TokenBucket) Most() int64 { return b.Capacity }

// Validate says what is wrong with the parameters.
func (b TokenBucket) Validate() error { return b.meter().validate("refill") }
