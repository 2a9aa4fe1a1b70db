// Package algorithms holds five rate-limiting rules as pure arithmetic: old state in, new state and
// a decision out. A rule has no clock, no storage and no goroutine; the caller passes the instant
// and keeps the state. Package memstore keeps states in memory, one per key, and package redisstore
// in Redis, where processes share them.
//
//	perSecond := algorithms.Rate{Count: 5, Per: time.Second}
//	rule := algorithms.TokenBucket{Capacity: 10, Refill: perSecond}
//	state, decision := rule.Take(state, time.Now(), 1)
//
// # Which one
//
// For a limit L per window W, or a capacity C and a rate R:
//
//	rule            state per key  most that pass in any time T      when to choose it
//	TokenBucket     2 integers     C + R·T                           bursts are fine
//	LeakingBucket   2 integers     Burst + R·T go ahead              the pace must be even
//	FixedWindow     2 integers     2·L in T ≤ W, across an edge      quotas such as "100 a day"
//	SlidingLog      up to L times  L in T < W, exactly               small limits, exactly
//	SlidingCounter  3 integers     L·(1 + T/W) in T ≤ W, rounded up  large limits, nearly
//
// # Time
//
// Rules count in whole microseconds. An instant is rounded down to one, instants before 1970 count
// as 1970, and every duration of a [Decision] is a whole number of microseconds: the same request
// is refused one microsecond before RetryAfter has passed, and allowed when it has. Rates are exact
// at any count and period: intervals are kept as fractions, never rounded.
//
// The clock may step back. Nothing is given back then, and no key is locked until the clock has
// caught up: a state that lies further ahead than the rule could have put it is pulled in to that
// point. The bounds above hold with T as the time by which the clock moved forward, whatever it did
// in between.
//
// # Changed parameters
//
// A state that was made by a rule of the same type with other parameters is read as it is, within
// the bounds that the new parameters set: never a negative remainder, never a wait longer than the
// new rule could cause. What a token bucket or a leaking bucket owes is kept as time, not as units.
package algorithms
