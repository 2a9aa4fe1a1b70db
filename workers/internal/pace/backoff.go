package pace

import "time"

// Doubled returns d·2^n, at most limit.
func Doubled(d time.Duration, n int, limit time.Duration) time.Duration {
	for ; n > 0 && d < limit; n-- {
		d *= 2
	}
	return min(d, limit)
}

// Jittered returns a duration between d/2 and d, by a draw in [0, 1).
func Jittered(d time.Duration, draw float64) time.Duration {
	return d/2 + time.Duration(draw*float64(d-d/2))
}
