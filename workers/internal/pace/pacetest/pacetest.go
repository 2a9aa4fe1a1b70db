// Package pacetest judges starts by law 2 of DESIGN.md. Tests of the clock, of the core and of
// whole drainers share it, so that all of them mean the same law.
package pacetest

import (
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/policy"
)

// Most is what law 2 allows in a window, peak·(T + 2 ms) + burst. The peak is in starts per second.
func Most(window time.Duration, peak float64, burst int64) float64 {
	return peak*(window+2*time.Millisecond).Seconds() + float64(burst) + 1e-9
}

// Exceeds says where starts of one slot each break law 2 in a window of T ≥ 1 s, at a rate with the
// peak that it has when none is given. It returns an empty string when they break it nowhere.
func Exceeds(starts []time.Duration, rate float64, burst int64) string {
	peak := rate * policy.DefaultPeak
	for i, from := range starts {
		for j, to := range starts[i:] {
			window := max(time.Second, to-from)
			if most := Most(window, peak, burst); float64(j+1) > most {
				return fmt.Sprintf("%d starts within %v, %v to %v, and %.1f are allowed", j+1,
					window, from, to, most)
			}
		}
	}
	return ""
}
