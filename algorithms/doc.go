// Package algorithms implements five rate-limiting rules as pure functions: a rule takes a state
// and an instant, and returns the new state and a decision. It has no clock, storage or goroutines.
// Package memstore keeps states in memory, one per key; package redisstore shares them between
// processes in Redis.
//
//	perSecond := algorithms.Rate{Count: 5, Per: time.Second}
//	rule := algorithms.TokenBucket{Capacity: 10, Refill: perSecond}
//	state, decision := rule.Take(state, time.Now(), 1)
//
// # Which one
//
// For a limit L per window W, or a capacity C and a rate R:
//
//	rule            state per key  most units in any time T          use it
//	TokenBucket     2 integers     C + R·T                           to permit bursts
//	LeakingBucket   2 integers     Burst + R·T proceed               for an even pace
//	FixedWindow     2 integers     2·L in T ≤ W, across an edge      for quotas such as "100 a day"
//	SlidingLog      1,024 times    L in T < W, exactly               for limits that must hold exactly
//	SlidingCounter  3 integers     L·(1 + T/W) in T ≤ W, rounded up  for large limits, nearly
//
// # Arrivals
//
// A third party counts requests as they arrive, which is some time after they were decided.
// [Holding] keeps the bound for arrivals too, for all rules except a SlidingCounter: a unit is held
// until its request is answered, and counts from then.
//
// # Time
//
// Rules count in whole microseconds. Instants are rounded down, and instants before 1970 count as
// 1970. A refused request is allowed exactly when RetryAfter has passed, not a microsecond earlier.
// Rates are exact for any count and period: intervals are kept as fractions and never rounded.
//
// The clock may step back. This returns no units, and locks no key until the clock has caught up: a
// state further ahead than the rule could have put it is clamped. The bounds above hold with T as
// the sum of the clock's forward movements.
//
// # Changed parameters
//
// A state made by a rule of the same type with other parameters is read within the bounds of the
// new parameters: Remaining is never negative, and waits are never longer than the new rule could
// cause. Token and leaking buckets keep their debt as time, not as units.
package algorithms
