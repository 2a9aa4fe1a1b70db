package pace

import "time"

// Doubled is d·2^n, at most limit.
func Doubled(d time.Duration, n int, limit time.Duration) time.Duration {
	for ; n > 0 && d < limit; n-- {
		d *= 2
	}
	return min(d, limit)
}

// Jittered is between half of d and d, by a draw in [0, 1): jobs that failed together come back
// apart, and none at once.
func Jittered(d time.Duration, draw float64) time.Duration {
	return d/2 + time.Duration(draw*float64(d-d/2))
}
